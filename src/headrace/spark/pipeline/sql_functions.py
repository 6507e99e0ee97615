"""Functions that SQL of a pipeline may call beside Spark's own: the broker's hashing, over whole columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from headrace.core.hashing import fnv1a64


def register(spark: SparkSession) -> None:
    """Make them known to a session."""
    spark.udf.register("fnv1a64", arrow_udf(_hashes, "bigint"))  # type: ignore[call-overload]
    spark.udf.register("partition_for", arrow_udf(_partitions, "int"))  # type: ignore[call-overload]


def _hashes(values: pa.Array) -> pa.Array:
    """FNV-1a 64 of text or bytes, as a bigint with the same bits."""
    return pc.if_else(values.is_valid(), pa.array(fnv1a64(_bytes(values)).view("int64")), None)


def _partitions(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """The partition that a key chooses in a topic of so many; none for no key, which is null or empty."""
    values = _bytes(keys)
    chosen = fnv1a64(values) % partitions.to_numpy(zero_copy_only=False).astype(np.uint64)
    has_key = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    return pc.if_else(has_key, pa.array(chosen.astype(np.int32)), None)


def _bytes(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
