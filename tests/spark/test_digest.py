"""Digests of rows: the same in any order and in any batches, and another one for any other rows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from headrace.spark.write.digest import digest_of, sum_of

MAPS = pa.map_(pa.string(), pa.binary())
TIMES = pa.timestamp("us", "UTC")


def rows(count: int = 200) -> pa.RecordBatch:
    """Rows of all kinds of columns, with nulls."""
    random = np.random.default_rng(7)
    numbers = [int(number) if number % 3 else None for number in random.integers(-9, 9, count)]
    text = [None if number is None else "x" * (number % 7) for number in numbers]
    columns = {
        "value": pa.array([f"{number}".encode() for number in range(count)]),
        "key": pa.array(text),
        "attributes": pa.array([{} if t is None else {"a": t.encode(), t: None} for t in text], MAPS),
        "partition": pa.array(numbers, pa.int32()),
        "created_at": pa.array([datetime(2020, 1, 1 + n % 9, tzinfo=UTC) for n in range(count)], TIMES),
        "codec": pa.nulls(count),
    }
    return pa.record_batch(columns)


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    batch = rows()
    shuffled = batch.take(pa.array(np.random.default_rng(1).permutation(batch.num_rows)))
    assert digest_of(shuffled.select(shuffled.schema.names[::-1])) == digest_of(batch)


@pytest.mark.parametrize("size", [1, 47, 48, 199])
def test_batches_add_up(size: int) -> None:
    batch = rows()
    parts = [batch.slice(first, size) for first in range(0, batch.num_rows, size)]
    assert sum_of(digest_of(part) for part in parts) == digest_of(batch)
    assert digest_of(batch.slice(0, 0)) == 0


def test_types_that_hold_the_same_bytes_are_alike() -> None:
    batch = rows()
    kinds = {"value": pa.large_binary(), "key": pa.binary(), "partition": pa.int64()}
    schema = pa.schema([(field.name, kinds.get(field.name, field.type)) for field in batch.schema])
    assert digest_of(batch.cast(schema)) == digest_of(batch)


def test_rows_that_differ_anywhere_have_other_digests() -> None:
    kinds = [
        ("value", [b"", b"a", b"b", None]),
        ("key", [b"a", b"", None]),
        ("partition", pa.array([0, 1, None], pa.int32())),
        ("attributes", pa.array([{}, {"a": b"1"}, {"1": b"a"}, {"a": None}, {"a": b"1", "b": b"1"}, None], MAPS)),
    ]
    made = [
        pa.record_batch({name: pa.array(values)}).slice(at, 1) for name, values in kinds for at in range(len(values))
    ]
    digests = [digest_of(one) for one in made]
    assert len(set(digests)) == len(made)
    # Neither do any two rows add up to two others.
    sums = [sum_of(pair) for pair in combinations(digests, 2)]
    assert len(set(sums)) == len(sums)


def test_bytes_that_change_places_are_seen() -> None:
    """FNV itself adds up: the sums of `ax` and `by`, and of `ay` and `bx`, could be one."""
    one, other = (
        pa.record_batch({"value": [f"{x}{y}".encode() for x, y in zip("abcdefgh", ends, strict=True)]})
        for ends in ("abcdefgh", "badcfehg")
    )
    assert digest_of(one) != digest_of(other)
