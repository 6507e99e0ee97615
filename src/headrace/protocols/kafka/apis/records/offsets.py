"""ListOffsets and OffsetForLeaderEpoch: where partitions begin and end, and where a time is.

A time is looked for among the broker's times, which grow with the offsets; those that producers give need not. Since a
message is stored after it was created, no message created at or after the time is passed over. From there on messages
are read until one was created then, and not for long: if there are many that were not, the answer is where that ended.
All of this reads from the disk, so it is done for some partitions at a time: requests of others have their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from kio.schema.errors import ErrorCode

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError, MessagesLost, OffsetOutOfRange
from headrace.core.limits import TIME_US_MAX
from headrace.core.messages import content_bytes
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.named import NamedPartitions, named_partitions
from headrace.protocols.kafka.apis.topic_ids import TopicLookup
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.records.encode import times_ms_of
from headrace.storage.ranges import OffsetRange

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_WORDS: Final = frozenset(
    {_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD}
)
_MILLISECOND_US: Final = 1000
_NOTHING: Final[dict[str, Any]] = {"offset": -1, "timestamp": -1}
# Partitions in which a time is looked for at once, and what is read of them together, round by round.
_SEARCHED_TOGETHER: Final = 100
_ROUNDS: Final = ((1_000, 64 << 10), (10_000, 1 << 20), (100_000, 8 << 20), (100_000, 8 << 20))
# What one request may have read to find when messages were created, a message counting for at least so much.
_READ_BYTES_MAX: Final = 64 << 20
_MESSAGE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class _Search:
    """A partition in which a time is looked for, or the time of its last message; and the answer to complete."""

    reader: TopicReader
    partition: int
    time_ms: int
    start: int
    end: int
    answer: dict[str, Any]


@dataclass(slots=True)
class _Reading:
    """How much a request may still have read."""

    bytes_left: int = _READ_BYTES_MAX


async def list_offsets(call: Call, request: Any) -> dict[str, Any]:
    """The offset at a time, or at either end, of each partition; one that is named more than once is refused."""
    asked = await named_partitions(call, request.topics, "name", "partition_index")
    topics, searches = await call.parts.bridge.call(_topics, call, asked)
    reading = _Reading()
    for first in range(0, len(searches), _SEARCHED_TOGETHER):
        await call.parts.bridge.call(_search, searches[first : first + _SEARCHED_TOGETHER], reading)
    return {"topics": topics}


def _topics(call: Call, asked: NamedPartitions) -> tuple[list[dict[str, Any]], list[_Search]]:
    """The answers, and those that a search is still to complete."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    searches: list[_Search] = []
    return [
        {"name": name, "partitions": _partitions(call, lookup, name, partitions, asked.repeated, searches)}
        for name, partitions in asked.topics.items()
    ], searches


def _partitions(
    call: Call,
    lookup: TopicLookup,
    topic: str,
    asked: dict[int, Any],
    repeated: set[tuple[str, int]],
    searches: list[_Search],
) -> list[dict[str, Any]]:
    """The answers for a topic, whose bounds are looked up once."""
    try:
        for operation in {"offsets" if each.timestamp in _WORDS else "offsets_at" for each in asked.values()}:
            call.principal.require(operation, topic)
        reader = lookup.reader(topic)
        bounds = reader.offsets()
    except HeadraceError as error:
        return [_failed(partition, code_of(error)) for partition in asked]
    answers = []
    for partition, each in asked.items():
        if (topic, partition) in repeated:
            answers.append(_failed(partition, ErrorCode.invalid_request))
            continue
        if not 0 <= partition < len(bounds.end):
            answers.append(_failed(partition, ErrorCode.unknown_topic_or_partition))
            continue
        if each.timestamp < 0 and each.timestamp not in _WORDS:
            answers.append(_failed(partition, ErrorCode.unsupported_version))
            continue
        start, end = int(bounds.start[partition]), int(bounds.end[partition])
        answer = {"partition_index": partition, "error_code": ErrorCode.none, "leader_epoch": 0, **_NOTHING}
        answers.append(answer)
        if each.timestamp == _LATEST:
            answer["offset"] = end
        elif each.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            answer["offset"] = start
        elif each.timestamp not in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
            searches.append(_Search(reader, partition, each.timestamp, start, end, answer))
    return answers


def _search(searches: list[_Search], reading: _Reading) -> None:
    """Complete the answers of some partitions, those of a topic and a time together."""
    groups: dict[tuple[str, int], list[_Search]] = {}
    for each in searches:
        groups.setdefault((each.reader.name, each.time_ms), []).append(each)
    for (_, time_ms), group in groups.items():
        try:
            _search_together(group[0].reader, time_ms, {each.partition: each for each in group}, reading)
        except HeadraceError as error:
            for each in group:
                each.answer.update(_NOTHING, **_failed(each.partition, code_of(error)))


def _search_together(reader: TopicReader, time_ms: int, group: Mapping[int, _Search], reading: _Reading) -> None:
    if time_ms == _MAX_TIMESTAMP:
        found = {partition: each.end - 1 for partition, each in group.items()}
    else:
        found = reader.positions_at(min(time_ms * _MILLISECOND_US, TIME_US_MAX), list(group))
    present = {number: offset for number, offset in found.items() if group[number].start <= offset < group[number].end}
    if time_ms != _MAX_TIMESTAMP and reader.settings.timestamp_type == "created":
        for partition, (offset, found_ms) in _take_created(reader, time_ms, present, group, reading).items():
            group[partition].answer.update(offset=offset, timestamp=found_ms)
    for partition, time_us in reader.times_of(present).items():
        group[partition].answer.update(offset=present[partition], timestamp=time_us // _MILLISECOND_US)


def _take_created(
    reader: TopicReader, time_ms: int, positions: dict[int, int], group: Mapping[int, _Search], reading: _Reading
) -> dict[int, tuple[int, int]]:
    """The first messages from these positions on that were created then or later, with their times.

    Left in `positions` is where reading ended; partitions that were read to their end are not.
    """
    created: dict[int, tuple[int, int]] = {}
    for messages_max, bytes_max in _ROUNDS:
        if not positions or reading.bytes_left <= 0:
            break
        try:
            batches = reader.read(positions, messages_max, min(bytes_max, reading.bytes_left))
        except (MessagesLost, OffsetOutOfRange):
            # Retention was faster: the answer is where the broker's time is.
            break
        for batch in batches:
            reading.bytes_left -= max(content_bytes(batch), batch.num_rows * _MESSAGE_BYTES)
            partition = batch.column("partition")[0].as_py()
            offsets, times_ms = np.asarray(batch.column("offset")), times_ms_of(batch, is_broker_time=False)
            hits = np.flatnonzero(times_ms >= time_ms)
            if partition not in positions or offsets[-1] < positions[partition]:
                continue
            if len(hits):
                created[partition] = int(offsets[hits[0]]), int(times_ms[hits[0]])
            if len(hits) or offsets[-1] + 1 >= group[partition].end:
                del positions[partition]
            else:
                positions[partition] = int(offsets[-1]) + 1
    return created


def _failed(partition: int, code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": code, "leader_epoch": -1}


async def offset_for_leader_epoch(call: Call, request: Any) -> dict[str, Any]:
    """The end of each partition: there is one epoch, since nothing is ever truncated."""
    asked = await named_partitions(call, request.topics, "topic", "partition")
    return {"topics": await call.parts.bridge.call(_ends, call, asked)}


def _ends(call: Call, asked: NamedPartitions) -> list[dict[str, Any]]:
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    return [
        {"topic": name, "partitions": _ends_of(call, lookup, name, partitions)}
        for name, partitions in asked.topics.items()
    ]


def _ends_of(call: Call, lookup: TopicLookup, topic: str, asked: dict[int, Any]) -> list[dict[str, Any]]:
    try:
        call.principal.require("offsets", topic)
        bounds = lookup.reader(topic).offsets()
    except HeadraceError as error:
        return [{"error_code": code_of(error), "partition": partition} for partition in asked]
    return [_end(bounds, partition) for partition in asked]


def _end(bounds: OffsetRange, partition: int) -> dict[str, Any]:
    if not 0 <= partition < len(bounds.end):
        return {"error_code": ErrorCode.unknown_topic_or_partition, "partition": partition}
    end = int(bounds.end[partition])
    return {"error_code": ErrorCode.none, "partition": partition, "leader_epoch": 0, "end_offset": end}
