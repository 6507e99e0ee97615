"""The data source `headrace`: `spark.read`, `readStream`, `write` and `writeStream` with `.format("headrace")`.

Spark makes this object in a process of the driver that plans queries. Everything is checked there, before a task runs.
Nothing here touches Spark's Java, so it works on Spark Connect as well.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.spark.metadata import MetadataReader
from headrace.spark.options import ReadOptions, check_batch, check_stream, read_options, table_options, write_options
from headrace.spark.reader.batch_reader import BatchReader, checked_reader, row_reader
from headrace.spark.reader.stream_reader import SplitStream, StreamReader
from headrace.spark.schema import METADATA, check_writable, is_same, options_of_table, with_table_options
from headrace.spark.write.writers import BatchWriter, StreamWriter


class HeadraceSource(DataSource):
    """A topic as a DataFrame, and a DataFrame as messages."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # A plain value, so that it can be pickled.
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `.format()` is given."""
        return "headrace"

    def schema(self) -> StructType:
        """The columns that are read."""
        return with_table_options(_schema_of(read_options(self._given)), table_options(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        # Spark reads a table of its catalog without the options it was created with.
        options = read_options({**options_of_table(schema), **self._given})
        check_batch(options)
        if options.metadata:
            _check_metadata(schema, options)
            return MetadataReader(options, schema)
        return BatchReader(options, checked_reader(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream reader."""
        options = read_options({**options_of_table(schema), **self._given})
        check_stream(options)
        reader = checked_reader(options, schema)
        return SplitStream(options, reader) if options.rows_are_splits else StreamReader(options, reader)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer."""
        options = write_options(self._given, is_stream=False)
        if overwrite:
            raise InvalidInput("mode", "overwrite", "messages cannot be overwritten: use mode('append')")
        if options.is_typed:
            # It takes a while to import, which others need not wait for.
            from headrace.spark.write.typed_values import TypedBatchWriter

            return TypedBatchWriter(options, schema)
        check_writable(schema, options.topic is not None)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes micro-batches, each once; with output mode complete, all rows of the result every time."""
        options = write_options(self._given, is_stream=True)
        if options.is_typed:
            from headrace.spark.write.typed_values import TypedStreamWriter

            return TypedStreamWriter(options, schema)
        check_writable(schema, options.topic is not None)
        return StreamWriter(options)


def _schema_of(options: ReadOptions) -> StructType:
    return METADATA[options.metadata] if options.metadata else row_reader(options)[1]


def _check_metadata(schema: StructType, options: ReadOptions) -> None:
    if not is_same(schema, _schema_of(options)):
        raise InvalidInput("schema", schema.simpleString()[:100], "it is fixed: omit it")
