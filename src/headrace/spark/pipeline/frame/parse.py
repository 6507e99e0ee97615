"""Parses values by a schema, and separates the rows that do not match it.

    rows ──► parse ──┬── fit ──► fields as columns; a message's own columns in the struct `message`
                     └── do not ──► dead rows, with a reason

A message is invalid if its value cannot be decoded by its codec, also without a schema. With a schema a row is invalid
if its value is not UTF-8 or not a JSON object, if a field has another type, or if a NOT NULL field is missing, at any
depth of structs. Fields that are not in the schema are ignored. With `values = "typed"` the data source has judged
values by the schema of their topic. Without dead letters the first invalid row fails the pipeline: nothing is dropped
silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from headrace.core.errors import InvalidInput
from headrace.core.values.types import ERROR_COLUMN
from headrace.spark.pipeline.definition.check import MESSAGE_STRUCT
from headrace.spark.pipeline.definition.description import Description, TopicSource
from headrace.spark.pipeline.frame.source import CORRUPT, schema_of
from headrace.spark.pipeline.run.spark_logs import analysis, quoted
from headrace.spark.schema import READ_COLUMNS

METRICS: Final = "headrace"
# Columns that are added to rows while their values are judged.
PARSED: Final = "_headrace_parsed"
REASON: Final = "_headrace_reason"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows that fit, and those that do not if somebody wants them."""

    rows: DataFrame
    dead: DataFrame | None


def typed(raw: DataFrame, description: Description, counts: Observation | str = METRICS) -> Parsed:
    """Apply the schema of the source, if it has one; rows and dead rows are counted as they pass."""
    with analysis("source.schema", description.source.schema or "missing"):
        return _typed(raw, description, counts)


def _typed(raw: DataFrame, description: Description, counts: Observation | str) -> Parsed:
    text = description.source.schema
    rows = F.count(F.lit(1)).alias("rows")
    is_decoded, what = _is_decoded(description), "source.schema"
    if is_decoded:
        what = "the schema of its topic"
        schema, judged = None, raw.withColumn(REASON, F.col(ERROR_COLUMN))
    elif text is None or not _is_typed_here(description):
        if not description.buries_undecodable:
            return Parsed(raw.observe(counts, rows, F.count_if(F.lit(False)).alias("dead")), None)
        schema, judged = None, raw.withColumn(REASON, _undecodable())
    else:
        schema = schema_of(text)
        _check_names(schema, raw, text)
        _check_depth(schema, text)
        is_file = CORRUPT in raw.columns
        judged = _judged_file(raw, schema) if is_file else judged_value(raw, schema, description.buries_undecodable)
    has_dead = description.dead_letters is not None
    counted = judged.observe(counts, rows, F.count_if(F.col(REASON).isNotNull()).alias("dead"), *_used(raw, schema))
    good = counted.where(F.col(REASON).isNull() if has_dead else _fits_or_fails(raw, what))
    seen = _seen(raw, description)
    if is_decoded:
        fields = _decoded_fields(good, seen)
    else:
        fields = good.select(*seen) if schema is None else _fields(good, schema, seen)
    return Parsed(fields, _dead_rows(judged, raw) if has_dead else None)


def _seen(raw: DataFrame, description: Description) -> list[str]:
    """The columns that the steps see: without the codec that was read only to tell which values do not fit it."""
    source = description.source
    is_hidden = isinstance(source, TopicSource) and source.columns is not None and "codec" not in source.columns
    return [name for name in raw.columns if name != "codec" or not is_hidden]


def _undecodable() -> Column:
    """The reason of those whose value came raw."""
    codec = F.col("codec")
    return F.when(codec.isNotNull(), F.concat(F.lit("the value cannot be decoded by its codec "), codec))


def _is_decoded(description: Description) -> bool:
    """Whether values come as columns already, by the schema of their topic."""
    return isinstance(description.source, TopicSource) and description.source.values == "typed"


def _is_typed_here(description: Description) -> bool:
    source = description.source
    return isinstance(source, TopicSource) or source.format in ("json", "csv", "text")


def _check_names(schema: StructType, raw: DataFrame, text: str) -> None:
    if CORRUPT not in raw.columns and MESSAGE_STRUCT in (name.lower() for name in schema.names):
        rule = f"the columns of the message itself are in the struct {MESSAGE_STRUCT}: select the field by another name"
        raise InvalidInput("source.schema", text[:100], rule)


def _check_depth(kind: DataType, text: str, is_inside: bool = False) -> None:
    """Reject NOT NULL inside arrays and maps: elements are not checked."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            if is_inside and not field.nullable:
                rule = f"NOT NULL of {field.name} is within an array or a map, where it is not checked: remove it"
                raise InvalidInput("source.schema", text[:100], rule)
            _check_depth(field.dataType, text, is_inside)
    elif isinstance(kind, ArrayType):
        _check_depth(kind.elementType, text, True)
    elif isinstance(kind, MapType):
        _check_depth(kind.valueType, text, True)


def judged_value(raw: DataFrame, schema: StructType, may_be_raw: bool = False) -> DataFrame:
    """The rows with the JSON in the column value as a struct, and the reason where it does not match the schema."""
    asked = StructType([*schema.fields]).add(CORRUPT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    value = F.col("value")
    is_bytes = isinstance(raw.schema["value"].dataType, BinaryType)
    parsed = raw.withColumn(PARSED, F.from_json(value.cast("string"), asked, options))
    reason = _undecodable() if may_be_raw else F.when(F.lit(False), "")
    if is_bytes:
        reason = reason.when(~F.is_valid_utf8(value), "the value is not valid UTF-8")
    reason = reason.when(value.isNull(), "the value is null")
    fields = F.col(PARSED)
    reason = reason.when(
        fields.isNull() | fields[CORRUPT].isNotNull(), "the value is not a JSON object that matches the schema"
    )
    return parsed.withColumn(REASON, _with_missing(reason, schema, f"{PARSED}."))


def _judged_file(raw: DataFrame, schema: StructType) -> DataFrame:
    """Rows that Spark's own reader of JSON or CSV has judged."""
    reason = F.when(F.col(CORRUPT).isNotNull(), "the row does not match the schema")
    fields = F.struct(*(F.col(f"`{name}`") for name in schema.names))
    return raw.withColumn(PARSED, fields).withColumn(REASON, _with_missing(reason, schema, f"{PARSED}."))


def _used(raw: DataFrame, schema: StructType | None) -> list[Column]:
    """A metric of every field of a file: Spark's reader judges only fields that are used, and a step may use none."""
    if schema is None or CORRUPT not in raw.columns:
        return []
    fields = [F.col(quoted(name)).isNull() for name in schema.names]
    return [F.count_if(reduce(Column.__and__, fields)).alias("empty")]


def _with_missing(reason: Column, schema: StructType, prefix: str) -> Column:
    return reduce(
        lambda so_far, path: so_far.when(_is_missing(path, prefix), f"the field {'.'.join(path)} is missing"),
        _needed(schema),
        reason,
    )


def _needed(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields that must be there, also those of structs, by their path."""
    for field in schema.fields:
        path = (*above, field.name)
        if not field.nullable:
            yield path
        if isinstance(field.dataType, StructType):
            yield from _needed(field.dataType, path)


def _is_missing(path: tuple[str, ...], prefix: str) -> Column:
    """A field of a struct is missing only where there is the struct."""
    names = [quoted(name) for name in path]
    missing = F.col(prefix + ".".join(names)).isNull()
    return missing & F.col(prefix + ".".join(names[:-1])).isNotNull() if names[:-1] else missing


def _fits_or_fails(raw: DataFrame, what: str) -> Column:
    places = [name for name in ("topic", "partition", "offset") if name in raw.columns]
    where = F.concat_ws(" ", *(F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in places))
    told = F.concat(
        F.lit(f"a row does not match {what} ("), F.col(REASON), F.lit(") "), where,
        F.lit(": correct the schema, or add [dead_letters] for such rows"),
    )  # fmt: skip
    return F.when(F.col(REASON).isNotNull(), F.raise_error(told).cast("boolean")).otherwise(True)


def _fields(good: DataFrame, schema: StructType, seen: list[str]) -> DataFrame:
    fields = [F.col(f"{PARSED}.`{name}`") for name in schema.names]
    if CORRUPT in seen:
        return good.select(*fields)
    return good.select(*fields, F.struct(*seen).alias(MESSAGE_STRUCT))


def _decoded_fields(good: DataFrame, seen: list[str]) -> DataFrame:
    """The columns of values, and the message in its struct, as with a schema of the pipeline's own."""
    messages = [name for name in seen if name in READ_COLUMNS]
    fields = [F.col(quoted(name)) for name in seen if name not in (*messages, ERROR_COLUMN)]
    return good.select(*fields, *([F.struct(*messages).alias(MESSAGE_STRUCT)] if messages else []))


def _dead_rows(judged: DataFrame, raw: DataFrame) -> DataFrame:
    """What is known of the rows that do not fit: all of a message, or the text of a row and its file."""
    reason = F.col(REASON).alias("reason")
    dead = judged.where(F.col(REASON).isNotNull())
    if CORRUPT in raw.columns:
        # The fields are named too since Spark refuses to read nothing but the text of a row.
        text = F.coalesce(F.col(CORRUPT), F.to_json(PARSED))
        return dead.select(text.cast("binary").alias("value"), reason, F.input_file_name().alias("origin"))
    names = [name for name in raw.columns if name in READ_COLUMNS]
    columns = [F.col(name).cast("binary") if name == "value" else F.col(name) for name in names]
    return dead.select(*columns, reason)
