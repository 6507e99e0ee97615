"""What both ends agree on: operations, tickets, answers and errors as bytes and back."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError, ServerFailed, all_errors
from headrace.core.messages import READ_SCHEMA
from headrace.core.publish.receipts import DUPLICATE_BY_SOURCE, RECEIPT_SCHEMA, WRITTEN, Receipts, all_duplicates
from headrace.wire import operations, tickets
from headrace.wire.answers import decode_answer, encode_receipts, encode_refusal
from headrace.wire.errors import decode_error, encode_error
from headrace.wire.json import Encoding, Messages, messages_of, table_of


@pytest.mark.parametrize("kind", list(all_errors()))
def test_every_error_arrives_as_what_it_was(kind: type[HeadraceError]) -> None:
    examples: dict[str, Any] = {"str": "text", "int": 7, "float": 0.5}
    error = kind(**{field.name: examples[str(field.type)] for field in fields(kind)})
    for arrived in (decode_error(encode_error(error)), decode_answer(encode_refusal(error))):
        assert type(arrived) is kind
        assert arrived.details() == error.details()


@pytest.mark.parametrize(
    "noise", [b"", b"{}", b"[1]", b'{"code":"unheard","fields":{}}', b'{"code":"gone","fields":{"x":1}}']
)
def test_what_is_no_error_is_none(noise: bytes) -> None:
    assert decode_error(noise) is None


def test_error_of_a_newer_server_is_still_an_error() -> None:
    assert isinstance(decode_answer(pa.py_buffer(b'{"code":"unheard","fields":{}}')), ServerFailed)


def test_receipts_arrive() -> None:
    receipts = all_duplicates(3, DUPLICATE_BY_SOURCE)
    arrived = decode_answer(encode_receipts(receipts))
    assert isinstance(arrived, pa.RecordBatch)
    assert arrived.equals(receipts.to_arrow()) and arrived.schema.equals(RECEIPT_SCHEMA)


@pytest.mark.parametrize("offset", [0, 1, (1 << 63) - 1])
@pytest.mark.parametrize("partition", [0, 9_999])
@pytest.mark.parametrize("outcome", [WRITTEN, DUPLICATE_BY_SOURCE])
def test_the_receipt_of_one_message_has_the_bytes_that_arrow_writes(partition: int, offset: int, outcome: int) -> None:
    receipts = Receipts(np.array([partition], np.int32), np.array([offset]), np.array([outcome], np.uint8))
    assert encode_receipts(receipts).equals(receipts.to_arrow().serialize())


def test_operations_arrive_and_unknown_ones_do_not() -> None:
    operation = operations.Seek("orders", "billing", {0: 7, 3: 1})
    assert operations.decode_operation("seek", operations.encode(operation)) == operation
    assert operations.decode_operation("dance", b"{}") is None
    assert operations.decode_answer(operations.Offsets("t"), operations.encode({0: (1, 2)})) == {0: (1, 2)}
    with pytest.raises(msgspec.DecodeError):
        operations.decode_operation("seek", b'{"topic":"t","group":"g","offsets":{},"more":1}')


@pytest.mark.parametrize("ticket", [tickets.Read("t", 1, 2, follow=True), tickets.Follow("t", {0: 1, 5: 2})])
def test_tickets_arrive(ticket: tickets.Reading) -> None:
    assert tickets.decode_read(tickets.encode(ticket)) == ticket


@pytest.mark.parametrize("command", [tickets.Publish("t", producer_id="p", epoch=3), tickets.Stage("t", "s")])
def test_commands_arrive(command: tickets.Upload) -> None:
    assert tickets.decode_upload(tickets.encode(command)) == command


@pytest.mark.parametrize("encoding", ["text", "base64"])
def test_messages_of_json_are_the_rows_that_they_were(encoding: Encoding) -> None:
    whole = {"key": b"k", "attributes": [("kind", b"sale")], "created_at": datetime(2026, 7, 1, tzinfo=UTC)}
    names = {"codec": "raw", "producer_id": "till-7", "message_group_id": "g", "seqno": 7}
    place = {"partition": 1, "timestamp": datetime(2026, 7, 1, 12, tzinfo=UTC)}
    rows = [
        {**place, "offset": 0, "value": "ж".encode(), **whole, **names},
        {**place, "offset": 1, "value": b"\xff\x00"},
    ]
    batch = pa.RecordBatch.from_pylist(rows, READ_SCHEMA)
    given = messages_of(batch, 0, encoding)
    assert [message.encoding for message in given.messages] == [encoding, "base64"]
    assert given.next_offset == 2
    arrived = msgspec.json.decode(msgspec.json.encode(given), type=Messages)
    assert table_of(arrived.messages).to_pylist() == batch.to_pylist()
