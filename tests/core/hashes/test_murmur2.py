"""Murmur2 of columns, against its definition and the one of a client of Kafka."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as clients_murmur2

from headrace.core.hashes.columns import byte_rows
from headrace.core.hashes.murmur2 import murmur2_of, murmur2_rows, partitions_of

# Length of a key that is worked on by bit planes, and of one with more than a chunk of words.
LONG, VERY_LONG = 1_000, 150_001


def keys(*lengths: int) -> list[bytes]:
    random = np.random.default_rng(7)
    return [random.integers(0, 256, length, np.uint8).tobytes() for length in lengths]


def column(values: list[bytes | None]) -> pa.Array:
    return pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))


def test_the_definition_is_that_of_clients() -> None:
    for key in keys(*range(20), 100, LONG):
        assert murmur2_of(key) == clients_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    "lengths",
    [range(40), [0], [1], [3, 3, 3], [256, 255, 259, 260, 8], [LONG, 2, LONG + 3, 0], [VERY_LONG, 5], [200] * 500, []],
)
def test_columns_agree_with_the_definition(lengths: list[int]) -> None:
    values = keys(*lengths)
    assert murmur2_rows(*byte_rows(column([*values]))).tolist() == [murmur2_of(value) for value in values]


def test_partitions_are_those_of_clients() -> None:
    values = keys(*range(1, 60))
    chosen = partitions_of(*byte_rows(column([*values])), partitions=7)
    assert chosen.tolist() == [(clients_murmur2(value) & 0x7FFFFFFF) % 7 for value in values]
    assert chosen.dtype == np.int32
