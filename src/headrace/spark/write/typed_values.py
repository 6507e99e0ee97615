"""Rows whose columns are fields of values, as messages: `values=typed` of the sink.

The driver looks the schema of the topic up when a write is planned, and checks the columns; tasks make the values. So
the token needs the right to read the topic too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.types import ERROR_COLUMN
from headrace.core.values.writer import ValueWriter
from headrace.spark.connection import Connection
from headrace.spark.options import WriteOptions
from headrace.spark.schema import READ_COLUMNS, check_writable
from headrace.spark.write.writers import BatchWriter, StreamWriter, Written

_VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class FieldValues:
    """Makes messages of rows with fields of values; text: the schema of the values. It travels to the executors."""

    text: str

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their values; columns of messages stay as they are."""
        for batch in batches:
            fields = _fields_of(batch.schema.names)
            values = _writer(self.text).values(batch.select(fields))
            yield batch.drop_columns(fields).append_column(_VALUE, values)


def typed_values(connection: Connection, topic: str | None, schema: StructType) -> FieldValues:
    """How rows with these columns become messages of a topic; raises if they cannot."""
    if topic is None:
        raise InvalidInput("topic", "not given", "values=typed needs the option topic, whose schema is used")
    for name in schema.names:
        if name.lower() in (_VALUE, ERROR_COLUMN):
            rule = (
                "with values=typed it is made of the other columns: select only fields of values, and key and the like"
            )
            raise InvalidInput("column", repr(name), rule)
    text = connection.call(partial(Client.describe_topic, name=topic)).settings.value_schema
    if text is None:
        raise InvalidInput("value_schema", f"topic {topic!r} has none", "values=typed needs one: headrace topic alter")
    fields = _fields_of(schema.names)
    _writer(text).check(to_arrow_schema(StructType([schema[name] for name in fields]), timezone="UTC"))
    others = [field for field in schema.fields if field.name not in fields]
    check_writable(StructType([*others, StructField(_VALUE, BinaryType())]), has_topic=True)
    return FieldValues(text)


def _fields_of(names: Sequence[str]) -> list[str]:
    """The columns that are fields of values."""
    return [name for name in names if name.lower() not in READ_COLUMNS]


@functools.lru_cache(maxsize=16)
def _writer(text: str) -> ValueWriter:
    return ValueWriter(parse_value_schema(text))


class TypedBatchWriter(BatchWriter):
    """Writes one DataFrame of fields of values."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options)
        self._values = typed_values(options.connection, options.topic, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return super().write(self._values.messages(iterator))


class TypedStreamWriter(StreamWriter):
    """Writes micro-batches of fields of values."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options)
        self._values = typed_values(options.connection, options.topic, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return super().write(self._values.messages(iterator))
