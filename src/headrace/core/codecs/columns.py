"""Compressing and decompressing the values of messages, for clients: the broker stores what it is given.

Each value is compressed by itself, and its codec's name travels with it in the column `codec`. This module owns the
work on whole columns; `gzip`, `zstd` and `lzop` beside it each own the format of one value. Rows that are null or
`raw` cost nothing per row, and stay as they are.

Nothing is trusted on the way back: a value that its codec does not accept to the last byte, or that would grow
above a limit, is refused before more memory is taken than that limit and one piece of the value; `lzop` says what a
piece of it can cost. `decode` refuses the whole column for one such value; `decode_known` decodes the others and says
which ones these are.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.codecs import gzip, lzop, zstd
from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.hashes.columns import byte_rows
from headrace.core.limits import DECODED_MESSAGE_BYTES_MAX
from headrace.core.topics.settings import CODECS

# What the 32-bit offsets of Arrow's binary type can address.
COLUMN_BYTES_MAX: Final = (1 << 31) - 1

_COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "lzop": lzop.compress,
}
_DECOMPRESS: Final[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": gzip.decompress,
    "zstd": zstd.decompress,
    "lzop": lzop.decompress,
}
_KNOWN: Final = f"known codecs are {', '.join(CODECS)}"


def encode(values: pa.Array, codec: str) -> pa.Array:
    """The values compressed by one codec; nulls stay null."""
    _check_values(values)
    if codec == "raw":
        return values
    if codec not in _COMPRESS:
        raise InvalidInput("codec", repr(codec), _KNOWN)
    valid = values.is_valid()
    packed = [_COMPRESS[codec](value) for value in values.filter(valid).to_pylist()]
    _check_fits(sum(map(len, packed)) <= COLUMN_BYTES_MAX, len(values), COLUMN_BYTES_MAX)
    return _replace(values, valid, packed)


def compress(value: bytes, codec: str) -> bytes:
    """One value compressed, for those who send message by message."""
    if codec == "raw":
        return value
    if codec not in _COMPRESS:
        raise InvalidInput("codec", repr(codec), _KNOWN)
    return _COMPRESS[codec](value)


def decode(
    values: pa.Array,
    codecs: pa.Array | None,
    bytes_max: int = DECODED_MESSAGE_BYTES_MAX,
    column_bytes_max: int = COLUMN_BYTES_MAX,
) -> pa.Array:
    """The values decompressed, each by the codec in its row; a null codec means raw, and null values stay null.

    bytes_max: what one value may grow to.
    column_bytes_max: what the whole column may grow to.
    """
    known = decode_known(values, codecs, bytes_max, column_bytes_max, until_fault=True)
    if known.faults:
        raise known.faults[0]
    _check_fits(known.rows == len(values), len(values), column_bytes_max)
    return known.values


@dataclass(frozen=True, slots=True)
class Decoded:
    """As much of a column as could be decoded.

    values: the first rows; those at fault are as they were.
    faults: what is wrong with which row, in their order.
    """

    values: pa.Array
    faults: list[InvalidMessage]

    @property
    def rows(self) -> int:
        """How many rows were decoded: all, or those before an undecodable one or before they grow too large."""
        return len(self.values)


def decode_known(
    values: pa.Array,
    codecs: pa.Array | None,
    bytes_max: int = DECODED_MESSAGE_BYTES_MAX,
    column_bytes_max: int = COLUMN_BYTES_MAX,
    until_fault: bool = False,
) -> Decoded:
    """The values decompressed as `decode` does, but with those that cannot be left as they are, and named.

    Where the column would grow above its limit it ends before, after one row at least. With `until_fault` it ends
    before the first row at fault, which is the only one named.
    """
    _check_values(values)
    if codecs is None:
        return Decoded(values, [])
    _check_codecs(codecs, len(values))
    compressed = pc.and_(values.is_valid(), pc.fill_null(pc.not_equal(codecs, _raw()), False))
    if not pc.any(compressed).as_py():
        return Decoded(values, [])
    return _decoded(values, codecs, compressed, (bytes_max, column_bytes_max), until_fault)


@functools.cache
def _raw() -> pa.Scalar:
    return pa.scalar("raw", pa.string())


def _check_values(values: pa.Array) -> None:
    if not isinstance(values, pa.BinaryArray):
        raise InvalidInput("value", f"a {type(values).__name__}", "it must be an Arrow array of type binary")


def _check_fits(fits: bool, rows: int, column_bytes_max: int) -> None:
    if not fits:
        rule = f"a column may have {column_bytes_max}: take fewer rows at a time"
        raise InvalidInput("value", f"{rows} rows of too many bytes together", rule)


def _check_codecs(codecs: pa.Array, rows: int) -> None:
    if not isinstance(codecs, pa.StringArray):
        raise InvalidInput("codec", f"a {type(codecs).__name__}", "it must be an Arrow array of type string")
    if len(codecs) != rows:
        raise InvalidInput("codec", f"{len(codecs)} rows", f"it needs one for each of the {rows} values")


def _decoded(
    values: pa.Array, codecs: pa.Array, compressed: pa.Array, limits: tuple[int, int], until_fault: bool
) -> Decoded:
    bytes_max, column_bytes_max = limits
    rows = np.flatnonzero(compressed.to_numpy(zero_copy_only=False)).tolist()
    room, end = column_bytes_max, len(values)
    replacements: list[bytes] = []
    faults: list[InvalidMessage] = []
    columns = (values.filter(compressed).to_pylist(), codecs.filter(compressed).to_pylist())
    for row, value, codec in zip(rows, *columns, strict=True):
        try:
            plain = _plain(value, codec, bytes_max)
        except ValueError as error:
            faults.append(_fault(value, codec, str(error), row))
            plain = value
        except InvalidInput:
            # The library is missing, which is not the fault of the message; those before it are given all the same.
            if row == 0:
                raise
            end = row
        else:
            room -= len(plain)
        if end == row or (room < 0 and row > 0) or (faults and until_fault):
            end = row
            break
        replacements.append(plain)
    return _cut(values, compressed, rows, replacements, faults, end, column_bytes_max)


def _fault(value: bytes, codec: str, rule: str, row: int) -> InvalidMessage:
    if codec not in _DECOMPRESS:
        return InvalidMessage("codec", repr(codec), rule, row)
    return InvalidMessage("value", f"{codec} of {len(value)} bytes", rule, row)


def _cut(
    values: pa.Array,
    compressed: pa.Array,
    rows: list[int],
    replacements: list[bytes],
    faults: list[InvalidMessage],
    end: int,
    column_bytes_max: int,
) -> Decoded:
    """The rows up to an end that are within the limit together, one at least unless the first is at fault."""
    lengths = byte_rows(values)[2].astype(np.int64)
    lengths[rows[: len(replacements)]] = [len(each) for each in replacements]
    fitting = int(np.searchsorted(np.cumsum(lengths[:end]), column_bytes_max, "right"))
    end = min(end, max(1, fitting))
    count = bisect_left(rows, end)
    known = [fault for fault in faults if fault.row <= end]
    return Decoded(_replace(values.slice(0, end), compressed.slice(0, end), replacements[:count]), known)


def _plain(value: bytes, codec: str, bytes_max: int) -> bytes:
    if codec not in _DECOMPRESS:
        raise ValueError(_KNOWN)
    if not value:
        raise ValueError("even an empty value has bytes once it is compressed")
    pieces = []
    room = bytes_max
    for piece in _DECOMPRESS[codec](value):
        room -= len(piece)
        if room < 0:
            raise ValueError(f"it decompresses to more than {bytes_max} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _replace(values: pa.Array, rows: pa.Array, by: Iterable[bytes]) -> pa.Array:
    """The values with the marked rows replaced."""
    return pc.replace_with_mask(values, rows, pa.array(by, pa.binary()))
