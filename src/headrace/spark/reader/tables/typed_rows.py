"""Columns of values beside those of messages, in tasks of Spark: `headrace.core.values` parses them.

Needed for rows of the broker, and of files that do not have these columns as the schema says. Can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.core.values.columns import parser_of
from headrace.spark.schema import read_schema


@dataclass(frozen=True)
class TypedRows:
    """Rows with these columns of messages, and those of their values.

    text: the schema of the values.
    """

    columns: tuple[str, ...]
    text: str

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of messages from which rows are made."""
        return tuple(dict.fromkeys([*self.columns, "value", "codec"]))

    @property
    def names(self) -> Sequence[str]:
        """The columns of values."""
        return tuple(parser_of(self.text).columns.names)

    @property
    def value_fields(self) -> StructType:
        """The columns of values, as Spark knows them."""
        return from_arrow_schema(parser_of(self.text).columns)

    @property
    def schema(self) -> StructType:
        """The columns of these rows."""
        return StructType([*read_schema(self.columns).fields, *self.value_fields.fields])

    def parse(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with the columns that are needed as rows with all columns."""
        parser = parser_of(self.text)
        for batch in batches:
            value, codec = (batch.column(name) for name in ("value", "codec"))
            begin = 0
            for typed in parser.slices(value, codec):
                rows = batch.slice(begin, typed.num_rows)
                begin += typed.num_rows
                columns = [rows.column(name) for name in self.columns]
                fields = [batch.schema.field(name) for name in self.columns]
                yield pa.RecordBatch.from_arrays(
                    [*columns, *typed.columns], schema=pa.schema([*fields, *parser.columns])
                )
