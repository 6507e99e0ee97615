"""The columns of JSON values beside the raw value, in Spark; `headrace.tables.values` has the rule.

Whether a value fits is judged as in pipelines, by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipeline.frame.parse import PARSED, REASON, judged_value
from headrace.spark.pipeline.frame.source import schema_of
from headrace.spark.pipeline.run.spark_logs import quoted
from headrace.tables.values import ERROR_COLUMN, parse_value_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_value_columns(rows: DataFrame, value_schema: str | Mapping[str, Any]) -> DataFrame:
    """The rows with a column for each property of the schema, and the reason where a value does not fit."""
    schema = parse_value_schema(value_schema)
    judged = judged_value(rows, schema_of(spark_schema(schema)))
    fits = F.col(REASON).isNull()
    columns = [F.when(fits, F.col(f"{PARSED}.{quoted(field.name)}")).alias(field.column) for field in schema.fields]
    return judged.select(*rows.columns, *columns, F.col(REASON).alias(ERROR_COLUMN))
