"""Arrow columns from Python lists, and lists from columns, without pandas.

The first `pa.array`, `pa.scalar` or `Array.to_numpy` of a process imports pandas where it is installed, to know its
types: a quarter of a second, which the first message of a client would pay. What is made of single messages goes
through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.generic)


def binaries(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A column of bytes, or of text that is UTF-8."""
    sizes = [0 if value is None else len(value) for value in values]
    offsets = np.fromiter(chain((0,), accumulate(sizes)), np.int32, len(sizes) + 1)
    data = b"".join([value for value in values if value is not None])
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(values), buffers)


def repeated(text: str, rows: int) -> pa.Array:
    """A column in which every row has the same text."""
    data = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def maps(values: Sequence[Mapping[str, bytes | None] | None], kind: pa.DataType) -> pa.Array:
    """A column of maps from text to bytes."""
    known = [value or {} for value in values]
    offsets = np.fromiter(chain((0,), accumulate(map(len, known))), np.int32, len(known) + 1)
    keys = binaries([key.encode() for value in known for key in value], pa.string())
    items = binaries([item for value in known for item in value.values()])
    is_null = np.array([value is None for value in values], np.bool_)
    starts = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    mask = booleans(is_null) if is_null.any() else None
    return pa.MapArray.from_arrays(starts, keys, items, type=kind, mask=mask)


def whole_numbers(kind: pa.DataType, values: Sequence[int | None]) -> pa.Array:
    """A column of whole numbers; OverflowError for one that does not fit."""
    plain = np.array([0 if value is None else value for value in values], kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(plain)])


def numbers(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    """An array without nulls over the memory of these values."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def masked(kind: pa.DataType, values: npt.NDArray[np.generic], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """A column over the memory of these values, without some of them."""
    validity = pa.py_buffer(_bits(~is_null)) if is_null.any() else None
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def booleans(values: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of truth values, such as a filter takes."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(_bits(values))])


def plain_values(column: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    """The values of a column of numbers without nulls, over its memory."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * np.dtype(kind).itemsize)


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    if None not in values:
        return None
    return pa.py_buffer(_bits(np.fromiter((value is not None for value in values), np.bool_, len(values))))


def _bits(values: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(values, bitorder="little")
