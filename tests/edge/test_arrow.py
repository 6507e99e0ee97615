"""The edge for Arrow: what is honest comes through as it was sent; what lies is refused before anything touches it."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.limits import ARROW_COLUMNS_MAX, ARROW_MESSAGES_MAX, ARROW_METADATA_BYTES_MAX, BATCH_ROWS_MAX
from headrace.edge.arrow import Claims, Stream, validated
from tests.edge.streams import bomb, dictionaries, false_rows, full_batch, short_bitmap, stream_of, values

BYTES_MAX = 1 << 20


def refused(body: bytes, bytes_max: int = BYTES_MAX) -> InvalidInput:
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidInput) as caught:
        Stream(body, bytes_max).batch()
    error = caught.value
    assert error.field and error.value and error.rule
    str(error).encode()
    assert len(str(error)) < 1000
    assert pa.total_allocated_bytes() - before < 1 << 20
    return error


def test_one_batch_comes_as_it_was_sent() -> None:
    batch = full_batch()
    assert Stream(stream_of(batch), BYTES_MAX).batch().equals(batch)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_several_batches_become_one_compressed_or_not(compression: str | None) -> None:
    batch = full_batch()
    body = stream_of(batch, batch.slice(3, 5), compression=compression)
    joined = Stream(body, BYTES_MAX).batch()
    assert joined.to_pylist() == batch.to_pylist() + batch.slice(3, 5).to_pylist()
    joined.validate(full=True)
    assert Stream(body, BYTES_MAX).claims.rows >= 25


def test_dictionaries_that_are_replaced_or_grow_are_put_together() -> None:
    batch = Stream(dictionaries(), BYTES_MAX).batch()
    codecs = batch.column("codec").to_pylist()
    assert codecs == ["raw", "gzip"] * 10 + ["raw", "gzip", "zstd", "raw"] * 5 + ["lzop", "raw"] * 10


def growing(deltas: int, value_bytes: int) -> bytes:
    """A dictionary that grows by one value with each of its batches."""
    values = [f"{number:08}" + "x" * value_bytes for number in range(deltas)]
    schema = pa.schema([("value", pa.dictionary(pa.int32(), pa.string()))])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True, compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for count in range(1, deltas + 1):
            column = pa.DictionaryArray.from_arrays(pa.array([count - 1], pa.int32()), pa.array(values[:count]))
            writer.write_batch(pa.record_batch([column], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def test_dictionary_counts_for_each_batch_that_keeps_it() -> None:
    assert Stream(growing(5, 1_000), BYTES_MAX).batch().num_rows == 5
    body = growing(60, 10_000)
    assert len(body) < BYTES_MAX // 10
    assert "when decoded" in str(refused(body))


@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_value_counts_each_time_it_is_repeated(kind: str) -> None:
    column = pa.array([b"x" * 100_000]).dictionary_encode().take(pa.array([0] * 40))
    if kind == "view":
        one = pa.array([b"x" * 100_000], pa.binary_view())
        column = pa.Array.from_buffers(
            pa.binary_view(), 40, [None, pa.py_buffer(bytes(one.buffers()[1]) * 40), one.buffers()[2]]
        )
    body = stream_of(pa.record_batch({"value": column}), compression="zstd")
    assert len(body) < 10_000
    assert "each repetition" in str(refused(body))
    stream = Stream(body, 8 << 20)
    assert stream.batch().num_rows == 40 and stream.decoded_bytes == 4_000_000


def test_stream_without_batches_or_rows_has_its_columns() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", pa.binary())])):
        pass
    empty = Stream(sink.getvalue().to_pybytes(), BYTES_MAX).batch()
    assert (empty.num_rows, empty.schema.names) == (0, ["value"])
    none = full_batch(0)
    assert Stream(stream_of(none, none), BYTES_MAX).batch().num_rows == 0


def test_claims_are_those_of_the_decompressed_buffers() -> None:
    body = bomb(300_000)
    rows, size = Stream(body, BYTES_MAX).claims
    assert rows == 1 and 300_000 <= size < 301_000 and len(body) < 10_000
    assert Stream(stream_of(pa.record_batch({"value": pa.nulls(9)})), BYTES_MAX).claims == Claims(9, 0)


def test_bitmap_that_is_shorter_than_its_rows_is_refused() -> None:
    assert "not valid Arrow" in str(refused(short_bitmap(4_000)))


@pytest.mark.parametrize("claimed", [8, 1_000, BATCH_ROWS_MAX, BATCH_ROWS_MAX + 1, 2**40, 2**62, -1, -(2**63)])
def test_false_number_of_rows_is_refused(claimed: int) -> None:
    refused(false_rows(7, claimed))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("copies", [1, 3])
def test_what_would_be_too_large_is_refused_before_it_is_decompressed(compression: str, copies: int) -> None:
    body = bomb(400_000 if copies > 1 else 3_000_000, compression, copies)
    assert len(body) < 30_000
    error = refused(body)
    assert "when decoded" in error.value and str(BYTES_MAX) in error.rule


@pytest.mark.parametrize("claimed", [0, 1, 299_999, 300_001, 2**40, 2**62, 2**63 - 1, -1, -2, -(2**63)])
def test_compressed_buffer_that_lies_about_its_size_is_refused(claimed: int) -> None:
    body = bomb(300_000, "lz4")
    # The first place where this number stands is the offset of the value's end.
    head, _, tail = body.rpartition(struct.pack("<q", 300_000))
    assert tail
    refused(head + struct.pack("<q", claimed) + tail)


def test_buffers_that_overlap_count_as_often_as_they_are_named() -> None:
    value = values(1, 200_000)
    body = stream_of(pa.RecordBatch.from_arrays([value] * 10, names=[f"c{place}" for place in range(10)]))
    assert refused(body).rule == f"at most {BYTES_MAX} bytes"


def test_body_that_is_too_large_is_not_looked_at() -> None:
    assert refused(b"x" * 1001, 1000).value == "1001 bytes"


def test_too_many_batches_are_refused() -> None:
    nothing = pa.record_batch({"value": values(0)})
    body = stream_of(*[nothing] * (ARROW_MESSAGES_MAX + 1))
    assert "fewer" in refused(body, len(body)).rule


def test_too_much_metadata_is_refused() -> None:
    batch = pa.record_batch({"value": values(1)}).replace_schema_metadata({"a": "b" * ARROW_METADATA_BYTES_MAX})
    assert "metadata" in refused(stream_of(batch)).value


def test_too_many_columns_are_refused() -> None:
    columns = [values(1)] * (ARROW_COLUMNS_MAX + 1)
    batch = pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])
    assert refused(stream_of(batch)).field == "columns"


def deep(levels: int) -> pa.DataType:
    kind = pa.binary()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        deep(1),
        deep(60),
        pa.struct([("a", pa.binary())]),
        pa.dense_union([pa.field("a", pa.binary())]),
        pa.run_end_encoded(pa.int32(), pa.binary()),
        pa.list_view(pa.binary()),
        pa.map_(pa.string(), deep(1)),
        pa.map_(pa.struct([("a", pa.string())]), pa.binary()),
        pa.dictionary(pa.int32(), deep(1)),
        pa.json_(),
        pa.uuid(),
        pa.map_(pa.string(), pa.json_()),
    ],
    ids=lambda kind: str(kind)[:30],
)
def test_nested_types_are_refused(kind: pa.DataType) -> None:
    array = (
        pa.ExtensionArray.from_storage(kind, pa.nulls(1, kind.storage_type))
        if kind in (pa.json_(), pa.uuid())
        else None
    )
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, kind) if array is None else array], names=["value"])
    error = refused(stream_of(batch))
    assert error.field in ("value", "body")


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.binary()),
        pa.null(),
        pa.float64(),
    ],
    ids=str,
)
def test_plain_types_and_maps_of_them_come_through(kind: pa.DataType) -> None:
    body = stream_of(pa.record_batch({"value": pa.nulls(1, kind)}))
    assert Stream(body, BYTES_MAX).batch().num_rows == 1


@pytest.mark.parametrize("wrong", [b"\xff\xfea\xffb", b"\xc3(abc", b"ab\x80cd"])
def test_names_that_are_not_text_are_refused(wrong: bytes) -> None:
    names = stream_of(pa.record_batch({"value": values(1), "qwert": values(1)})).replace(b"qwert", wrong)
    assert refused(names).field == "column"


def test_text_and_offsets_that_are_not_sound_are_refused() -> None:
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    refused(stream_of(pa.record_batch({"codec": text})))
    offsets = pa.py_buffer(np.array([0, 100_000, 2], np.int32))
    lying = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
    refused(stream_of(pa.record_batch({"value": lying}), pa.record_batch({"value": lying})))
    indices = pa.array([7], pa.int8())
    index = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    refused(stream_of(pa.record_batch({"codec": index})))


def test_false_number_of_nulls_is_refused() -> None:
    lying = pa.Array.from_buffers(pa.int64(), 8, [pa.py_buffer(b"\x0f"), pa.py_buffer(bytes(64))], null_count=1)
    refused(stream_of(pa.record_batch({"seqno": lying})))


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\xff" * 64, b"not Arrow at all, but long enough to be read"])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    refused(body)


def test_every_beginning_of_a_stream_is_refused_or_shorter() -> None:
    body = stream_of(full_batch(3), full_batch(3))
    for length in range(len(body)):
        try:
            assert Stream(body[:length], BYTES_MAX).batch().num_rows in (0, 3, 6)
        except InvalidInput as error:
            assert str(error)


def test_tensor_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros(4)), sink)
    assert "tensor" in str(refused(sink.getvalue().to_pybytes()))


def test_big_endian_is_refused() -> None:
    body = stream_of(pa.record_batch({"value": values(1)}))
    # The endianness of a schema is 0 and therefore left out: give it a place where something else is.
    for place in range(0, 200, 2):
        patched = body[:place] + b"\4\0" + body[place + 2 :]
        try:
            Stream(patched, BYTES_MAX)
        except InvalidInput as error:
            if error.value == "big-endian":
                return
    pytest.fail("no patch made the schema big-endian")


def test_batch_of_too_many_rows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rows"):
        validated(pa.record_batch({"value": pa.nulls(BATCH_ROWS_MAX + 1)}))
