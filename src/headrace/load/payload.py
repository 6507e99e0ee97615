"""Messages of a load as Arrow, whole batches at a time: each value begins with its producer, its number and its time.

The time is that of the machine's monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.hashes.columns import byte_rows
from headrace.load.load import VALUE_BYTES_MIN

Numbers = npt.NDArray[np.int64]

_KEY_BYTES: Final = 12
_HEAD: Final = VALUE_BYTES_MIN // 8


class Heads(NamedTuple):
    """The fields in the values of a batch."""

    producers: Numbers
    numbers: Numbers
    sent_ns: Numbers


class Payload:
    """The messages of one producer."""

    def __init__(self, producer: int, value_bytes: int, keys: int, rows: int) -> None:
        self._producer = producer
        self._keys = keys
        # What follows the head is noise of which nothing can be compressed away, the same in every batch.
        self._noise = np.random.default_rng(producer).integers(0, 256, (rows, value_bytes), np.uint8)

    def batch(self, first: int, rows: int, now_ns: int) -> pa.RecordBatch:
        """Messages from a number on."""
        numbers = np.arange(first, first + rows, dtype=np.int64)
        columns = {"value": _binary(self._values(numbers, now_ns))}
        if self._keys:
            columns["key"] = _binary(_digits(numbers % self._keys))
        return pa.record_batch(columns)

    def _values(self, numbers: Numbers, now_ns: int) -> npt.NDArray[np.uint8]:
        values = self._noise[: len(numbers)].copy()
        heads = np.empty((len(numbers), _HEAD), np.int64)
        heads[:, 0], heads[:, 1], heads[:, 2] = self._producer, numbers, now_ns
        values[:, :VALUE_BYTES_MIN] = heads.view(np.uint8)
        return values


def have_heads(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are long enough to be of a load."""
    _, _, lengths = byte_rows(values)
    return lengths >= VALUE_BYTES_MIN


def heads_of(values: pa.Array) -> Heads:
    """The fields in the values, which must be long enough."""
    data, starts, _ = byte_rows(values)
    heads = data[starts[:, None] + np.arange(VALUE_BYTES_MIN)].view(np.int64)
    return Heads(heads[:, 0], heads[:, 1], heads[:, 2])


def _digits(numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Numbers as text of one width."""
    powers = 10 ** np.arange(_KEY_BYTES - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes, all of one length, as a binary column."""
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
