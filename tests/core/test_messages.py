"""Accepting batches: every type Arrow may bring, every rule that can be broken, and what readers get back."""

from __future__ import annotations

import mmap
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import messages
from headrace.core.errors import CodecNotAllowed, InvalidInput, InvalidMessage, MessageTooLarge
from headrace.core.limits import (
    ATTRIBUTES_PER_MESSAGE_MAX,
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    ID_CHARACTERS_MAX,
    MESSAGE_BYTES_DEFAULT,
)
from headrace.core.messages import (
    ATTRIBUTES,
    PUBLISH_SCHEMA,
    READ_SCHEMA,
    STORED_SCHEMA,
    TIMESTAMP,
    accept,
    accept_all,
    check_columns,
    content_bytes,
    has_nulls,
    join,
    message_sizes,
    pad,
    read_batch,
    with_present_types,
)
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from tests.core.builders import accepted, publish_batch

TEXTS = ["", "one", None, "zwölf"]
BYTES = [b"", b"one", None, "zwölf".encode()]
ITEMS = [[("a", b"1"), ("b", b"")], None, [], [("c", b"33")]]


def refused(batch: Any, partitions: int = 4, settings: TopicSettings = DEFAULT_SETTINGS) -> InvalidInput:
    """The error that a batch is refused with."""
    with pytest.raises(InvalidInput) as caught:
        accept(batch, settings, partitions)
    return caught.value


def refused_row(partitions: int = 4, settings: TopicSettings = DEFAULT_SETTINGS, **columns: Any) -> dict[str, Any]:
    """What the error says that names a row."""
    error = refused(publish_batch(**columns), partitions, settings)
    assert isinstance(error, InvalidMessage)
    assert str(error).startswith(f"row {error.row}: {error.field} is {error.value}: {error.rule}")
    return error.details()


def column_refused(name: str, column: pa.Array) -> dict[str, Any]:
    """What the error says about one column of three rows."""
    columns = {"value": pa.array([b"x"] * 3), name: column}
    return refused(publish_batch(**columns)).details()


# What is accepted


def test_smallest_batch_is_a_value() -> None:
    batch = accept(publish_batch(value=[b"x", b""]), DEFAULT_SETTINGS, 1)
    assert batch.schema.equals(pa.schema([STORED_SCHEMA.field("value")]))
    assert batch.column("value").to_pylist() == [b"x", b""]


def test_full_batch_comes_out_in_the_canonical_order_of_columns() -> None:
    columns: dict[str, Any] = {
        "partition": [3, None],
        "seqno": [0, 2**63 - 1],
        "message_group_id": ["g", ""],
        "producer_id": ["p", "p"],
        "created_at": [0, None],
        "codec": ["zstd", None],
        "attributes": [[("a", b"1")], None],
        "key": [b"", None],
        "value": [b"", b"y"],
    }
    batch = accept(publish_batch(**columns), DEFAULT_SETTINGS, 4)
    assert batch.schema.equals(PUBLISH_SCHEMA)
    for name in ("partition", "seqno", "message_group_id", "producer_id", "codec", "attributes", "key", "value"):
        assert batch.column(name).to_pylist() == columns[name]


def test_columns_without_any_value_are_left_out() -> None:
    nothing = {field.name: pa.nulls(2, field.type) for field in PUBLISH_SCHEMA if field.name != "value"}
    untyped = {name: pa.nulls(2) for name in nothing}
    for columns in (nothing, untyped):
        assert accepted(value=[b"x", b"y"], **columns).schema.names == ["value"]


def test_empty_batch_is_accepted_and_has_only_values() -> None:
    columns = {field.name: pa.array([], field.type) for field in PUBLISH_SCHEMA}
    batch = accepted(settings=TopicSettings.make(codecs=["zstd"]), **columns)
    assert (batch.num_rows, batch.schema.names) == (0, ["value"])


def test_schema_metadata_and_nullability_of_the_publisher_are_dropped() -> None:
    schema = pa.schema([pa.field("value", pa.binary(), metadata={"a": "b"})], metadata={"pandas": "{}"})
    batch = accept(pa.RecordBatch.from_arrays([pa.array([b"x"])], schema=schema), DEFAULT_SETTINGS, 1)
    assert batch.schema.equals(pa.schema([STORED_SCHEMA.field("value")]), check_metadata=True)


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BYTES_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("kind", [*BYTES_TYPES, *TEXT_TYPES], ids=str)
def test_every_layout_of_bytes_and_text_becomes_bytes(kind: pa.DataType, encoded: bool) -> None:
    column = pa.array(TEXTS if kind in TEXT_TYPES else BYTES, kind)
    if encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([3, 1, 0, None, 2, 1], pa.int8()), column)
    keys = [value.encode() if isinstance(value, str) else value for value in column.to_pylist()]
    for skipped in (0, 1, 3):
        rows = len(column) - skipped
        batch = accepted(value=[b"v"] * rows, key=column.slice(skipped))
        assert batch.column("key").type == pa.binary()
        assert batch.column("key").to_pylist() == keys[skipped:]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("name", ["producer_id", "codec"])
def test_every_layout_of_text_becomes_text(name: str, kind: pa.DataType, encoded: bool) -> None:
    column = pa.array(["skipped", "raw", None, "gzip", "raw"], kind)
    if encoded:
        column = pa.DictionaryArray.from_arrays(pa.array(range(5), pa.uint16()), column)
    batch = accepted(**{"value": [b"v"] * 4, name: column.slice(1)})
    assert batch.column(name).type == pa.string()
    assert batch.column(name).to_pylist() == ["raw", None, "gzip", "raw"]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str
)
@pytest.mark.parametrize("encoded", [False, True])
def test_every_integer_type_is_a_seqno_and_a_partition(kind: pa.DataType, encoded: bool) -> None:
    numbers = pa.array([0, 3, None, 1], kind)
    column = numbers.dictionary_encode() if encoded else numbers
    batch = accepted(value=[b""] * 4, producer_id=["p"] * 4, seqno=column, partition=column)
    assert (batch.column("seqno").type, batch.column("partition").type) == (pa.int64(), pa.int32())
    assert batch.column("seqno").to_pylist() == batch.column("partition").to_pylist() == [0, 3, None, 1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_every_timestamp_becomes_microseconds_utc(unit: str, zone: str) -> None:
    ticks = 1_700_000_000 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    batch = accepted(value=[b"", b""], created_at=pa.array([ticks, None], pa.timestamp(unit, zone)))
    assert batch.column("created_at").type == TIMESTAMP
    assert batch.column("created_at").cast(pa.int64()).to_pylist() == [1_700_000_000 * 10**6, None]


@pytest.mark.parametrize(
    "kind",
    [
        ATTRIBUTES,
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.binary(), keys_sorted=True),
        pa.map_(pa.large_string(), pa.large_binary()),
        pa.map_(pa.string_view(), pa.binary_view()),
    ],
    ids=str,
)
@pytest.mark.parametrize(("skipped", "left_over"), [(0, 0), (1, 0), (0, 1), (2, 1), (3, 0)])
def test_every_layout_of_attributes_becomes_canonical(kind: pa.DataType, skipped: int, left_over: int) -> None:
    rows = len(ITEMS) - skipped - left_over
    batch = accepted(value=[b""] * rows, attributes=pa.array(ITEMS, kind).slice(skipped, rows))
    if any(ITEMS[skipped : skipped + rows]):
        assert batch.column("attributes").type.equals(ATTRIBUTES)
        assert batch.column("attributes").to_pylist() == ITEMS[skipped : skipped + rows]
    batch.validate(full=True)


def test_attribute_values_may_be_text_and_both_sides_dictionaries() -> None:
    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    items = pa.array(["1", "", "zwölf"]).dictionary_encode()
    column = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), keys, items)
    batch = accepted(value=[b"", b""], attributes=column)
    assert batch.column("attributes").to_pylist() == [[("a", b"1"), ("b", b"")], [("a", "zwölf".encode())]]


def test_entries_behind_a_null_row_are_neither_checked_nor_counted_nor_kept() -> None:
    offsets = pa.array([0, 1, 3, 4], pa.int32())
    items = pa.array([b"x" * 2 * MESSAGE_BYTES_DEFAULT, None, b"y", b"z"])
    null_rows = pa.array([True, True, False])
    column = pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c", "d"]), items, mask=null_rows)
    batch = accepted(value=[b""] * 3, attributes=column)
    assert batch.column("attributes").to_pylist() == [None, None, [("d", b"z")]]
    assert batch.column("attributes").nbytes < 1000


def test_entries_outside_of_a_slice_are_not_checked() -> None:
    outside, inside = [("a", None), ("b", None)], [("c", b"1")]
    column = pa.array([outside, inside, outside], pa.map_(pa.string(), pa.binary())).slice(1, 1)
    assert accepted(value=[b""], attributes=column).column("attributes").to_pylist() == [inside]


def test_value_may_be_exactly_as_large_as_the_topic_allows() -> None:
    largest = b"x" * (MESSAGE_BYTES_DEFAULT - 4)
    batch = accepted(value=[largest], key=[b"k"], attributes=[[("é", b"1")]])
    assert message_sizes(*(batch.column(name) for name in ("value", "key", "attributes"))).tolist() == [1 << 20]


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=9),
            st.none() | st.binary(max_size=5),
            st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=80)
def test_size_of_a_message_is_value_key_and_attributes(
    rows: list[tuple[bytes, bytes | None, dict[str, bytes] | None]], skipped: int
) -> None:
    batch = publish_batch(
        value=[value for value, _, _ in rows],
        key=[key for _, key, _ in rows],
        attributes=[None if attributes is None else list(attributes.items()) for _, _, attributes in rows],
    ).slice(min(skipped, len(rows) - 1))
    sizes = [
        len(value) + len(key or b"") + sum(len(name.encode()) + len(item) for name, item in (attributes or {}).items())
        for value, key, attributes in rows[min(skipped, len(rows) - 1) :]
    ]
    assert message_sizes(batch.column(0), batch.column(1), batch.column(2)).tolist() == sizes
    assert message_sizes(batch.column(0), None, None).tolist() == [len(value) for value in batch.column(0).to_pylist()]
    assert content_bytes(batch) == sum(sizes)
    assert content_bytes(batch.slice(1)) == sum(sizes[1:])
    assert content_bytes(batch.select(["value"])) == sum(message_sizes(batch.column(0), None, None).tolist())


def test_columns_that_are_null_or_missing_count_nothing() -> None:
    batch = publish_batch(value=[b"abc", b""], key=[None, None], attributes=[[("name", b"x")], None])
    assert content_bytes(batch) == 3 + 5
    assert content_bytes(batch.select(["value", "key"])) == content_bytes(batch.select(["value"])) == 3
    assert content_bytes(batch.slice(1)) == content_bytes(batch.slice(2)) == 0


# What is refused


@pytest.mark.parametrize("wrong", [None, [b"x"], {"value": [b"x"]}, pa.table({"value": [b"x"]})], ids=type)
def test_anything_but_a_record_batch_is_refused(wrong: object) -> None:
    assert refused(wrong).details() == {
        "field": "batch",
        "value": type(wrong).__name__,
        "rule": "it must be a pyarrow RecordBatch",
    }


def test_batch_of_too_many_rows_is_refused() -> None:
    rows = BATCH_ROWS_MAX + 1
    offsets = pa.py_buffer(np.zeros(rows + 1, np.int32))
    values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(b"")])
    assert accepted(value=values.slice(1)).num_rows == BATCH_ROWS_MAX
    assert refused(publish_batch(value=values)).details() == {
        "field": "batch",
        "value": f"{rows} rows",
        "rule": f"at most {BATCH_ROWS_MAX} rows in a batch",
    }


def test_unknown_column_is_refused_with_the_known_ones() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), pa.array([1])], names=["value", "offset"])
    error = refused(batch)
    assert (error.field, error.value) == ("column", "'offset'")
    assert error.rule == f"known columns are {', '.join(PUBLISH_SCHEMA.names)}"


def test_column_given_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"])] * 2, names=["value", "value"])
    assert refused(batch).details() == {"field": "column", "value": "'value'", "rule": "it is given more than once"}


def test_columns_are_checked_before_a_batch_is_sent() -> None:
    wanted = pa.schema([("value", pa.large_string()), ("key", pa.dictionary(pa.int32(), pa.binary()))])
    assert check_columns(wanted) == ["value", "key"]
    for schema, field in (
        (pa.schema([("key", pa.binary())]), "column"),
        (wanted.append(pa.field("colour", pa.string())), "column"),
        (wanted.append(pa.field("partition", pa.float64())), "partition"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            check_columns(schema)
        assert refusal.value.field == field


def test_batch_without_values_is_refused() -> None:
    assert refused(publish_batch(key=[b"k"])).details() == {
        "field": "column",
        "value": "'value' missing",
        "rule": "every batch needs a value column",
    }


@pytest.mark.parametrize("values", [pa.array([b"", None, None], pa.binary()), pa.array([b"x", None], pa.binary_view())])
def test_null_values_stay_null_beside_empty_ones(values: pa.Array) -> None:
    accepted = accept(publish_batch(value=values), DEFAULT_SETTINGS, 4)
    assert accepted.column("value").to_pylist() == values.to_pylist()
    assert has_nulls(accepted)


def test_values_of_no_type_are_nulls() -> None:
    accepted = accept(publish_batch(value=pa.nulls(2)), DEFAULT_SETTINGS, 4)
    assert accepted.column("value").equals(pa.nulls(2, pa.binary()))


def test_bytes_behind_a_null_value_do_not_count() -> None:
    behind = pa.array([b"x" * 100, b"y"], pa.binary())
    mask = pa.py_buffer(b"\x02")
    values = pa.Array.from_buffers(pa.binary(), 2, [mask, *behind.buffers()[1:]])
    assert message_sizes(values, None, None).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("key", pa.array([1, 2, 3]), "binary"),
        ("key", pa.array([b"ab"] * 3, pa.binary(2)), "binary"),
        ("key", pa.array([[b"x"]] * 3), "binary"),
        ("key", pa.RunEndEncodedArray.from_arrays([3], pa.array([b"x"])), "binary"),
        ("key", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"] * 3)), "binary"),
        ("key", pa.array([1, 2, 3]).dictionary_encode(), "binary"),
        ("attributes", pa.array([{"a": b"1"}] * 3), "map<string, binary>"),
        ("attributes", pa.array([1, 2, 3]), "map<string, binary>"),
        ("attributes", pa.array(["{}"] * 3), "map<string, binary>"),
        ("codec", pa.array([b"raw"] * 3), "string"),
        ("created_at", pa.array([1, 2, 3]), "timestamp[us, tz=UTC]"),
        ("created_at", pa.array([1, 2, 3], pa.date32()), "timestamp[us, tz=UTC]"),
        ("created_at", pa.array([1, 2, 3], pa.timestamp("us")), "timestamp[us, tz=UTC]"),
        ("producer_id", pa.array([b"p"] * 3), "string"),
        ("producer_id", pa.array([b"p"] * 3).dictionary_encode(), "string"),
        ("message_group_id", pa.array([1, 2, 3]), "string"),
        ("seqno", pa.array([1.0, 2.0, 3.0]), "int64"),
        ("seqno", pa.array(["1", "2", "3"]), "int64"),
        ("seqno", pa.array([True, False, True]), "int64"),
        ("partition", pa.array([1.0, 2.0, 3.0]), "int32"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_wrong_type_names_column_and_both_types(name: str, column: pa.Array, expected: str) -> None:
    assert column_refused(name, column) == {
        "field": name,
        "value": f"of type {column.type}",
        "rule": f"it must be of type {expected}",
    }


def test_dictionary_of_attributes_is_refused() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0]), pa.array([[("a", b"1")]], ATTRIBUTES))
    assert column_refused("attributes", column)["rule"] == "it must be of type map<string, binary>"


@pytest.mark.parametrize(
    ("kind", "entry", "given", "expected"),
    [
        (pa.map_(pa.int32(), pa.binary()), (1, b"1"), "int32", "string"),
        (pa.map_(pa.binary(), pa.binary()), (b"a", b"1"), "binary", "string"),
        (pa.map_(pa.string(), pa.int64()), ("a", 1), "int64", "binary"),
        (pa.map_(pa.string(), pa.list_(pa.binary())), ("a", []), "list<item: binary>", "binary"),
    ],
    ids=str,
)
def test_attributes_of_wrong_types_are_refused(kind: pa.DataType, entry: Any, given: str, expected: str) -> None:
    assert column_refused("attributes", pa.array([None, [entry], None], kind)) == {
        "field": "attributes",
        "value": f"of type {given}",
        "rule": f"it must be of type {expected}",
    }


@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_the_value_of_an_attribute_may_be_null(skipped: int) -> None:
    column = pa.array([[("a", b"1")], [], [("b", b"2")], [("d", b""), ("d", None)]], pa.map_(pa.string(), pa.binary()))
    batch = publish_batch(value=[b""] * (4 - skipped), attributes=column.slice(skipped))
    accepted = accept(batch, DEFAULT_SETTINGS, 4)
    assert accepted.column("attributes").to_pylist() == column.slice(skipped).to_pylist()
    assert has_nulls(accepted)
    assert not has_nulls(accepted.slice(0, 3 - skipped))


def test_rows_of_an_older_version_get_the_present_types() -> None:
    kind = pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False))
    fields = [pa.field("value", pa.binary(), nullable=False), pa.field("attributes", kind)]
    columns = [pa.array([b"v"]), pa.array([[("a", b"1")]], kind)]
    old = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    new = accept(old, DEFAULT_SETTINGS, 4)
    assert with_present_types(old).schema == new.schema
    assert join([with_present_types(old), new]).to_pylist() == 2 * old.to_pylist()


def test_too_many_attributes_are_refused_by_the_first_row_that_has_them() -> None:
    allowed = [(f"a{number}", b"") for number in range(ATTRIBUTES_PER_MESSAGE_MAX)]
    assert accepted(value=[b""], attributes=[allowed]).num_rows == 1
    many, more = [*allowed, ("b", b"")], [*allowed, ("b", b""), ("c", b"")]
    assert refused_row(value=[b""] * 3, attributes=[allowed, many, more]) == {
        "field": "attributes",
        "value": "1001 attributes",
        "rule": "a message may have at most 1000",
        "row": 1,
    }


@pytest.mark.parametrize(
    ("columns", "row", "size"),
    [
        ({"value": [b"", b"x" * 11, b"x" * 12]}, 1, 11),
        ({"value": [b"x" * 10, b"x" * 8], "key": [None, b"xyz"]}, 1, 11),
        ({"value": [b"", b""], "attributes": [[("é" * 3, b"12345")], None]}, 0, 11),
    ],
)
def test_oversized_message_is_refused_by_row(columns: dict[str, Any], row: int, size: int) -> None:
    small = TopicSettings.make(message_bytes_max=10)
    error = refused(publish_batch(**columns), settings=small)
    assert isinstance(error, MessageTooLarge)
    assert error.details() == {
        "field": "message",
        "value": f"{size} bytes",
        "rule": "this topic allows at most 10 bytes",
        "row": row,
    }


def sparse_values(rows: int, size: int) -> pa.Array:
    """Many large values that take no memory until they are read."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(mmap.mmap(-1, rows * size))])


def test_batch_of_too_many_bytes_is_refused() -> None:
    assert refused(publish_batch(value=sparse_values(257, 1 << 20))).details() == {
        "field": "batch",
        "value": f"{257 << 20} bytes",
        "rule": f"at most {BATCH_BYTES_MAX} bytes in a batch",
    }


def many_views_of_one_value(rows: int) -> pa.Array:
    one = pa.array([b"x" * (1 << 20)], pa.binary_view())
    _, views, data = one.buffers()
    return pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(views.to_pybytes()[:16] * rows), data])


def many_references_to_one_value(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([b"x" * (1 << 20)]))


def large_values(rows: int) -> pa.Array:
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int64) << 20)
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, offsets, pa.py_buffer(mmap.mmap(-1, rows << 20))])


@pytest.mark.parametrize("make", [many_views_of_one_value, many_references_to_one_value, large_values])
@pytest.mark.parametrize("rows", [257, 2500])
def test_column_that_would_grow_too_large_is_refused_before_it_is_made(make: Any, rows: int) -> None:
    # Cast to 32-bit offsets, more than 2 GiB of views would wrap around without an error.
    assert refused(publish_batch(value=make(rows))).details() == {
        "field": "value",
        "value": f"{rows << 20} bytes",
        "rule": f"at most {BATCH_BYTES_MAX} bytes in a batch",
    }


def test_views_behind_nulls_do_not_count() -> None:
    views = many_views_of_one_value(300)
    validity = pa.py_buffer(np.packbits([1] + [0] * 299, bitorder="little"))
    mostly_null = pa.Array.from_buffers(pa.binary_view(), 300, [validity, *views.buffers()[1:]])
    batch = accepted(value=[b""] * 299, key=mostly_null.slice(1))
    assert batch.schema.names == ["value"]
    settings = TopicSettings.make(message_bytes_max=1 << 20)
    assert accepted(settings=settings, value=[b""] * 300, key=mostly_null).column("key").null_count == 299


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()])
@pytest.mark.parametrize("view", [[-(2**31), -1, 0, 0], [2**31 - 1, 0, 7, 2**31 - 1], [100, 0, 0, 2**30]])
def test_view_behind_a_null_is_not_followed(kind: pa.DataType, view: list[int]) -> None:
    long = b"long enough to be outside of its view"
    honest = pa.array([long, None, b"short", None, long], pa.binary()).cast(kind)
    bitmap, buffer, *data = honest.buffers()
    views = np.frombuffer(buffer, np.int32, 20).reshape(5, 4).copy()
    views[[1, 3]] = view
    lying = pa.Array.from_buffers(kind, 5, [bitmap, pa.py_buffer(views), *data])
    lying.validate(full=True)
    for start in (0, 1):
        column, expected = lying.slice(start), [long, None, b"short", None, long][start:]
        batch = accept(publish_batch(value=[b""] * (5 - start), key=column), DEFAULT_SETTINGS, 4)
        assert batch.column("key").to_pylist() == expected
        assert batch.column("key").type == pa.binary()


@pytest.mark.parametrize(
    ("allowed", "codecs", "value", "row"),
    [
        (["raw"], ["raw", None, "gzip", "zstd"], "'gzip'", 2),
        (["raw", "gzip"], ["gzip", "brotli"], "'brotli'", 1),
        (["raw"], ["raw", ""], "''", 1),
        (["raw"], ["RAW"], "'RAW'", 0),
        (["zstd"], ["zstd", None], "not given, which means raw", 1),
        (["zstd"], [None, None], "not given, which means raw", 0),
        (["zstd"], None, "not given, which means raw", 0),
    ],
)
def test_codec_that_the_topic_does_not_allow_is_refused(
    allowed: list[str], codecs: list[str | None] | None, value: str, row: int
) -> None:
    columns: dict[str, Any] = {"value": [b""] * len(codecs or [1])}
    if codecs is not None:
        columns["codec"] = codecs
    error = refused(publish_batch(**columns), settings=TopicSettings.make(codecs=allowed))
    assert isinstance(error, CodecNotAllowed)
    assert error.details() == {
        "field": "codec",
        "value": value,
        "rule": f"this topic allows {', '.join(allowed)}",
        "row": row,
    }


def test_allowed_codecs_pass() -> None:
    only_zstd = TopicSettings.make(codecs=["zstd"])
    assert accepted(settings=only_zstd, value=[b""], codec=["zstd"]).column("codec").to_pylist() == ["zstd"]
    no_zstd = TopicSettings.make(codecs=["raw", "gzip"])
    assert accepted(settings=no_zstd, value=[b""]).schema.names == ["value"]


@pytest.mark.parametrize("name", ["producer_id", "message_group_id"])
def test_long_id_is_refused_by_row_and_counted_in_characters(name: str) -> None:
    longest = "é" * ID_CHARACTERS_MAX
    columns: dict[str, Any] = {"value": [b""] * 3, "producer_id": ["p", None, "p"]}
    assert accepted(**{**columns, name: [None, None, longest]} | {"producer_id": ["p", None, longest]}).num_rows == 3
    assert refused_row(**{**columns, name: ["x", None, longest + "é"]}) == {
        "field": name,
        "value": f"{ID_CHARACTERS_MAX + 1} characters long",
        "rule": "at most 2048 characters",
        "row": 2,
    }


def test_negative_seqno_is_refused_by_row() -> None:
    assert refused_row(value=[b""] * 3, producer_id=["p"] * 3, seqno=[None, 0, -1]) == {
        "field": "seqno",
        "value": "-1",
        "rule": "it must be 0 or more",
        "row": 2,
    }


@pytest.mark.parametrize(
    ("producers", "row"), [(["p", None, "p"], 1), (["p", "p", ""], 2), ([None, None, None], 0), (None, 0)]
)
def test_seqno_without_producer_is_refused_by_row(producers: list[str | None] | None, row: int) -> None:
    columns: dict[str, Any] = {"value": [b""] * 3, "seqno": [5, 6, 7]}
    if producers is not None:
        columns["producer_id"] = producers
    assert refused_row(**columns) == {
        "field": "seqno",
        "value": str(5 + row),
        "rule": "it needs a producer_id in the same row",
        "row": row,
    }


def test_group_without_producer_is_refused_by_row_but_an_empty_one_is_none() -> None:
    columns: dict[str, Any] = {"value": [b""] * 3, "producer_id": ["p", None, ""]}
    assert accepted(**columns, message_group_id=["g", "", None]).num_rows == 3
    assert accepted(value=[b""], message_group_id=[""]).num_rows == 1
    expected = {
        "field": "message_group_id",
        "value": "'g'",
        "rule": "it needs a producer_id in the same row",
    }
    assert refused_row(**columns, message_group_id=["g", None, "g"]) == {**expected, "row": 2}
    assert refused_row(value=[b""], message_group_id=["g"]) == {**expected, "row": 0}


@pytest.mark.parametrize("partitions", [1, 4, 10_000])
@pytest.mark.parametrize("beyond", [True, False])
def test_partition_that_the_topic_does_not_have_is_refused_by_row(partitions: int, beyond: bool) -> None:
    wrong = partitions if beyond else -1
    assert accepted(partitions, value=[b""] * 2, partition=[partitions - 1, None]).num_rows == 2
    assert refused_row(partitions, value=[b""] * 3, partition=[0, None, wrong]) == {
        "field": "partition",
        "value": str(wrong),
        "rule": f"this topic has partitions 0 to {partitions - 1}",
        "row": 2,
    }


@pytest.mark.parametrize("rows_before", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("name", "kind", "wrong", "value", "expected"),
    [
        ("seqno", pa.uint64(), 2**63, str(2**63), "int64"),
        ("partition", pa.int64(), 2**31, str(2**31), "int32"),
        ("partition", pa.int64(), -(2**31) - 1, str(-(2**31) - 1), "int32"),
        ("created_at", pa.timestamp("ns", "UTC"), 1001, "1970-01-01T00:00:00.000001001", "timestamp[us, tz=UTC]"),
        ("created_at", pa.timestamp("s", "UTC"), 2**60, "36534630048-05-13T13:56:16", "timestamp[us, tz=UTC]"),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_number_that_does_not_fit_is_refused_by_row(
    name: str, kind: pa.DataType, wrong: int, value: str, expected: str, rows_before: int, encoded: bool
) -> None:
    column = pa.array([0] * rows_before + [wrong, None, 0, wrong], kind)
    columns = {"value": [b""] * len(column), name: column.dictionary_encode() if encoded else column}
    assert refused_row(**columns) == {
        "field": name,
        "value": value,
        "rule": f"it does not fit type {expected}",
        "row": rows_before,
    }


NOT_TEXT = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"a\xff\xfe"))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("producer_id", NOT_TEXT),
        ("codec", NOT_TEXT),
        ("key", NOT_TEXT),
        ("producer_id", pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), NOT_TEXT)),
        ("producer_id", pa.DictionaryArray.from_arrays(pa.array([0, 9, 0]), pa.array(["p"]), safe=False)),
        (
            "key",
            pa.Array.from_buffers(
                pa.binary(), 3, [None, pa.py_buffer(np.array([0, 2, 1, 3], np.int32)), pa.py_buffer(b"abc")]
            ),
        ),
        ("attributes", pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NOT_TEXT, pa.array([b""] * 3))),
    ],
    # Arrow itself aborts on some of these if it is asked to show them.
    ids=["text", "codec", "bytes", "dictionary", "index", "offsets", "names"],
)
def test_broken_layout_is_refused_before_anything_reads_it(name: str, column: pa.Array) -> None:
    details = column_refused(name, column)
    assert (details["field"], details["value"]) == ("batch", "not valid Arrow")
    assert details["rule"].startswith("In column 1: Invalid: ")


# Batches of several publishers


def test_good_batches_that_look_alike_become_one() -> None:
    batches = [publish_batch(value=[b"x"], key=[None]), publish_batch(value=[b"y", b"z"], key=[b"k", None])]
    (together,), errors = accept_all(batches, DEFAULT_SETTINGS, 4)
    assert errors == []
    assert together.equals(accept(pa.concat_batches(batches), DEFAULT_SETTINGS, 4))


def test_batches_that_look_different_are_checked_one_by_one() -> None:
    batches = [publish_batch(value=[b"x"]), publish_batch(value=[b"y"], key=[b"k"])]
    alone = [accept(batch, DEFAULT_SETTINGS, 4) for batch in batches]
    assert accept_all(batches, DEFAULT_SETTINGS, 4) == (alone, [])
    assert accept_all(batches[:1], DEFAULT_SETTINGS, 4) == (alone[:1], [])


def test_wrong_batch_gets_its_error_and_leaves_the_others_alone() -> None:
    batches = [publish_batch(value=[b"x", b"y"], partition=[0, partition]) for partition in (1, 9, 3)]
    accepted, (first, second, third) = accept_all(batches, DEFAULT_SETTINGS, 4)
    assert isinstance(second, InvalidMessage)
    assert (second.field, second.value, second.row) == ("partition", "9", 1)
    assert first is third is None
    assert accepted == [accept(batch, DEFAULT_SETTINGS, 4) for batch in (batches[0], batches[2])]


def test_broken_layout_of_one_batch_leaves_the_others_alone() -> None:
    good = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b"]))
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 99]), pa.array(["c"]), safe=False)
    batches = [publish_batch(value=[b"", b""], producer_id=ids) for ids in (good, broken)]
    accepted, (first, second) = accept_all(batches, DEFAULT_SETTINGS, 4)
    assert accepted == [accept(batches[0], DEFAULT_SETTINGS, 4)]
    assert first is None
    assert isinstance(second, InvalidInput)
    assert second.value == "not valid Arrow"


def test_batches_too_large_to_be_put_together_are_checked_one_by_one() -> None:
    batches = [publish_batch(value=sparse_values(1200, 1 << 20))] * 2
    accepted, errors = accept_all(batches, DEFAULT_SETTINGS, 4)
    assert accepted == []
    assert [error.value for error in errors if isinstance(error, InvalidInput)] == [f"{1200 << 20} bytes"] * 2


# What readers get


def unnamed(*values: bytes) -> pa.RecordBatch:
    """A batch with a column whose name is not UTF-8, as Arrow's readers give it."""
    column, sink = pa.array(values, pa.binary()), pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([column, column], names=["value", "produce"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes().replace(b"produce", b"\xff\xfeoduce")
    return pa.ipc.open_stream(stream).read_next_batch()


def test_name_of_a_column_that_is_no_text_is_refused() -> None:
    error = refused(unnamed(b"a"))
    assert (error.field, error.rule) == ("column", "the name of a column must be UTF-8")
    assert "xff" in error.value


def test_name_that_is_no_text_leaves_the_other_batches_alone() -> None:
    good, wrong = publish_batch(value=[b"a"]), unnamed(b"b")
    for batches in ([good, wrong, good], [wrong, good], [wrong, wrong]):
        accepted, errors = accept_all(batches, DEFAULT_SETTINGS, 4)
        assert [isinstance(error, InvalidInput) for error in errors] == [batch is wrong for batch in batches]
        assert len(accepted) == errors.count(None)


@pytest.mark.parametrize("trouble", [MemoryError, RuntimeError, pa.ArrowMemoryError])
def test_failure_that_nobody_expected_is_that_of_one_batch(
    trouble: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_on_two(*_: object) -> None:
        raise trouble("no more")

    # Only the wrong batch has partitions.
    monkeypatch.setattr(messages, "_check_partitions", fail_on_two)
    good, wrong = publish_batch(value=[b"a"]), publish_batch(value=[b"b"], partition=[1])
    accepted, (first, second, third) = accept_all([good, wrong, good], DEFAULT_SETTINGS, 4)
    assert isinstance(second, trouble)
    assert first is third is None and accepted == [accept(good, DEFAULT_SETTINGS, 4)] * 2


DAY_US = 86_400 * 1_000_000
FIRST_US = int(datetime(1, 1, 2, tzinfo=UTC).timestamp()) * 1_000_000
LAST_US = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000 - 1


def created_at(*times_us: int | None) -> pa.Array:
    return pa.array(times_us, pa.int64()).cast(TIMESTAMP)


def test_time_that_readers_cannot_show_is_refused_by_row() -> None:
    for wrong in (FIRST_US - 1, FIRST_US - DAY_US - 1, LAST_US + 1, LAST_US + DAY_US + 1, -(2**63), 2**63 - 1):
        found = refused_row(value=[b"a", b"b", b"c"], created_at=created_at(None, 0, wrong))
        assert (found["field"], found["row"]) == ("created_at", 2)
        assert str(wrong) in found["value"]


def test_first_and_last_time_are_accepted_and_can_be_shown_in_every_time_zone() -> None:
    batch = accept(publish_batch(value=[b"a"] * 3, created_at=created_at(FIRST_US, None, LAST_US)), DEFAULT_SETTINGS, 4)
    first, _, last = batch.column("created_at").to_pylist()
    for hours in (-18, 18):
        zone = timezone(timedelta(hours=hours))
        assert first.astimezone(zone).year in (1, 2) and last.astimezone(zone).year == 9999


def test_time_that_can_be_shown_is_read_as_it_was_stored() -> None:
    times = created_at(FIRST_US, None, LAST_US)
    stored = pa.record_batch({"value": [b"a", b"b", b"c"], "created_at": times})
    assert read_batch(stored, 0, 0, np.zeros(3, np.int64)).column("created_at").equals(times)


def test_time_that_was_stored_once_and_cannot_be_shown_is_read_as_none() -> None:
    stored = pa.record_batch(
        {"value": [b"a", b"b", b"c", b"d"], "created_at": created_at(2**63 - 1, 0, None, -(2**63))}
    )
    read = read_batch(stored, 0, 0, np.zeros(4, np.int64))
    assert read.schema.equals(READ_SCHEMA)
    assert read.column("created_at").to_pylist() == [None, datetime(1970, 1, 1, tzinfo=UTC), None, None]
    assert read.column("value").to_pylist() == [b"a", b"b", b"c", b"d"]
    assert len(read.to_pylist()) == 4


def test_padding_adds_missing_columns_as_nulls() -> None:
    padded = pad(accepted(value=[b"x"], key=[b"k"]), PUBLISH_SCHEMA)
    assert padded.schema.equals(PUBLISH_SCHEMA)
    assert padded.to_pylist() == [
        {field.name: {"value": b"x", "key": b"k"}.get(field.name) for field in PUBLISH_SCHEMA}
    ]


def test_joining_one_batch_gives_it_back() -> None:
    batch = accepted(value=[b"x"])
    assert join([batch]) is batch


def test_joining_batches_of_one_schema_keeps_the_schema() -> None:
    batch = join([accepted(value=[b"x"], key=[b"k"]), accepted(value=[b"y", b"z"], key=[None, b"l"])])
    assert batch.to_pylist() == [
        {"value": b"x", "key": b"k"},
        {"value": b"y", "key": None},
        {"value": b"z", "key": b"l"},
    ]


def test_joining_different_batches_has_every_column_of_any() -> None:
    batch = join(
        [
            accepted(value=[b"x"]),
            accepted(value=[b"y"], partition=[3]),
            accepted(value=[b"z"], producer_id=["p"], attributes=[[("a", b"1")]]),
        ]
    )
    assert batch.schema.names == ["value", "attributes", "producer_id", "partition"]
    assert batch.to_pylist() == [
        {"value": b"x", "attributes": None, "producer_id": None, "partition": None},
        {"value": b"y", "attributes": None, "producer_id": None, "partition": 3},
        {"value": b"z", "attributes": [("a", b"1")], "producer_id": "p", "partition": None},
    ]


def test_reader_gets_partition_offset_and_broker_time_beside_what_was_stored() -> None:
    stored = accepted(value=[b"x", b"y", b"z"], key=[b"k", None, b"l"]).slice(1)
    batch = read_batch(stored, 7, 100, np.array([5, 6], np.int64))
    assert batch.schema.equals(READ_SCHEMA)
    batch.validate(full=True)
    assert batch.column("partition").to_pylist() == [7, 7]
    assert batch.column("offset").to_pylist() == [100, 101]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5, 6]
    assert batch.column("value").to_pylist() == [b"y", b"z"]
    assert batch.column("key").to_pylist() == [None, b"l"]
    assert batch.column("seqno").to_pylist() == [None, None]


def test_readers_can_rely_on_place_and_time() -> None:
    assert [field.name for field in READ_SCHEMA if not field.nullable] == ["partition", "offset", "timestamp"]


def test_reader_may_get_nothing_and_times_need_not_be_contiguous() -> None:
    empty = read_batch(accepted(value=[b"x"]).slice(1), 0, 9, np.zeros(0, np.int64))
    assert (empty.num_rows, empty.schema) == (0, READ_SCHEMA)
    every_other = np.arange(6, dtype=np.int64)[::2]
    batch = read_batch(accepted(value=[b"x"] * 3), 0, 9, every_other)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [0, 2, 4]
