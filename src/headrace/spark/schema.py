"""The columns of the data source: for reading, for writing, and of the metadata tables.

Types and nullability match the broker's Arrow batches, so that they need no conversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from headrace.core.errors import InvalidInput

Metadata = Literal["topics", "groups", "partitions"]

_ATTRIBUTES: Final = MapType(StringType(), BinaryType())
_FIELDS: Final = {
    field.name: field
    for field in (
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("timestamp", TimestampType(), False),
        StructField("attributes", _ATTRIBUTES),
        StructField("producer_id", StringType()),
        StructField("message_group_id", StringType()),
        StructField("seqno", LongType()),
        StructField("codec", StringType()),
        StructField("created_at", TimestampType()),
    )
}
READ_COLUMNS: Final = tuple(_FIELDS)

# How the topic chooses the partition of a key.
_KEY_HASH: Final = StructField("key_hash", StringType(), False)

METADATA: Final[dict[str, StructType]] = {
    "topics": StructType(
        [
            StructField("topic", StringType(), False),
            StructField("partitions", IntegerType(), False),
            StructField("messages", LongType(), False),
            StructField("bytes_stored", LongType(), False),
            StructField("created_at", TimestampType(), False),
            StructField("groups", IntegerType(), False),
            _KEY_HASH,
        ]
    ),
    "partitions": StructType(
        [
            StructField("topic", StringType(), False),
            StructField("partition", IntegerType(), False),
            StructField("start_offset", LongType(), False),
            StructField("end_offset", LongType(), False),
            StructField("messages", LongType(), False),
            _KEY_HASH,
        ]
    ),
    "groups": StructType(
        [
            StructField("topic", StringType(), False),
            StructField("group", StringType(), False),
            StructField("important", BooleanType(), False),
            StructField("members", IntegerType(), False),
            StructField("partition", IntegerType(), False),
            StructField("committed", LongType()),
            StructField("end_offset", LongType(), False),
            StructField("lag_messages", LongType(), False),
            StructField("lag_seconds", DoubleType(), False),
        ]
    ),
}

# The rows of a stream that say what to fetch, and how many messages that is.
SPLIT_SCHEMA: Final = StructType(
    [StructField("split", BinaryType(), nullable=False), StructField("messages", LongType(), nullable=False)]
)

_TABLE_OPTIONS: Final = "headrace.options"

_TEXT: Final = (StringType, CharType, VarcharType, NullType)
_BYTES: Final = (BinaryType, *_TEXT)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType, NullType)
_WRITABLE: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "value": (_BYTES, "string or binary"),
    "key": (_BYTES, "string or binary"),
    "attributes": ((MapType, NullType), "map<string, binary> or map<string, string>"),
    "topic": (_TEXT, "string"),
    "partition": (_WHOLE, "int"),
    "producer_id": (_TEXT, "string"),
    "message_group_id": (_TEXT, "string"),
    "seqno": (_WHOLE, "bigint"),
    "codec": (_TEXT, "string"),
    "created_at": ((TimestampType, NullType), "timestamp"),
}


def read_schema(columns: Sequence[str]) -> StructType:
    """The schema of rows with these columns."""
    return StructType([_FIELDS[name] for name in columns])


def with_table_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A schema whose first field carries the options of a table: Spark keeps them there and nowhere else."""
    if not options:
        return schema
    first, *others = schema.fields
    metadata = {_TABLE_OPTIONS: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of_table(schema: StructType) -> dict[str, str]:
    """The options that a schema carries."""
    return {} if not schema.fields else dict((schema.fields[0].metadata or {}).get(_TABLE_OPTIONS, {}))


def is_same(one: StructType, other: StructType) -> bool:
    """Whether two schemas have the same fields, whatever they carry."""

    def plain(schema: StructType) -> list[tuple[str, DataType, bool]]:
        return [(field.name, field.dataType, field.nullable) for field in schema.fields]

    return plain(one) == plain(other)


def check_writable(schema: StructType, has_topic: bool) -> None:
    """Reject columns that cannot be written, before anything is written."""
    names = [name.lower() for name in schema.names]
    for name in names:
        if name not in _WRITABLE:
            rule = f"it cannot be written: select only {', '.join(_WRITABLE)}"
            raise InvalidInput("column", repr(name)[:100], rule)
        if names.count(name) > 1:
            raise InvalidInput("column", repr(name), "it is given more than once")
    if "value" not in names:
        raise InvalidInput("column", "'value' missing", "every message needs a value: add a column value")
    if not has_topic and "topic" not in names:
        rule = (
            "set the topic with .option('topic', …), in SQL INSERT INTO … WITH (url = '…', topic = '…'), or add a "
            "column topic. Spark gives a sink no options of the table that it writes to"
        )
        raise InvalidInput("topic", "not given", rule)
    for name, field in zip(names, schema.fields, strict=True):
        kinds, shown = _WRITABLE[name]
        if not isinstance(field.dataType, kinds) or not _is_map_of_bytes(field.dataType):
            raise InvalidInput(f"column {name}", f"of type {field.dataType.simpleString()}", f"it must be {shown}")


def _is_map_of_bytes(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, BinaryType | StringType)
