"""The DataFrame that a pipeline reads: a topic, or anything else that Spark reads, as batch or stream."""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType, TimestampType

from headrace.core.errors import InvalidInput
from headrace.core.values.types import ERROR_COLUMN
from headrace.spark.pipeline.definition.description import Description, FormatSource, ServerSection, TopicSource
from headrace.spark.pipeline.frame.delta_table import read_delta
from headrace.spark.pipeline.run.spark_logs import analysis, first_line
from headrace.spark.reader.frame import option_text
from headrace.spark.reader.tables.table_frame import table_frame

# What a row of text that does not fit its schema is kept in.
CORRUPT: Final = "_headrace_corrupt"
EVENT_TIME: Final = "event_time"
_PLACE: Final = ("topic", "partition", "offset")
_SCHEMA_IN_READER: Final = frozenset({"json", "csv"})
_OPTIONS: Final = {
    "group": "group",
    "important": "important",
    "starting_offsets": "startingOffsets",
    "ending_offsets": "endingOffsets",
    "starting_timestamp": "startingTimestamp",
    "ending_timestamp": "endingTimestamp",
    "max_messages_per_trigger": "maxMessagesPerTrigger",
    "max_bytes_per_trigger": "maxBytesPerTrigger",
    "min_messages_per_trigger": "minMessagesPerTrigger",
    "max_trigger_delay_seconds": "maxTriggerDelaySeconds",
    "min_partitions": "minPartitions",
    "fail_on_data_loss": "failOnDataLoss",
    "decode": "decode",
    "on_undecodable": "onUndecodable",
    "columns": "columns",
}


def read_source(spark: SparkSession, description: Description) -> DataFrame:
    """The rows as they come, before any schema is applied to their values."""
    source = description.source
    reader: Any = spark.readStream if description.is_stream else spark.read
    with analysis("source", str(source) if isinstance(source, TopicSource) else source.format):
        if isinstance(source, TopicSource):
            options = _options(source, description)
            if description.is_stream:
                return spark.readStream.format("headrace").options(**options).load()
            return table_frame(spark, options)
        if source.format == "delta" and not description.is_stream:
            return read_delta(spark, source)
        return _format(reader, source)


def with_watermark(rows: DataFrame, source: TopicSource | FormatSource, place: str = "source") -> DataFrame:
    """The rows with their event time; if that is not a column of theirs, it is added as `event_time`."""
    if source.watermark is None or not rows.isStreaming:
        return rows
    with analysis(f"{place}.watermark", source.watermark):
        kind = rows.select(F.expr(source.watermark)).schema[0].dataType
        if not isinstance(kind, TimestampType):
            rule = f"it must be a timestamp, but is {kind.simpleString()}"
            raise InvalidInput(f"{place}.watermark", source.watermark, rule)
        name = source.watermark
        if name not in rows.columns:
            if EVENT_TIME in (column.lower() for column in rows.columns):
                rule = f"it is added as the column {EVENT_TIME}, which the rows already have: name that, or rename it"
                raise InvalidInput(f"{place}.watermark", source.watermark, rule)
            name, rows = EVENT_TIME, rows.withColumn(EVENT_TIME, F.expr(source.watermark))
        return rows.withWatermark(name, f"{int(source.watermark_delay_seconds * 1000)} milliseconds")


def _options(source: TopicSource, description: Description) -> dict[str, str]:
    """The options of the data source."""
    options = connection_options(description.server, description.url_of(source)) | source.selection
    given = {name.lower() for name in source.options}
    is_placed = source.starting_offsets is not None or source.starting_timestamp is not None
    if not is_placed and given.isdisjoint(("startingoffsets", "startingtimestamp")):
        options["startingOffsets"] = "earliest"
    for key, name in _OPTIONS.items():
        value = getattr(source, key)
        if value is not None:
            options[name] = option_text(value)
    needed = []
    if source.values == "typed":
        options["values"] = "typed"
        # Whether a value fits, and what is kept, or told, of one that does not.
        needed = [ERROR_COLUMN, *(_PLACE if description.dead_letters is None else ("value",))]
    if description.buries_undecodable:
        options["onUndecodable"] = "raw"
        needed.append("codec")
    if source.columns is not None and needed:
        options["columns"] = option_text(list(dict.fromkeys([*source.columns, *needed])))
    return options | source.options


def connection_options(server: ServerSection, url: str) -> dict[str, str]:
    """How the data source reaches a broker."""
    given = {"url": url, "token": server.token, "rootCertificates": server.ca}
    return {name: value for name, value in given.items() if value is not None}


def _format(reader: DataFrameReader | DataStreamReader, source: FormatSource) -> DataFrame:
    reader = reader.format(source.format).options(**source.options)
    if source.schema is not None and source.format != "text":
        schema = schema_of(source.schema)
        if source.format in _SCHEMA_IN_READER:
            schema = StructType([*schema.fields]).add(CORRUPT, "string")
            reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        reader = reader.schema(schema)
    return reader.load() if source.path is None else reader.load(source.path)


def schema_of(text: str) -> StructType:
    """The schema that a text in Spark's form describes: id BIGINT NOT NULL, name STRING."""
    try:
        schema = StructType.fromDDL(text)
        assert isinstance(schema, StructType)
    except AnalysisException as error:
        raise InvalidInput("source.schema", text[:100], first_line(error)) from None
    if not schema.fields:
        raise InvalidInput("source.schema", text[:100], "it must have at least one field")
    return schema
