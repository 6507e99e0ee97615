"""Acks made as rows of bytes say the same as those made of messages."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.core.publish.receipts import DUPLICATE_BY_SOURCE, WRITTEN, Receipts
from headrace.protocols.ydb.messages.acks import acks_of, write_response
from tests.protocols.ydb.raw import Status, Write

LARGE = (1 << 63) - 1


def receipts(offsets: list[int], outcomes: list[int]) -> Receipts:
    return Receipts(np.zeros(len(offsets), np.int32), np.array(offsets, np.int64), np.array(outcomes, np.uint8))


@pytest.mark.parametrize(
    ("seqnos", "offsets"),
    [([1], [0]), ([127, 128], [0, 1]), ([1, LARGE], [1 << 40, (1 << 40) + 1]), ([3, 4, 5], [127, 128, 1 << 14])],
)
def test_what_was_written_is_acknowledged_with_its_offset(seqnos: list[int], offsets: list[int]) -> None:
    acks = acks_of(seqnos, receipts(offsets, [WRITTEN] * len(offsets)))
    message = Write.FromServer.FromString(write_response(7, acks))
    assert message.status == Status.SUCCESS and message.write_response.partition_id == 7
    assert message.write_response.write_statistics.HasField("persisting_time")
    assert [(ack.seq_no, ack.written.offset) for ack in message.write_response.acks] == list(
        zip(seqnos, offsets, strict=True)
    )


def test_acks_of_several_requests_share_a_response() -> None:
    skipped = acks_of([5, 6], receipts([9, -1], [WRITTEN, DUPLICATE_BY_SOURCE]))
    message = Write.FromServer.FromString(write_response(0, skipped + acks_of([7], receipts([10], [WRITTEN]))))
    found = [(ack.seq_no, ack.WhichOneof("message_write_status")) for ack in message.write_response.acks]
    assert found == [(5, "written"), (6, "skipped"), (7, "written")]
