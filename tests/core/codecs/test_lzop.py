"""lzop values against files made by the lzop tool, version 1.04, and against files no tool would make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from zlib import adler32, crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.codecs import lzop
from headrace.core.errors import InvalidInput

LINE = b"headrace headrace headrace headrace headrace\n"

# What `lzop OPTIONS < line` and `lzop -c a.txt` wrote.
BY_THE_TOOL = {
    "default": "894c5a4f000d0a1a0a104020a0094001050300000d000000006af95bcb0000000000321d03f90000002d00000021"
    "8158106c066865616472616365203220000d6164726163652068656164726163650a11000000000000",
    "-1": "894c5a4f000d0a1a0a104020a0094002010300000d000000006af95bcb000000000031e803f60000002d00000021"
    "8158106c066865616472616365203220000d6164726163652068656164726163650a11000000000000",
    "-9": "894c5a4f000d0a1a0a104020a0094003090300000d000000006af95bcb0000000000328b03ff0000002d00000012"
    "8158106c1a686561647261636520200221000a11000000000000",
    "--crc32": "894c5a4f000d0a1a0a104020a0100101050300110c000000006af95bda000000000070e0cc840000002d00000021"
    "bfdbbbf8066865616472616365203220000d6164726163652068656164726163650a11000000000000",
    "-F": "894c5a4f000d0a1a0a104020a0094001050300000c000000006af95bcb0000000000320f03f80000002d00000021"
    "066865616472616365203220000d6164726163652068656164726163650a11000000000000",
    "named": "894c5a4f000d0a1a0a104020a00940010503000009000081a4000000000000000005612e7478743d670485"
    "0000002d000000218158106c066865616472616365203220000d6164726163652068656164726163650a11000000000000",
}
STORED = bytes.fromhex("066865616472616365203220000d6164726163652068656164726163650a110000")
# `lzop -o ab.lzo a b`, which holds the files "a\n" and "b\n".
TWO_FILES = (
    "894c5a4f000d0a1a0a104020a00940010503000401000081a46af95b53000000000161"
    "3fd505000000000200000002 00ce006c 610a 00000000"
    "894c5a4f000d0a1a0a104020a00940010503000401000081a46af95b53000000000162"
    "3fd605010000000200000002 00d0006d 620a 00000000"
)


def plain(value: bytes) -> bytes:
    return b"".join(lzop.decompress(value))


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def header(flags: int = 0, version: int = 0x1040, needed: int = 0x0940, method: int = 1) -> bytes:
    fixed = version.to_bytes(2, "big") + b"\x20\xa0" + needed.to_bytes(2, "big") + bytes([method, 5]) + number(flags)
    nameless = fixed + bytes(13)
    return lzop.MAGIC + nameless + number(adler32(nameless))


def file(flags: int, size: int, stored: bytes, checksums: Iterable[int] = ()) -> bytes:
    block = number(size) + number(len(stored)) + b"".join(map(number, checksums)) + stored
    return header(flags) + block + number(0)


@pytest.mark.parametrize("options", BY_THE_TOOL)
def test_files_of_the_tool_are_read(options: str) -> None:
    assert plain(bytes.fromhex(BY_THE_TOOL[options])) == LINE


def test_several_files_in_a_row_are_read() -> None:
    assert plain(bytes.fromhex(TWO_FILES)) == b"a\nb\n"
    assert plain(lzop.compress(b"first ") + lzop.compress(b"") + lzop.compress(b"last")) == b"first last"


def test_what_is_written_has_the_header_of_the_tool() -> None:
    ours, tools = lzop.compress(LINE), bytes.fromhex(BY_THE_TOOL["--crc32"])
    versions_method_level = slice(0, 17)
    assert ours[versions_method_level] == tools[versions_method_level]
    assert ours[38:50] == number(len(LINE)) + ours[42:46] + number(crc32(LINE))


@settings(deadline=None)
@given(st.binary(max_size=1000))
def test_values_come_back(value: bytes) -> None:
    assert plain(lzop.compress(value)) == value


@pytest.mark.parametrize("size", [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 600_000])
def test_long_values_are_cut_into_blocks(size: int) -> None:
    value = (b"%d " * 100_000 % tuple(range(100_000)))[:size].ljust(size)
    blocks = list(lzop.decompress(lzop.compress(value)))
    assert b"".join(blocks) == value
    assert max(map(len, blocks)) == min(size, lzop.BLOCK_BYTES_MAX)


def test_every_kind_of_checksum_is_verified() -> None:
    checksums = [adler32(LINE), crc32(LINE), adler32(STORED), crc32(STORED)]
    assert plain(file(0x0303, len(LINE), STORED, checksums)) == LINE
    for wrong in range(4):
        damaged = [checksum ^ (place == wrong) for place, checksum in enumerate(checksums)]
        with pytest.raises(ValueError, match="a block does not match its checksum"):
            plain(file(0x0303, len(LINE), STORED, damaged))


def test_a_block_that_did_not_shrink_has_no_checksums_of_its_stored_bytes() -> None:
    assert plain(file(0x0303, 3, b"abc", [adler32(b"abc"), crc32(b"abc")])) == b"abc"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lzop.MAGIC[:-1] + b"\x0b", "there is no lzop header at byte 0"),
        (lzop.compress(b"") + b"no header", "there is no lzop header at byte 42"),
        (lzop.compress(b"")[:-1], "it is cut short"),
        (header(version=0x0930), "its lzop header, version 0x0930 with flags 0x00000000, is of an unknown form"),
        (header(flags=0x0800), "its lzop header, version 0x1040 with flags 0x00000800, is of an unknown form"),
        (header()[:-1] + b"\0", "its lzop header does not match the checksum"),
        (header(needed=0x1050), "its lzop header asks for version 0x1050, method 1, which is unknown"),
        (header(method=128), "its lzop header asks for version 0x0940, method 128, which is unknown"),
        (file(0, 3, b""), "a block says 3 bytes stored as 0: at most 262144, and no growth"),
        (file(0, 3, b"abcd"), "a block says 3 bytes stored as 4: at most 262144, and no growth"),
        (file(0, (1 << 18) + 1, b"a"), "a block says 262145 bytes stored as 1: at most 262144, and no growth"),
        (file(0, len(LINE) + 1, STORED), "a block says 46 bytes and has 45"),
        (file(0, len(LINE) - 1, STORED), "a block says 44 bytes and has 45"),
        (file(0, len(LINE), STORED[:-1]), "a block does not decompress: EResult.InputOverrun"),
        (file(0, len(LINE), STORED + b"x"), "a block does not decompress: "),
    ],
)
def test_what_breaks_a_rule_is_refused(value: bytes, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        plain(value)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("use", "value"), [(lzop.compress, LINE), (plain, bytes.fromhex(BY_THE_TOOL["-9"]))])
def test_without_its_library_the_error_names_the_extra(
    use: Callable[[bytes], bytes], value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lzallright", None)
    lzop._compressor.cache_clear()
    with pytest.raises(InvalidInput) as caught:
        use(value)
    assert str(caught.value) == "codec is 'lzop': it needs an extra: pip install \"headrace[lzop]\""
