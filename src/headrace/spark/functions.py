"""Headrace's hashing as Spark functions: the same kernels that choose partitions in the broker.

from headrace.spark.functions import fnv1a64, partition_for
df.repartition(8, partition_for("key", 8))
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.functions import arrow_udf

from headrace.core.checks import check_partitions
from headrace.core.hashes.columns import fnv1a64 as hashes_of


def fnv1a64(column: Column | str) -> Column:
    """FNV-1a 64 of text or bytes, as a bigint with the same bits; null of null."""

    hashes = arrow_udf(hash_array, "bigint")  # type: ignore[call-overload]
    result: Column = hashes(_column(column))
    return result


def partition_for(key: Column | str, partitions: int) -> Column:
    """The partition of a key in a topic with `partitions` partitions; null if the key is null or empty."""
    check_partitions(partitions)

    choose = arrow_udf(partition_array, "int")  # type: ignore[call-overload]
    result: Column = choose(_column(key), lit(partitions))
    return result


def hash_array(values: pa.Array) -> pa.Array:
    """FNV-1a 64 of a whole column of text or bytes."""
    return pc.if_else(values.is_valid(), pa.array(hashes_of(_bytes(values)).view("int64")), None)


def partition_array(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    """The partition of each key of a column in a topic with `partitions` partitions."""
    values = _bytes(keys)
    chosen = hashes_of(values) % partitions.to_numpy(zero_copy_only=False).astype(np.uint64)
    has_key = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    return pc.if_else(has_key, pa.array(chosen.astype(np.int32)), None)


def _column(given: Column | str) -> Column:
    return col(given) if isinstance(given, str) else given


def _bytes(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
