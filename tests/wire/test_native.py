"""Messages in their compact form: back as they were, and never more than was sent from bytes that make no sense."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidInput
from headrace.wire.native import Record, decode_record, encode_record

BYTES = st.none() | st.binary(max_size=40)
RECORDS = st.builds(
    Record,
    value=BYTES,
    key=BYTES,
    partition=st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    created_us=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    seqno=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    attributes=st.none() | st.dictionaries(st.text(max_size=8), BYTES, max_size=4),
)


@given(RECORDS)
def test_a_message_comes_back_as_it_was(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(RECORDS, st.integers(0, 200))
def test_a_message_that_is_cut_off_is_refused_or_has_a_shorter_value(record: Record, length: int) -> None:
    whole = encode_record(record)
    try:
        found = decode_record(whole[: min(length, len(whole))])
    except InvalidInput:
        return
    assert (record.value or b"").startswith(found.value or b"")
    assert found._replace(value=None) == record._replace(value=None)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error_of_the_caller(content: bytes) -> None:
    try:
        record = decode_record(content)
    except InvalidInput:
        return
    assert len(record.value or b"") < len(content)


@pytest.mark.parametrize("flags", [0x02, 0x20])
def test_lengths_that_are_claimed_take_no_memory(flags: int) -> None:
    lying = bytes((flags,)) + (b"\x00\x01" if flags == 0x20 else b"") + b"\x7f\xff\xff\xff" + b"x"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput):
            decode_record(lying)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
