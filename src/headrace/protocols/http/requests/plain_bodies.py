"""Bodies that are messages as they stand, for `curl --data-binary @file`: no JSON around them.

    application/octet-stream   the whole body is one message
    text/plain                 each line is a message, as `headrace produce` reads them
    application/x-ndjson       each line is a message and must be JSON; its attribute `content-type` says so

The query has what is common to all messages of the body: key, partition, producer id. With a `seqno`, which is that of
the first message, the others are numbered after it, so that the same request may be repeated. Whole columns are made,
and large bodies in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from litestar.params import QueryParameter

from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.limits import BATCH_ROWS_MAX, ID_CHARACTERS_MAX, PARTITIONS_MAX, SEQNO_MAX
from headrace.core.messages import ATTRIBUTES
from headrace.protocols.http.formats import CONTENT_TYPE_ATTRIBUTE, JSON

BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain"
NDJSON: Final = "application/x-ndjson"
PLAIN: Final = (BYTES, TEXT, NDJSON)

_OF_ALL: Final = f"of all messages of a body of {', '.join(PLAIN)}"
KeyParameter = Annotated[str | None, QueryParameter(description=f"the key {_OF_ALL}")]
PartitionParameter = Annotated[
    int | None, QueryParameter(description=f"the partition {_OF_ALL}", ge=0, lt=PARTITIONS_MAX)
]
ProducerParameter = Annotated[
    str | None, QueryParameter(description=f"the producer id {_OF_ALL}", max_length=ID_CHARACTERS_MAX)
]
GroupIdParameter = Annotated[
    str | None, QueryParameter(description=f"the message group id {_OF_ALL}", max_length=ID_CHARACTERS_MAX)
]
SeqnoParameter = Annotated[
    int | None,
    QueryParameter(description=f"the seqno of the first message {_OF_ALL[3:]}", ge=0, le=SEQNO_MAX - BATCH_ROWS_MAX),
]

# The bytes of lines that are parsed at a time, which takes a millisecond or two.
_PIECE_BYTES: Final = 1 << 20
_LINES: Final = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Common:
    """What all messages of a body have in common."""

    key: str | None = None
    partition: int | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None

    def check_unused(self, kind: str) -> None:
        """Refuse what is given for a body that says such things itself."""
        for name in self.__slots__:
            if getattr(self, name) is not None:
                rule = f"a body of {kind} has it in each message: leave it out of the query"
                raise InvalidInput(name, repr(getattr(self, name))[:100], rule)


def batch_of_plain(body: bytes, kind: str, common: Common) -> pa.RecordBatch:
    """The messages of a plain body."""
    values = _values(body, kind)
    rows = len(values)
    if rows > BATCH_ROWS_MAX:
        raise InvalidInput("body", f"{rows} lines", f"at most {BATCH_ROWS_MAX} messages in a request")
    columns: dict[str, Any] = {"value": values}
    if kind == NDJSON:
        one = pa.array([[(CONTENT_TYPE_ATTRIBUTE, JSON.encode())]], ATTRIBUTES)
        columns["attributes"] = one.take(pa.array(np.zeros(rows, np.int64)))
    if common.key is not None:
        columns["key"] = pa.repeat(pa.scalar(common.key.encode(), pa.binary()), rows)
    if common.partition is not None:
        columns["partition"] = pa.repeat(pa.scalar(common.partition, pa.int32()), rows)
    for name in ("producer_id", "message_group_id"):
        if getattr(common, name) is not None:
            columns[name] = pa.repeat(pa.scalar(getattr(common, name), pa.string()), rows)
    if common.seqno is not None:
        columns["seqno"] = pa.array(np.arange(common.seqno, common.seqno + rows, dtype=np.int64))
    return pa.record_batch(columns)


def _values(body: bytes, kind: str) -> pa.Array:
    if kind == BYTES:
        return pa.array([body], pa.binary())
    if kind == NDJSON:
        return pa.chunked_array(_documents(body), pa.binary()).combine_chunks()
    lines = pc.split_pattern(pa.array([body], pa.binary()), pattern="\n").flatten()
    # What is behind the last line end is a line only if there is something.
    return lines.slice(0, len(lines) - 1) if body.endswith(b"\n") or not body else lines


def _documents(body: bytes) -> list[pa.Array]:
    documents: list[pa.Array] = []
    start, before = 0, 0
    while start < len(body):
        end = body.find(b"\n", start + _PIECE_BYTES) + 1 or len(body)
        piece = body[start:end]
        try:
            piece.decode()
            values = [bytes(raw) for raw in _LINES.decode_lines(piece)]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidMessage("body", f"{len(body)} bytes", f"{_fault(piece, before)}: {error}", before) from None
        documents.append(pa.array(values, pa.binary()))
        start, before = end, before + piece.count(b"\n")
    return documents


def _fault(piece: bytes, before: int) -> str:
    """Which line of a body is at fault; lines are counted from 1."""
    for number, line in enumerate(piece.split(b"\n"), before + 1):
        try:
            line.decode()
            _LINES.decode_lines(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return f"line {number} is not JSON"
    return "a line is not JSON"
