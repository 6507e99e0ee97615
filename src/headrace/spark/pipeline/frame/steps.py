"""The steps between source and sink: SQL over views, or functions of a DataFrame.

The rows that come in are the view `source`; each step is a view of its own name, which later steps may use. With a
topic as source there is the view `partitions` too: one row per partition, with its offsets. The last step is what is
written. SQL may call the broker's own `fnv1a64(binary)`, `murmur2(binary)` and `partition_for(binary, partitions,
key_hash)`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from headrace.core.errors import InvalidInput
from headrace.spark.functions import hash_array, murmur2_array, partition_array
from headrace.spark.pipeline.definition.description import Description, Step, TopicSource
from headrace.spark.pipeline.frame.source import connection_options
from headrace.spark.pipeline.run.spark_logs import analysis


def run_steps(
    spark: SparkSession, rows: DataFrame, description: Description, partitions: DataFrame | None = None
) -> DataFrame:
    """The rows after all steps.

    partitions: the view of this name; without it the broker is asked, if a step uses the view.
    """
    register_functions(spark)
    rows.createOrReplaceTempView("source")
    if partitions is not None:
        partitions.createOrReplaceTempView("partitions")
    elif isinstance(description.source, TopicSource):
        _partitions_of(spark, description, description.source).createOrReplaceTempView("partitions")
    for number, step in enumerate(description.steps):
        rows = _run(spark, rows, step, f"steps.{number}", description.directory)
        rows.createOrReplaceTempView(step.name)
    return rows


def register_functions(spark: SparkSession) -> None:
    """Let SQL of a session call the broker's own hashing, over whole columns."""
    spark.udf.register("fnv1a64", arrow_udf(hash_array, "bigint"))  # type: ignore[call-overload]
    spark.udf.register("murmur2", arrow_udf(murmur2_array, "int"))  # type: ignore[call-overload]
    spark.udf.register("partition_for", arrow_udf(partition_array, "int"))  # type: ignore[call-overload]


def _run(spark: SparkSession, rows: DataFrame, step: Step, place: str, directory: str | None) -> DataFrame:
    if step.sql is not None:
        with analysis(f"{place}.sql", step.sql):
            return spark.sql(step.sql)
    assert step.function is not None
    function = _function(step.function, place, directory)
    with analysis(f"{place}.function", step.function):
        try:
            made = function(rows)
        except (AnalysisException, InvalidInput):
            raise
        except Exception as error:
            told = f"it failed: {type(error).__name__}: {error}"
            raise InvalidInput(f"{place}.function", step.function, told) from error
    if not isinstance(made, DataFrame):
        raise InvalidInput(
            f"{place}.function", step.function, f"it must return a DataFrame, but returned {type(made).__name__}"
        )
    return made


def _function(name: str, place: str, directory: str | None) -> Callable[[DataFrame], Any]:
    module, _, function = name.partition(":")
    if directory is not None and directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        imported = importlib.import_module(module)
        found: Callable[[DataFrame], Any] = getattr(imported, function)
        if directory is not None and (imported.__file__ or "").startswith(f"{directory}/"):
            # Python workers of a session that is already running do not look there: its functions travel whole.
            cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{place}.function", name, f"it cannot be loaded: {error}") from None
    return found


def _partitions_of(spark: SparkSession, description: Description, source: TopicSource) -> DataFrame:
    options = connection_options(description.server, description.url_of(source))
    reader = spark.read.format("headrace").options(**options, **source.selection, metadata="partitions")
    return reader.load()
