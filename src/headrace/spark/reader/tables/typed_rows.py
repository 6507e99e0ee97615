"""Columns of values beside those of messages, in tasks of Spark: `headrace.core.values` parses them.

Of JSON only the fields that are wanted are decoded, and a value is judged by these: another field that does not fit, or
is missing, does no harm. A value of Avro is decoded as a whole. What does not fit is NULL in all its fields, or an
error that names the message. Can be pickled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.core.values.columns import ValueParser, parser_of
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.types import ERROR_COLUMN
from headrace.spark.options import ReadOptions
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.splits import Split
from headrace.spark.reader.topic_selection import TopicSelection
from headrace.spark.schema import READ_COLUMNS, read_schema

_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True)
class TypedRows:
    """Rows with these columns of messages and of their values.

    text: the schema of the values. fails: whether a value that does not fit it is an error.
    """

    columns: tuple[str, ...]
    text: str
    fails: bool = False

    @classmethod
    def with_all_fields(cls, columns: Sequence[str], text: str, fails: bool = False) -> TypedRows:
        """Rows with all fields after some columns of messages."""
        return cls((*columns, *parser_of(text).columns.names), text, fails)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of messages from which rows are made."""
        own = [name for name in self.columns if name in READ_COLUMNS]
        return tuple(dict.fromkeys([*own, "value", "codec", *(_PLACE if self.fails else ())]))

    @property
    def names(self) -> Sequence[str]:
        """The columns of values."""
        return tuple(name for name in self.columns if name not in READ_COLUMNS)

    @property
    def value_fields(self) -> StructType:
        """The columns of values, as Spark knows them."""
        parsed = _parser(self.text, self.names).columns
        return from_arrow_schema(pa.schema([parsed.field(name) for name in self.names]))

    @property
    def schema(self) -> StructType:
        """The columns of these rows."""
        fields = {field.name: field for field in self.value_fields}
        known = {field.name: field for field in read_schema(READ_COLUMNS)}
        return StructType([fields[name] if name in fields else known[name] for name in self.columns])

    def parse(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with the columns that are needed as rows with all columns."""
        parser = _parser(self.text, self.names)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            value, codec = (batch.column(name) for name in ("value", "codec"))
            begin = 0
            for typed in parser.slices(value, codec):
                rows = batch.slice(begin, typed.num_rows)
                begin += typed.num_rows
                if self.fails:
                    _check(rows, typed.column(ERROR_COLUMN))
                columns = [
                    rows.column(field.name) if field.name in READ_COLUMNS else typed.column(field.name).cast(field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class TypedReader:
    """Reads splits as a `SplitReader` does, with fields of values. It travels to the executors."""

    reader: SplitReader
    typed: TypedRows

    @property
    def schema(self) -> pa.Schema:
        """The columns of its batches."""
        return to_arrow_schema(self.typed.schema, timezone="UTC")

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The batches of a split."""
        return self.typed.parse(self.reader.read(split))


def typed_rows(options: ReadOptions) -> TypedRows:
    """The fields of values that a reader wants, by the schema that its topics have now."""
    text = _schema_of(options.subscription)
    if options.all_fields:
        return TypedRows.with_all_fields(options.columns, text, options.fails_on_invalid)
    known = {name.lower(): name for name in parser_of(text).columns.names}
    unknown = [name for name in options.columns if name not in READ_COLUMNS and name not in known]
    if unknown:
        rule = f"the fields of values are {', '.join(known.values())}"
        raise InvalidInput("columns", repr(unknown[0])[:100], rule)
    return TypedRows(tuple(known.get(name, name) for name in options.columns), text, options.fails_on_invalid)


def _schema_of(topics: TopicSelection) -> str:
    """The one schema that all topics have."""
    schemas = {topic.name: topic.settings.value_schema for topic in topics.descriptions()}
    lacking = [name for name, text in schemas.items() if text is None]
    if lacking or not schemas:
        what = f"topic {lacking[0]!r} has none" if lacking else "there is no topic yet"
        raise InvalidInput("value_schema", what, "values=typed needs a schema: headrace topic alter --value-schema")
    (first, text), *others = schemas.items()
    for name, other in others:
        if other != text:
            rule = "values=typed needs one schema: read these topics by a DataFrame each"
            raise InvalidInput("value_schema", f"topics {first!r} and {name!r} have different ones", rule)
    assert text is not None, "none is lacking"
    return text


@functools.lru_cache(maxsize=256)
def _parser(text: str, names: tuple[str, ...]) -> ValueParser:
    """A parser of the wanted fields; of all of them if only the error is wanted."""
    schema = parse_value_schema(text)
    fields = tuple(field for field in schema.fields if field.column in names)
    if schema.format == "json" and 0 < len(fields) < len(schema.fields):
        return ValueParser(replace(schema, fields=fields))
    return parser_of(text)


def _check(rows: pa.RecordBatch, errors: Any) -> None:
    """Raise for the first value that does not fit."""
    if errors.null_count == len(errors):
        return
    row = int(np.argmax(np.asarray(errors.is_valid())))
    topic, partition, offset = (rows.column(name)[row].as_py() for name in _PLACE)
    place = f"the value at offset {offset} of partition {partition} of topic {topic!r}"
    raise InvalidInput(place, "invalid", f"{errors[row].as_py()}. With onInvalid=null its fields are NULL")
