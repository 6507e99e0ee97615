"""Lines of a file as columns: the same lines as Python would split, whatever the pieces they come in."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.messages.lines import batches_of, column_of, split_keys


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=20))
def test_whole_lines(lines: list[bytes]) -> None:
    assert column_of(b"".join(line + b"\n" for line in lines)).to_pylist() == lines


@given(st.lists(st.sampled_from([b"", b"a", b"a::b", b"::", b":", b"a::b::c", b"\xff::\x00"])))
def test_keys_are_split_at_the_first_separator(lines: list[bytes]) -> None:
    keys, values = split_keys(pa.array(lines, pa.binary()), b"::")
    expected = [line.split(b"::", 1) if b"::" in line else [None, line] for line in lines]
    assert [[key, value] for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)] == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [(b"", []), (b"\n", [b""]), (b"a", [b"a"]), (b"a\nb", [b"a", b"b"]), (b"a\n\nb\n", [b"a", b"", b"b"])],
)
def test_files(text: bytes, lines: list[bytes]) -> None:
    assert read(text, 10) == lines


def test_batches_are_as_large_as_was_asked_for() -> None:
    text = b"".join(b"%d\n" % number for number in range(300_000))
    source, sink = os.pipe()
    writing = threading.Thread(target=written, args=(sink, text))
    writing.start()
    batches = list(batches_of(source, 1_000))
    writing.join()
    os.close(source)
    assert max(len(batch) for batch in batches) == 1_000
    assert b"".join(value + b"\n" for batch in batches for value in batch.to_pylist()) == text


def test_a_line_larger_than_what_is_read_at_once() -> None:
    assert [len(line) for line in read(b"x" * 3_000_000 + b"\ny\n", 10)] == [3_000_000, 1]


def read(text: bytes, size: int) -> list[bytes]:
    source, sink = os.pipe()
    writing = threading.Thread(target=written, args=(sink, text))
    writing.start()
    lines = [line for batch in batches_of(source, size) for line in batch.to_pylist()]
    writing.join()
    os.close(source)
    return lines


def written(sink: int, text: bytes) -> None:
    with os.fdopen(sink, "wb") as file:
        file.write(text)
