"""Columns from lists are what Arrow makes of them, and need no pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.lists import (
    binaries,
    booleans,
    maps,
    masked,
    numbers,
    plain_values,
    repeated,
    whole_numbers,
)
from headrace.core.messages import ATTRIBUTES

BYTES = st.none() | st.binary(max_size=20)


@given(st.lists(BYTES, max_size=40))
def test_bytes(values: list[bytes | None]) -> None:
    made = binaries(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


@given(st.text(max_size=10), st.integers(0, 20))
def test_the_same_text_in_every_row(text: str, rows: int) -> None:
    made = repeated(text, rows)
    made.validate(full=True)
    assert made.equals(pa.array([text] * rows, pa.string()))


@given(st.lists(st.none() | st.dictionaries(st.text(max_size=5), BYTES, max_size=4), max_size=20))
def test_maps(values: list[dict[str, bytes | None] | None]) -> None:
    made = maps(values, ATTRIBUTES)
    made.validate(full=True)
    pairs = [None if value is None else list(value.items()) for value in values]
    assert made.to_pylist() == pa.array(pairs, ATTRIBUTES).to_pylist()


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_whole_numbers(values: list[int | None]) -> None:
    made = whole_numbers(pa.int64(), values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int64()))


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError):
        whole_numbers(pa.int32(), [1, 1 << 31])


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_arrays_of_numpy(rows: list[tuple[int, bool]]) -> None:
    values = np.array([number for number, _ in rows], np.int32)
    flags = np.array([flag for _, flag in rows], np.bool_)
    assert masked(pa.int32(), values, flags).equals(pa.array(values, mask=flags))
    assert booleans(flags).equals(pa.array(flags))
    column = numbers(pa.int32(), values)
    assert plain_values(column, np.int32).tolist() == values.tolist()
    assert plain_values(column.slice(len(rows) // 2), np.int32).tolist() == values[len(rows) // 2 :].tolist()


def test_the_values_of_a_column_without_memory() -> None:
    empty = pa.Array.from_buffers(pa.int32(), 0, [None, None])
    assert plain_values(empty, np.int32).tolist() == []


def test_none_of_it_imports_pandas() -> None:
    program = """
import sys
import numpy as np, pyarrow as pa
from headrace.core.lists import *
from headrace.core.messages import ATTRIBUTES
binaries([b"a", None]), repeated("a", 2), maps([{"a": b"b"}, None], ATTRIBUTES), whole_numbers(pa.int64(), [1, None])
masked(pa.int32(), np.arange(2, dtype=np.int32), np.array([True, False])), booleans(np.array([True]))
plain_values(numbers(pa.int32(), np.arange(2, dtype=np.int32)), np.int32)
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
