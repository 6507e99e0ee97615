"""Lines of a file as Arrow columns, in batches: no Python runs per line.

Available input is returned soon, so that interactive typing works; an incomplete batch waits briefly for more.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_READ_BYTES: Final = 1 << 20
# A batch also ends at this size, because request bodies are limited.
_BATCH_BYTES: Final = 8 << 20
_MORE_INPUT_SECONDS: Final = 0.05
_NEWLINE: Final = 10


def batches_of(source: int, size: int) -> Iterator[pa.Array]:
    """The lines of an open file, in batches of the lines available, at most `size`."""
    text = rest = b""
    lines = 0
    while chunk := os.read(source, _READ_BYTES):
        whole, newline, unfinished = (rest + chunk).rpartition(b"\n")
        text, rest = text + whole + newline, unfinished
        lines += whole.count(b"\n") + len(newline)
        if lines >= size:
            begin = 0
            # Searched once: small batches of a large text would scan it repeatedly.
            for end in (np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)[size - 1 :: size] + 1).tolist():
                yield column_of(text[begin:end])
                begin = end
            text, lines = text[begin:], lines % size
        if lines and (len(text) >= _BATCH_BYTES or not _has_more(source)):
            yield column_of(text)
            text, lines = b"", 0
    if rest:
        text += rest + b"\n"
    if text:
        yield column_of(text)


def column_of(text: bytes) -> pa.Array:
    """Complete lines as a column, without line ends."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[data != _NEWLINE])]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def split_keys(lines: pa.Array, separator: bytes) -> tuple[pa.Array, pa.Array]:
    """Split lines into keys and values; a line without the separator has no key."""
    parts = pc.split_pattern(lines, separator, max_splits=1)
    first = np.asarray(parts.offsets)[:-1]
    has_key = np.asarray(pc.list_value_length(parts)) == 2
    keys = parts.values.take(pa.array(first, mask=~has_key))
    return keys, parts.values.take(pa.array(first + has_key))


def _has_more(source: int) -> bool:
    return bool(select.select([source], [], [], _MORE_INPUT_SECONDS)[0])
