"""Headrace's own hashing as functions of Spark: the very kernels that choose partitions in the broker.

from headrace.spark.functions import fnv1a64, partition_for
df.repartition(8, partition_for("key", 8))
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf

from headrace.core.errors import InvalidInput
from headrace.core.hashing import fnv1a64 as hashes_of
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.routing import KeyRows


def fnv1a64(column: Column | str) -> Column:
    """FNV-1a 64 of text or bytes, as a bigint with the same bits; null of null."""

    def hashed(values: pa.Array) -> pa.Array:
        found = pa.array(hashes_of(_bytes(values)).view("int64"), pa.int64())
        return pc.if_else(values.is_valid(), found, None)

    hashes = arrow_udf(hashed, "bigint")  # type: ignore[call-overload]
    result: Column = hashes(_column(column))
    return result


def partition_for(key: Column | str, partitions: int) -> Column:
    """The partition that a key chooses in a topic of so many; null for no key, which is null or empty."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput("partitions", repr(partitions)[:100], f"it must be 1 to {PARTITIONS_MAX}")

    def chosen(values: pa.Array) -> pa.Array:
        keys = KeyRows.of(pa.record_batch({"key": _bytes(values)}))
        return pc.if_else(pa.array(keys.keyed), pa.array(keys.partitions(partitions), pa.int32()), None)

    choose = arrow_udf(chosen, "int")  # type: ignore[call-overload]
    result: Column = choose(_column(key))
    return result


def _column(given: Column | str) -> Column:
    return col(given) if isinstance(given, str) else given


def _bytes(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
