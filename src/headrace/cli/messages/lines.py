"""Lines of a file as Arrow columns, in batches: no Python runs per line, if the delimiter is a single byte.

Available input is returned soon, so that interactive typing works; an incomplete batch waits briefly for more.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NEWLINE: Final = b"\n"

_READ_BYTES: Final = 1 << 20
# A batch also ends at this size, because requests are limited.
_BATCH_BYTES: Final = 8 << 20
_MORE_INPUT_SECONDS: Final = 0.05


def batches_of(source: int, size: int, delimiter: bytes = NEWLINE) -> Iterator[pa.Array]:
    """The lines of an open file, in batches of the lines available, at most `size`."""
    text = rest = b""
    lines = 0
    while chunk := os.read(source, _READ_BYTES):
        whole, end, unfinished = (rest + chunk).rpartition(delimiter)
        text, rest = text + whole + end, unfinished
        lines += whole.count(delimiter) + bool(end)
        if lines >= size:
            begin = 0
            # Searched once: small batches of a large text would scan it repeatedly.
            for cut in _ends(text, delimiter)[size - 1 :: size].tolist():
                yield column_of(text[begin:cut], delimiter)
                begin = cut
            text, lines = text[begin:], lines % size
        if lines and (len(text) >= _BATCH_BYTES or not _has_more(source)):
            yield column_of(text, delimiter)
            text, lines = b"", 0
    if rest:
        text += rest + delimiter
    if text:
        yield column_of(text, delimiter)


def whole_of(source: int) -> pa.Array:
    """All bytes of an open file as one value."""
    parts = []
    while chunk := os.read(source, _READ_BYTES):
        parts.append(chunk)
    return pa.array([b"".join(parts)], pa.binary())


def column_of(text: bytes, delimiter: bytes = NEWLINE) -> pa.Array:
    """Complete lines as a column, without their ends."""
    if len(delimiter) > 1:
        return pa.array(text.removesuffix(delimiter).split(delimiter), pa.binary())
    data = np.frombuffer(text, np.uint8)
    is_end = data == delimiter[0]
    ends = np.flatnonzero(is_end)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[~is_end])]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def split_keys(lines: pa.Array, separator: bytes) -> tuple[pa.Array, pa.Array]:
    """Split lines into keys and values; a line without the separator has no key."""
    parts = pc.split_pattern(lines, separator, max_splits=1)
    first = np.asarray(parts.offsets)[:-1]
    has_key = np.asarray(pc.list_value_length(parts)) == 2
    keys = parts.values.take(pa.array(first, mask=~has_key))
    return keys, parts.values.take(pa.array(first + has_key))


def _ends(text: bytes, delimiter: bytes) -> npt.NDArray[np.int64]:
    """The places behind each delimiter."""
    if len(delimiter) > 1:
        return np.array([found.end() for found in re.finditer(re.escape(delimiter), text)], np.int64)
    return np.flatnonzero(np.frombuffer(text, np.uint8) == delimiter[0]) + 1


def _has_more(source: int) -> bool:
    return bool(select.select([source], [], [], _MORE_INPUT_SECONDS)[0])
