"""ListOffsets and OffsetForLeaderEpoch: where partitions begin and end, and where a time is.

A time is looked for among the broker's times, which grow with the offsets; those that producers give need not. Since a
message is stored after it was created, no message created at or after the time is passed over. That reads from the
disk, so it is done for some partitions at a time: requests of others have their turn in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.limits import TIME_US_MAX
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.named import NamedPartitions, named_partitions
from headrace.protocols.kafka.apis.topic_ids import TopicLookup
from headrace.protocols.kafka.errors import code_of
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
# Partitions in which a time is looked for at once.
_SEARCHED_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class _Search:
    """A partition in which a time is looked for, or the time of its last message; and the answer to complete."""

    reader: TopicReader
    partition: int
    time_ms: int
    start: int
    end: int
    answer: dict[str, Any]


async def list_offsets(call: Call, request: Any) -> dict[str, Any]:
    """The offset at a time, or at either end, of each partition; one that is named more than once is refused."""
    asked = await named_partitions(call, request.topics, "name", "partition_index")
    topics, searches = await call.parts.bridge.call(_topics, call, asked)
    for first in range(0, len(searches), _SEARCHED_TOGETHER):
        await call.parts.bridge.call(_search, searches[first : first + _SEARCHED_TOGETHER])
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


def _search(searches: list[_Search]) -> None:
    """Complete the answers of some partitions, those of a topic and a time together."""
    groups: dict[tuple[str, int], list[_Search]] = {}
    for each in searches:
        groups.setdefault((each.reader.name, each.time_ms), []).append(each)
    for (_, time_ms), group in groups.items():
        try:
            _search_together(group[0].reader, time_ms, {each.partition: each for each in group})
        except HeadraceError as error:
            for each in group:
                each.answer.update(_NOTHING, **_failed(each.partition, code_of(error)))


def _search_together(reader: TopicReader, time_ms: int, group: Mapping[int, _Search]) -> None:
    if time_ms == _MAX_TIMESTAMP:
        found = {partition: each.end - 1 for partition, each in group.items()}
    else:
        found = reader.positions_at(min(max(0, time_ms) * _MILLISECOND_US, TIME_US_MAX), list(group))
    present = {number: offset for number, offset in found.items() if group[number].start <= offset < group[number].end}
    for partition, time_us in reader.times_of(present).items():
        group[partition].answer.update(offset=present[partition], timestamp=time_us // _MILLISECOND_US)


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
