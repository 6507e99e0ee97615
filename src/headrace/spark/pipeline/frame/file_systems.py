"""Whether this Spark has a file system for each URL of a pipeline: said before a run, with what is missing.

Tables that Headrace commits are in directories or, without Spark's file system, on S3: `definition/check.py` says
which. These are the others, and sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.spark.file_systems import missing_file_system
from headrace.spark.pipeline.definition.description import Description, FormatSource, TableSink
from headrace.spark.pipeline.definition.paths import is_url


def check_file_systems(spark: SparkSession, description: Description) -> None:
    """Raise for the first URL that Spark cannot use, whatever is there."""
    for field, path in _urls(description):
        try:
            spark.read.text(path)
        except (PySparkException, Py4JJavaError) as error:
            missing = missing_file_system(field, path, error)
            if missing is not None:
                raise missing from None


def _urls(description: Description) -> Iterator[tuple[str, str]]:
    sources = {"source": description.source} | {f"sources.{name}": each for name, each in description.sources.items()}
    sinks = {"sink": description.sink} | {f"sinks.{name}": each for name, each in description.sinks.items()}
    for place, part in (sources | sinks).items():
        if isinstance(part, TableSink) and part.is_table:
            continue
        if isinstance(part, FormatSource | TableSink) and part.path is not None and is_url(part.path):
            yield f"{place}.path", part.path
