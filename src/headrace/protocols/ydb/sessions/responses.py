"""Reads what a session is sent next: one response of messages from several partitions. Called in threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headrace.core.errors import MessagesLost, OffsetOutOfRange
from headrace.protocols.ydb.messages.outgoing import partition_data
from headrace.protocols.ydb.sessions.read_topic import ReadTopic
from headrace.protocols.ydb.statuses import Status
from headrace.protocols.ydb.stubs import topic as messages

_Read: Final = messages.StreamReadMessage
_MESSAGES_MAX: Final = 10_000


def response(
    topic: ReadTopic, positions: dict[int, int], numbers: Mapping[int, int], bytes_max: int
) -> tuple[bytes, int, dict[int, int]] | None:
    """A response with messages from these positions on, what it counts, and the positions after it."""
    batches = _read(topic, positions, bytes_max)
    after: dict[int, int] = {}
    parts, total = [], 0
    for batch in batches:
        partition = batch.column("partition")[0].as_py()
        data, size = partition_data(numbers[partition], batch)
        parts.append(data)
        total += size
        after[partition] = batch.column("offset")[-1].as_py() + 1
    if not parts:
        return None
    read = _Read.ReadResponse(partition_data=parts, bytes_size=total)
    return _Read.FromServer(status=Status.SUCCESS, read_response=read).SerializeToString(), total, after


def _read(topic: ReadTopic, positions: dict[int, int], bytes_max: int) -> list[pa.RecordBatch]:
    """Read on; positions that retention has passed continue where messages are."""
    for _ in range(2):
        offsets = topic.reader.offsets()
        present = {
            partition: offsets.readable(partition, max(offset, offsets.start[partition].item()))
            for partition, offset in positions.items()
        }
        # A client may start beyond the end: its messages are yet to come.
        present = {partition: at for partition, at in present.items() if at < offsets.end[partition]}
        try:
            return topic.reader.read(present, _MESSAGES_MAX, bytes_max) if present else []
        except (OffsetOutOfRange, MessagesLost):
            # Retention took them in between.
            continue
    return []
