"""Columns of values through the codecs: what goes in comes out, and nothing else does."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.codecs import lzop
from headrace.core.codecs.columns import compress, decode, decode_known, encode
from headrace.core.errors import HeadraceError, InvalidInput, InvalidMessage
from headrace.core.topics.settings import CODECS

COMPRESSING = [codec for codec in CODECS if codec != "raw"]
# The frames that pyarrow writes as zstd have no checksum: of them only a clean outcome is asked.
CHECKSUMMED = ("gzip", "lzop")

# Random bytes hardly compress; values made of a few repeated parts do.
VALUES = st.binary(max_size=300) | st.lists(st.binary(max_size=8), max_size=4).map(lambda parts: b"".join(parts) * 20)
SAMPLES = [b"", b"a", b"headrace " * 5, b'{"till": 7, "kind": "sale", "amount": 17.25}' * 2]


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def names(*codecs: str | None) -> pa.Array:
    return pa.array(codecs, pa.string())


def compressed(value: bytes, codec: str) -> bytes:
    return bytes(encode(column(value), codec)[0].as_py())


def plain(value: bytes, codec: str, bytes_max: int = 1 << 20) -> bytes:
    return bytes(decode(column(value), names(codec), bytes_max)[0].as_py())


def refusal(value: bytes, codec: str, bytes_max: int = 1 << 20) -> InvalidMessage:
    with pytest.raises(InvalidMessage) as caught:
        plain(value, codec, bytes_max)
    return caught.value


@settings(deadline=None)
@given(st.lists(st.none() | VALUES, max_size=8), st.sampled_from(CODECS))
def test_a_column_comes_back(values: list[bytes | None], codec: str) -> None:
    given = column(*values)
    encoded = encode(given, codec)
    assert encoded.type == pa.binary()
    assert encoded.is_null().equals(given.is_null())
    assert decode(encoded, names(*[codec] * len(values))).equals(given)


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | VALUES, st.none() | st.sampled_from(CODECS)), max_size=10), st.data())
def test_each_row_is_decoded_by_its_own_codec(rows: list[tuple[bytes | None, str | None]], data: st.DataObject) -> None:
    mixed = column(*(value if value is None else compressed(value, codec or "raw") for value, codec in rows))
    codecs = names(*(codec for _, codec in rows))
    first = data.draw(st.integers(0, len(rows)))
    decoded = decode(mixed.slice(first), codecs.slice(first))
    decoded.validate(full=True)
    assert decoded.to_pylist() == [value for value, _ in rows[first:]]


def test_raw_columns_are_returned_as_they_are() -> None:
    values = column(b"one", None, b"three")
    assert encode(values, "raw") is values
    assert decode(values, None) is values
    assert decode(values, names("raw", None, "raw")) is values
    assert decode(values, names(None, "zstd", None)) is values


@pytest.mark.parametrize("codec", COMPRESSING)
def test_equal_values_give_equal_bytes(codec: str) -> None:
    assert compressed(b"again" * 9, codec) == compressed(b"again" * 9, codec)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("value", SAMPLES)
def test_a_cut_or_prolonged_value_is_refused(value: bytes, codec: str) -> None:
    whole = compressed(value, codec)
    for size in range(len(whole)):
        assert refusal(whole[:size], codec).value == f"{codec} of {size} bytes"
    for rubbish in (b"\0", b"x", b"\0" * 100, b"rubbish" * 10, whole[:-1]):
        refusal(whole + rubbish, codec)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("value", SAMPLES)
def test_a_flipped_bit_is_refused_or_harmless(value: bytes, codec: str) -> None:
    for damaged in flipped(compressed(value, codec)):
        outcome = plain_or_refused(damaged, codec)
        assert codec not in CHECKSUMMED or outcome in (value, None)


@settings(deadline=None)
@given(VALUES, st.sampled_from(COMPRESSING), st.data())
def test_a_changed_byte_is_refused_or_harmless(value: bytes, codec: str, data: st.DataObject) -> None:
    damaged = bytearray(compressed(value, codec))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    outcome = plain_or_refused(bytes(damaged), codec)
    assert codec not in CHECKSUMMED or outcome in (value, None)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(COMPRESSING), st.sampled_from([0, 4, 9, 20, 38]))
def test_any_bytes_are_decoded_or_refused(value: bytes, codec: str, kept: int) -> None:
    plain_or_refused(compressed(b"beginning", codec)[:kept] + value, codec)


def flipped(value: bytes) -> Iterator[bytes]:
    for position in range(len(value)):
        for bit in range(8):
            yield value[:position] + bytes([value[position] ^ 1 << bit]) + value[position + 1 :]


def plain_or_refused(value: bytes, codec: str) -> bytes | None:
    try:
        return plain(value, codec)
    except InvalidMessage:
        return None


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_value_may_grow_to_the_limit_and_no_further(codec: str) -> None:
    for size in (0, 1, 1000, 300_000):
        value = compressed(b"x" * size, codec)
        assert plain(value, codec, bytes_max=size) == b"x" * size
        if size:
            error = refusal(value, codec, bytes_max=size - 1)
            assert error.rule == f"it decompresses to more than {size - 1} bytes"


MEMORY_OF_A_REFUSAL = """
import resource, sys
import pyarrow as pa
from headrace.core.codecs.columns import decode
from headrace.core.errors import InvalidMessage

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

bomb, codec = pa.array([sys.stdin.buffer.read()]), pa.array(sys.argv[1:])
before = peak()
try:
    decode(bomb, codec, bytes_max=1 << 20)
except InvalidMessage as error:
    print(error.rule, round(peak() / before, 1), sep=", ")
"""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_stopped_before_it_takes_memory(codec: str) -> None:
    half_a_gigabyte = compressed(bytes(8 << 20), codec) * 64
    command = [sys.executable, "-c", MEMORY_OF_A_REFUSAL, codec]
    said = subprocess.run(command, input=half_a_gigabyte, capture_output=True, check=True).stdout.decode()
    rule, growth = said.split(", ")
    assert rule == "it decompresses to more than 1048576 bytes"
    assert float(growth) < 2


def test_a_column_may_grow_to_its_limit_and_no_further() -> None:
    values = pa.concat_arrays([column(b"raw" * 10), encode(column(b"x" * 100, b"x" * 100), "zstd")])
    codecs = names(None, "zstd", "zstd")
    assert len(decode(values, codecs, column_bytes_max=230)) == 3
    with pytest.raises(InvalidInput) as caught:
        decode(values, codecs, column_bytes_max=229)
    assert "value is 3 rows of too many bytes together" in str(caught.value)
    assert "take fewer rows" in caught.value.rule


def test_a_refusal_names_field_codec_rule_and_row() -> None:
    values = pa.concat_arrays([column(b"first"), encode(column(b"second"), "gzip"), column(None, b"not gzip")])
    with pytest.raises(InvalidMessage) as caught:
        decode(values, names(None, "gzip", "gzip", "gzip"))
    error = caught.value
    assert (error.field, error.value, error.row) == ("value", "gzip of 8 bytes", 3)
    assert "incorrect header check" in error.rule
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(column(b"value"), "rar")
    assert str(caught.value) == "codec is 'rar': known codecs are raw, gzip, zstd, lzop"
    with pytest.raises(InvalidMessage) as in_row:
        decode(column(b"value", b"value"), names("raw", "GZIP"))
    assert str(in_row.value) == "row 1: codec is 'GZIP': known codecs are raw, gzip, zstd, lzop"


@pytest.mark.parametrize(
    ("values", "codecs", "said"),
    [
        (pa.array(["text"]), names("raw"), "value is a StringArray: it must be an Arrow array of type binary"),
        (pa.chunked_array([column(b"")]), None, "value is a ChunkedArray: it must be an Arrow array of type binary"),
        (column(b""), pa.array([1]), "codec is a Int64Array: it must be an Arrow array of type string"),
        (column(b"", b""), names("raw"), "codec is 1 rows: it needs one for each of the 2 values"),
    ],
)
def test_columns_of_another_kind_are_refused(values: pa.Array, codecs: pa.Array | None, said: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        decode(values, codecs)
    assert str(caught.value) == said


@pytest.mark.parametrize("codec", ["raw", "gzip", "zstd", "lzop"])
def test_one_value_is_compressed_as_in_a_column(codec: str) -> None:
    packed = compress(b"value" * 100, codec)
    assert decode(pa.array([packed]), pa.array([codec])).to_pylist() == [b"value" * 100]


def test_one_value_of_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidInput):
        compress(b"value", "brotli")


def test_what_can_be_decoded_is_and_the_rest_is_named() -> None:
    good = compressed(b"good", "gzip")
    values = column(b"plain", good, b"not gzip", None, b"", good)
    codecs = names(None, "gzip", "gzip", "gzip", "zstd", "gzip")
    known = decode_known(values, codecs)
    assert known.values.to_pylist() == [b"plain", b"good", b"not gzip", None, b"", b"good"]
    assert [(fault.row, fault.field) for fault in known.faults] == [(2, "value"), (4, "value")]
    before = decode_known(values, codecs, until_fault=True)
    assert before.values.to_pylist() == [b"plain", b"good"]
    assert [fault.row for fault in before.faults] == [2]
    at_once = decode_known(values.slice(2), codecs.slice(2), until_fault=True)
    assert (at_once.rows, [fault.row for fault in at_once.faults]) == (0, [0])


def test_a_column_that_grows_too_large_ends_before_after_one_row_at_least() -> None:
    values = encode(column(*(b"x" * 100 for _ in range(4))), "zstd")
    codecs = names(*["zstd"] * 4)
    assert [decode_known(values, codecs, column_bytes_max=limit).rows for limit in (1, 199, 200, 399, 400)] == [
        1, 1, 2, 3, 4,
    ]  # fmt: skip
    raw = column(b"x" * 100, b"x" * 100, compressed(b"", "zstd"))
    assert decode_known(raw, names(None, None, "zstd"), column_bytes_max=150).rows == 1


def test_values_before_one_whose_library_is_missing_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = column(b"plain", compressed(b"packed" * 100, "lzop"))
    codecs = names(None, "lzop")
    monkeypatch.setitem(sys.modules, "lzallright", None)
    lzop._compressor.cache_clear()
    try:
        known = decode_known(values, codecs)
        assert (known.values.to_pylist(), known.faults) == ([b"plain"], [])
        with pytest.raises(InvalidInput, match="lzop"):
            decode_known(values.slice(1), codecs.slice(1))
    finally:
        monkeypatch.undo()
        lzop._compressor.cache_clear()
