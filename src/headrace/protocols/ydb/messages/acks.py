"""What writers are told of their messages: an ack for each, in order.

Messages that were written, as nearly all are, are acknowledged without an object for each: their acks are rows of bytes
of one length, with numbers as wide as the largest of them needs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.protocols.ydb.statuses import Status
from headrace.protocols.ydb.stubs import topic

_FromServer: Final = topic.StreamWriteMessage.FromServer
_WriteResponse: Final = topic.StreamWriteMessage.WriteResponse
_Ack: Final = _WriteResponse.WriteAck
_SKIPPED: Final = _Ack.Skipped(reason=_Ack.Skipped.Reason.REASON_ALREADY_WRITTEN)
# Tags: numbers and messages, by the numbers of their fields.
_NUMBER, _MESSAGE = 0, 2


def _tag(kind: type[Message], name: str, wire: int) -> int:
    return int(kind.DESCRIPTOR.fields_by_name[name].number) << 3 | wire


_ACKS: Final = _tag(_WriteResponse, "acks", _MESSAGE)
_SEQNO: Final = _tag(_Ack, "seq_no", _NUMBER)
_WRITTEN: Final = _tag(_Ack, "written", _MESSAGE)
_OFFSET: Final = _tag(_Ack.Written, "offset", _NUMBER)
_RESPONSE: Final = _tag(_FromServer, "write_response", _MESSAGE)


def acks_of(seqnos: Sequence[int], receipts: Receipts) -> bytes:
    """The acks of one request, as a part of a response."""
    if np.all(receipts.outcome == WRITTEN):
        return _written(np.array(seqnos, np.int64), receipts.offset)
    pairs = zip(seqnos, receipts.outcome.tolist(), receipts.offset.tolist(), strict=True)
    acks = [
        _Ack(seq_no=seqno, written=_Ack.Written(offset=offset))
        if outcome == WRITTEN
        else _Ack(seq_no=seqno, skipped=_SKIPPED)
        for seqno, outcome, offset in pairs
    ]
    return bytes(_WriteResponse(acks=acks).SerializeToString())


# Go's client needs all of it.
_STATISTICS: Final = _WriteResponse.WriteStatistics(
    persisting_time=Duration(),
    min_queue_wait_time=Duration(),
    max_queue_wait_time=Duration(),
    partition_quota_wait_time=Duration(),
    topic_quota_wait_time=Duration(),
)
_HEAD: Final = _FromServer(status=Status.SUCCESS).SerializeToString() + bytes((_RESPONSE,))


def write_response(partition: int, acks: bytes | bytearray) -> bytes:
    """A message with the acks of some requests."""
    rest = _WriteResponse(partition_id=partition, write_statistics=_STATISTICS).SerializeToString()
    size = _varints(np.array([len(acks) + len(rest)], np.int64)).tobytes()
    return b"".join((_HEAD, size, acks, rest))


def _written(seqnos: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> bytes:
    numbers, places = _varints(seqnos), _varints(offsets)
    written = 1 + places.shape[1]
    head = np.array([_ACKS, 1 + numbers.shape[1] + 2 + written, _SEQNO], np.uint8)
    middle = np.array([_WRITTEN, written, _OFFSET], np.uint8)
    rows = len(seqnos)
    return np.hstack([np.tile(head, (rows, 1)), numbers, np.tile(middle, (rows, 1)), places]).tobytes()


def _varints(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Numbers as Protobuf writes them, each in a row, as wide as the largest."""
    plain = values.astype(np.uint64)
    width = max(1, -(-int(plain.max(initial=0)).bit_length() // 7))
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
    digits = (plain[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    digits[:, :-1] |= 0x80
    return digits
