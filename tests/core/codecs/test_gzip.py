"""gzip values against the gzip module of Python."""

from __future__ import annotations

import gzip as python_gzip
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.codecs import gzip


def plain(value: bytes) -> bytes:
    return b"".join(gzip.decompress(value))


@settings(deadline=None)
@given(st.binary(max_size=1000))
def test_python_reads_what_is_written(value: bytes) -> None:
    assert python_gzip.decompress(gzip.compress(value)) == value


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), min_size=1, max_size=5), st.integers(0, 9))
def test_what_python_writes_in_several_members_is_read(members: list[bytes], level: int) -> None:
    assert plain(b"".join(python_gzip.compress(member, level) for member in members)) == b"".join(members)


def test_names_and_times_in_the_header_are_skipped() -> None:
    file = io.BytesIO()
    with python_gzip.GzipFile("sales.json", "wb", fileobj=file, mtime=1_700_000_000) as written:
        written.write(b"sales")
    assert plain(file.getvalue()) == b"sales"


def test_members_and_chunks_may_end_at_any_byte() -> None:
    incompressible = bytes(range(256)) * 16
    for size in range(4050, 4096):
        members = python_gzip.compress(incompressible[:size], 0) + python_gzip.compress(b"second")
        assert plain(members) == incompressible[:size] + b"second"


def test_ten_thousand_members_are_read_in_little_time() -> None:
    assert plain(python_gzip.compress(b"m") * 10_000) == b"m" * 10_000


def test_the_error_names_where_the_wrong_member_begins() -> None:
    first = gzip.compress(b"first")
    with pytest.raises(ValueError, match=rf"what begins at byte {len(first)} does not decompress.*header check"):
        plain(first + b"rubbish")
    with pytest.raises(ValueError, match="cut short"):
        plain(first + first[:-1])
