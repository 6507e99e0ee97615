"""The DataFrame that a pipeline reads: a topic, or anything else that Spark reads, as batch or stream."""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.description import Description, FormatSource, Server, TopicSource
from headrace.spark.pipeline.spark_logs import analysis, first_line

# What a row of text that does not fit its schema is kept in.
CORRUPT: Final = "_headrace_corrupt"
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
    with analysis("source", source.topic if isinstance(source, TopicSource) else source.format):
        if isinstance(source, TopicSource):
            return _topic(reader, source, description)
        return _format(reader, source)


def _topic(reader: DataFrameReader | DataStreamReader, source: TopicSource, description: Description) -> DataFrame:
    options = connection_options(description.server, description.url_of(source)) | {"topic": source.topic}
    if source.starting_offsets is None and source.starting_timestamp is None:
        options["startingOffsets"] = "earliest"
    for key, name in _OPTIONS.items():
        value = getattr(source, key)
        if value is not None:
            options[name] = _text(value)
    if description.buries_undecodable:
        options["onUndecodable"] = "raw"
        if source.columns is not None:
            options["columns"] = _text(list(dict.fromkeys([*source.columns, "codec"])))
    return reader.format("headrace").options(**(options | source.options)).load()


def connection_options(server: Server, url: str) -> dict[str, str]:
    """How the data source reaches a broker."""
    given = {"url": url, "token": server.token, "rootCertificates": server.ca}
    return {name: value for name, value in given.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


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
