"""Compressing and decompressing the values of messages, for clients: the broker stores what it is given.

Each value is compressed by itself, and its codec's name travels with it in the column `codec`. This module owns the
work on whole columns; `gzip`, `zstd` and `lzop` beside it each own the format of one value. Rows that are null or
`raw` cost nothing per row, and stay as they are.

Nothing is trusted on the way back: a value that its codec does not accept to the last byte, or that would grow
above a limit, is refused before more memory is taken than that limit and one piece of the value; `lzop` says what a
piece of it can cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.codecs import gzip, lzop, zstd
from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.hashing import byte_rows
from headrace.core.limits import MESSAGE_BYTES_MAX
from headrace.core.settings import CODECS

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
    return _replace(values, valid, map(_COMPRESS[codec], values.filter(valid).to_pylist()), COLUMN_BYTES_MAX)


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
    bytes_max: int = MESSAGE_BYTES_MAX,
    column_bytes_max: int = COLUMN_BYTES_MAX,
) -> pa.Array:
    """The values decompressed, each by the codec in its row; a null codec means raw, and null values stay null.

    bytes_max: what one value may grow to.
    column_bytes_max: what the whole column may grow to.
    """
    _check_values(values)
    if codecs is None:
        return values
    _check_codecs(codecs, len(values))
    compressed = pc.and_(values.is_valid(), pc.fill_null(pc.not_equal(codecs, _raw()), False))
    if not pc.any(compressed).as_py():
        return values
    return _replace(values, compressed, _decoded(values, codecs, compressed, bytes_max), column_bytes_max)


@functools.cache
def _raw() -> pa.Scalar:
    return pa.scalar("raw", pa.string())


def _check_values(values: pa.Array) -> None:
    if not isinstance(values, pa.BinaryArray):
        raise InvalidInput("value", f"a {type(values).__name__}", "it must be an Arrow array of type binary")


def _check_codecs(codecs: pa.Array, rows: int) -> None:
    if not isinstance(codecs, pa.StringArray):
        raise InvalidInput("codec", f"a {type(codecs).__name__}", "it must be an Arrow array of type string")
    if len(codecs) != rows:
        raise InvalidInput("codec", f"{len(codecs)} rows", f"it needs one for each of the {rows} values")


def _decoded(values: pa.Array, codecs: pa.Array, compressed: pa.Array, bytes_max: int) -> Iterator[bytes]:
    rows = np.flatnonzero(compressed.to_numpy(zero_copy_only=False)).tolist()
    columns = (values.filter(compressed).to_pylist(), codecs.filter(compressed).to_pylist())
    for row, value, codec in zip(rows, *columns, strict=True):
        if codec not in _DECOMPRESS:
            raise InvalidMessage("codec", repr(codec), _KNOWN, row)
        try:
            plain = _plain(value, codec, bytes_max)
        except ValueError as error:
            raise InvalidMessage("value", f"{codec} of {len(value)} bytes", str(error), row) from None
        yield plain


def _plain(value: bytes, codec: str, bytes_max: int) -> bytes:
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


def _replace(values: pa.Array, rows: pa.Array, by: Iterable[bytes], column_bytes_max: int) -> pa.Array:
    """The values with the marked rows replaced, as long as all of them together fit."""
    lengths = byte_rows(values)[2]
    room = column_bytes_max - int(lengths[~rows.to_numpy(zero_copy_only=False)].sum())
    replacements = []
    for replacement in by:
        room -= len(replacement)
        if room < 0:
            rule = f"a column may have {column_bytes_max}: take fewer rows at a time"
            raise InvalidInput("value", f"{len(values)} rows of too many bytes together", rule)
        replacements.append(replacement)
    return pc.replace_with_mask(values, rows, pa.array(replacements, pa.binary()))
