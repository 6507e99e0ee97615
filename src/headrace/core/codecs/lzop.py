"""The lzop file format for one value: what the lzop tool reads and writes, several files in a row included.

The LZO1X compression inside comes from the package lzallright, which only the extra `lzop` installs; it is imported
at the first use. Numbers are big endian. A file is

    magic, header, its CRC-32 or Adler-32, blocks, a zero

and a block is its plain length, its stored length, checksums of the plain and (if it is compressed) of the stored
bytes as the header's flags say, and the stored bytes, which are the plain ones where compression did not help.

`decompress` gives the plain bytes block by block, each of a bounded size, so that the caller can stop a bomb early.
It raises ValueError with the rule that the value breaks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final
from zlib import adler32, crc32

from headrace.core.errors import InvalidInput

Checksum = Callable[[bytes], int]

MAGIC: Final = bytes.fromhex("894c5a4f000d0a1a0a")
# The lzop tool writes blocks of this size and no larger ones. Nothing larger is read either: lzallright grows its
# output for as long as a block lasts, whatever length the block claims. The worst block of this size takes 128 MiB
# briefly before the wrong length is detected; a larger one could take 512 times its own bytes.
BLOCK_BYTES_MAX: Final = 1 << 18

_VERSION: Final = 0x1040
_VERSION_LEAST: Final = 0x0940
_VERSION_OF_CRC32: Final = 0x1001
_LZO_VERSION: Final = 0x20A0
# All three are LZO1X to a reader; the tool writes the first by default, as level 5.
_METHODS: Final = (1, 2, 3)
_METHOD: Final = 1
_LEVEL: Final = 5

_PLAIN_ADLER32: Final = 0x0001
_STORED_ADLER32: Final = 0x0002
_PLAIN_CRC32: Final = 0x0100
_STORED_CRC32: Final = 0x0200
_HEADER_CRC32: Final = 0x1000
_FROM_UNIX: Final = 0x03000000
# An extra field, a filter (which the tool has but does not document) and the reserved bits change what follows.
_UNSUPPORTED: Final = 0x0040 | 0x0800 | 0x000FC000

_OF_PLAIN: Final = ((_PLAIN_ADLER32, adler32), (_PLAIN_CRC32, crc32))
_OF_STORED: Final = ((_STORED_ADLER32, adler32), (_STORED_CRC32, crc32))

_CUT_SHORT: Final = "it is cut short"


def compress(value: bytes) -> bytes:
    """The value as one file, as `lzop --crc32` writes it, without a name or a time."""
    starts = range(0, len(value), BLOCK_BYTES_MAX)
    return b"".join([_HEADER, *(_block(value[start : start + BLOCK_BYTES_MAX]) for start in starts), bytes(4)])


def decompress(value: bytes) -> Iterator[bytes]:
    """The plain bytes of all files, one after another."""
    cursor = _Cursor(value)
    while not cursor.at_end():
        flags = _read_header(cursor)
        while size := cursor.number(4):
            yield _read_block(cursor, flags, size)


def _header() -> bytes:
    flags = _FROM_UNIX | _HEADER_CRC32 | _PLAIN_CRC32
    nameless = bytes(13)  # mode, time in two halves, length of the name
    fixed = struct.pack(">HHHBBI", _VERSION, _LZO_VERSION, _VERSION_OF_CRC32, _METHOD, _LEVEL, flags) + nameless
    return MAGIC + fixed + _number(crc32(fixed))


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


_HEADER: Final = _header()


def _block(plain: bytes) -> bytes:
    compressed: bytes = _compressor().compress(plain)
    stored = compressed if len(compressed) < len(plain) else plain
    return _number(len(plain)) + _number(len(stored)) + _number(crc32(plain)) + stored


class _Cursor:
    """A place in the bytes that moves forward and never past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def at_end(self) -> bool:
        return self.position == len(self._data)

    def take(self, size: int) -> bytes:
        taken = self._data[self.position : self.position + size]
        if len(taken) < size:
            raise ValueError(_CUT_SHORT)
        self.position += size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def since(self, position: int) -> bytes:
        return self._data[position : self.position]


def _read_header(cursor: _Cursor) -> int:
    """Go past a header and give its flags."""
    if cursor.take(len(MAGIC)) != MAGIC:
        raise ValueError(f"there is no lzop header at byte {cursor.position - len(MAGIC)}")
    start = cursor.position
    version, _, needed, method, _, flags = struct.unpack(">HHHBBI", cursor.take(12))
    cursor.take(12)  # mode, time in two halves
    cursor.take(cursor.number(1))  # name
    checksum: Checksum = crc32 if flags & _HEADER_CRC32 else adler32
    computed = checksum(cursor.since(start))
    if flags & _UNSUPPORTED or version < _VERSION_LEAST:
        raise ValueError(f"its lzop header, version {version:#06x} with flags {flags:#010x}, is of an unknown form")
    if computed != cursor.number(4):
        raise ValueError("its lzop header does not match the checksum")
    if needed > _VERSION or method not in _METHODS:
        raise ValueError(f"its lzop header asks for version {needed:#06x}, method {method}, which is unknown")
    return int(flags)


def _read_block(cursor: _Cursor, flags: int, size: int) -> bytes:
    """Go past a block and give its plain bytes."""
    stored_size = cursor.number(4)
    if size > BLOCK_BYTES_MAX or not 0 < stored_size <= size:
        raise ValueError(f"a block says {size} bytes stored as {stored_size}: at most {BLOCK_BYTES_MAX}, and no growth")
    of_plain = _read_checksums(cursor, flags, _OF_PLAIN)
    of_stored = _read_checksums(cursor, flags, _OF_STORED) if stored_size < size else []
    stored = cursor.take(stored_size)
    _verify(stored, of_stored)
    plain = _unpack(stored, size) if stored_size < size else stored
    _verify(plain, of_plain)
    return plain


def _read_checksums(cursor: _Cursor, flags: int, kinds: tuple[tuple[int, Checksum], ...]) -> list[tuple[Checksum, int]]:
    return [(checksum, cursor.number(4)) for flag, checksum in kinds if flags & flag]


def _verify(data: bytes, expected: list[tuple[Checksum, int]]) -> None:
    if any(checksum(data) != number for checksum, number in expected):
        raise ValueError("a block does not match its checksum")


def _unpack(stored: bytes, size: int) -> bytes:
    lzo = _library()
    try:
        plain: bytes = lzo.LZOCompressor.decompress(stored, size)
    except lzo.LZOError as error:
        raise ValueError(f"a block does not decompress: {error}") from None
    if len(plain) != size:
        raise ValueError(f"a block says {size} bytes and has {len(plain)}")
    return plain


@cache
def _compressor() -> Any:
    """One for all, since it is safe to share and costs more to make than to use."""
    return _library().LZOCompressor()


def _library() -> ModuleType:
    try:
        import lzallright
    except ImportError:
        raise InvalidInput("codec", "'lzop'", 'it needs an extra: pip install "headrace[lzop]"') from None
    return lzallright
