"""Headrace's hashing as Spark functions: the same kernels that choose partitions in the broker.

from headrace.spark.functions import fnv1a64, murmur2, partition_for
df.repartition(8, partition_for("key", 8))

Which hash chooses the partition of a key is a setting of the topic, `key_hash`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.functions import arrow_udf

from headrace.core.checks import check_partitions
from headrace.core.errors import InvalidInput
from headrace.core.hashes.columns import byte_rows
from headrace.core.hashes.columns import fnv1a64 as fnv1a64_hashes
from headrace.core.hashes.murmur2 import POSITIVE, murmur2_rows
from headrace.core.topics.settings import KeyHash

# What is divided by the number of partitions, by `key_hash`.
_DIVIDENDS: Final[dict[str, Callable[[pa.Array], npt.NDArray[Any]]]] = {
    "fnv1a": fnv1a64_hashes,
    "murmur2": lambda keys: murmur2_rows(*byte_rows(keys)) & POSITIVE,
}


def fnv1a64(column: Column | str) -> Column:
    """FNV-1a 64 of text or bytes, as a bigint with the same bits; null of null."""

    hashes = arrow_udf(hash_array, "bigint")  # type: ignore[call-overload]
    result: Column = hashes(_column(column))
    return result


def murmur2(column: Column | str) -> Column:
    """Murmur2 of text or bytes as Kafka's clients compute it, as an int with the same bits; null of null."""

    hashes = arrow_udf(murmur2_array, "int")  # type: ignore[call-overload]
    result: Column = hashes(_column(column))
    return result


def partition_for(key: Column | str, partitions: int, key_hash: KeyHash = "fnv1a") -> Column:
    """The partition of a key in a topic with `partitions` partitions; null if the key is null or empty.

    key_hash: the setting of the topic, `client.describe_topic(topic).settings.key_hash`; `murmur2` for topics that were
        created over Kafka.
    """
    check_partitions(partitions)
    _check_key_hash(key_hash)

    choose = arrow_udf(partition_array, "int")  # type: ignore[call-overload]
    result: Column = choose(_column(key), lit(partitions), lit(key_hash))
    return result


def hash_array(values: pa.Array) -> pa.Array:
    """FNV-1a 64 of a whole column of text or bytes."""
    return pc.if_else(values.is_valid(), pa.array(fnv1a64_hashes(_bytes(values)).view("int64")), None)


def murmur2_array(values: pa.Array) -> pa.Array:
    """Murmur2 of a whole column of text or bytes."""
    return pc.if_else(values.is_valid(), pa.array(murmur2_rows(*byte_rows(_bytes(values))).view("int32")), None)


def partition_array(keys: pa.Array, partitions: pa.Array, *key_hash: pa.Array) -> pa.Array:
    """The partition of each key of a column, in a topic with so many partitions and this setting `key_hash`."""
    values, chosen = _bytes(keys), np.zeros(len(keys), np.int32)
    counts = partitions.to_numpy(zero_copy_only=False)
    kinds = key_hash[0] if key_hash else pa.array(["fnv1a"] * len(keys))
    for kind in kinds.unique().to_pylist():
        rows = np.asarray(pc.fill_null(pc.equal(kinds, kind), False))
        dividends = _DIVIDENDS[_check_key_hash(kind)](values.filter(pa.array(rows)))
        chosen[rows] = dividends % counts[rows].astype(dividends.dtype)
    has_key = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    return pc.if_else(has_key, pa.array(chosen), None)


def _check_key_hash(key_hash: object) -> str:
    if not isinstance(key_hash, str) or key_hash not in _DIVIDENDS:
        raise InvalidInput("key_hash", repr(key_hash)[:100], f"it must be one of {', '.join(get_args(KeyHash))}")
    return key_hash


def _column(given: Column | str) -> Column:
    return col(given) if isinstance(given, str) else given


def _bytes(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
