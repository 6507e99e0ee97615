"""Reads a few messages of a topic for a page: the newest, or those from an offset or a time on.

What is read is bounded: `PARTITIONS_MAX` partitions, as many messages as are shown from each, and about `READ_BYTES` of
values from each, judged by the mean size of the topic's messages. So the size of a topic does not matter. `Tail` goes
on from there: it looks at the end offsets and reads only partitions that grew, the newest messages only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from headrace import aio
from headrace.client.message import Message, messages_of
from headrace.core.errors import OffsetOutOfRange
from headrace.core.reports.descriptions import TopicDescription

PARTITIONS_MAX: Final = 32
READ_BYTES: Final = 4 << 20
# What a page holds of messages that are much larger than the mean; at least one is shown.
HELD_BYTES_MAX: Final = 64 << 20

Start = Literal["newest", "offset", "time"]


@dataclass(frozen=True)
class MessageQuery:
    """Which messages a page wants: from where, of one partition or of all, and how many."""

    start: Start = "newest"
    partition: int | None = None
    offset: int = 0
    time: datetime | None = None
    count: int = 50


@dataclass(frozen=True)
class Found:
    """Messages in the order in which they are shown, and how many partitions were not looked at."""

    messages: list[Message]
    partitions_left_out: int = 0


async def read(client: aio.AsyncClient, topic: TopicDescription, wanted: MessageQuery) -> Found:
    """The wanted messages: the newest first, or the oldest first from an offset or a time on."""
    partitions, left_out = _partitions(topic.offsets, wanted.partition)
    count = min(wanted.count, _fitting(topic))
    ranges = await asyncio.gather(*(_range(client, topic, each, wanted, count) for each in partitions))
    found = await asyncio.gather(
        *(read_range(client, topic.name, *place) for place in zip(partitions, *zip(*ranges, strict=True), strict=True))
        if partitions
        else ()
    )
    is_newest = wanted.start == "newest"
    merged = sorted((message for part in found for message in part), key=_by_time, reverse=is_newest)
    return Found(_held(merged[: wanted.count]), left_out)


def _by_time(message: Message) -> tuple[int, int, int]:
    return message.timestamp_us, message.offset, message.partition


def _partitions(offsets: dict[int, tuple[int, int]], wanted: int | None) -> tuple[list[int], int]:
    """The partitions to read: the wanted one, or those with messages, the fullest first, up to a limit."""
    if wanted is not None:
        return ([wanted] if wanted in offsets else []), 0
    filled = sorted((start - end, partition) for partition, (start, end) in offsets.items() if end > start)
    return [partition for _, partition in filled[:PARTITIONS_MAX]], max(0, len(filled) - PARTITIONS_MAX)


def _fitting(topic: TopicDescription) -> int:
    """How many messages of mean size may be read from a partition."""
    messages = sum(end - start for start, end in topic.offsets.values())
    mean_bytes = topic.bytes_stored / messages if messages else 1.0
    return max(1, int(READ_BYTES / max(1.0, mean_bytes)))


async def _range(
    client: aio.AsyncClient, topic: TopicDescription, partition: int, wanted: MessageQuery, count: int
) -> tuple[int, int]:
    """Where to read in a partition: the first offset, and the one behind the last."""
    start, end = topic.offsets[partition]
    if wanted.start == "newest":
        return max(start, end - count), end
    if wanted.start == "time" and wanted.time is not None:
        start = max(start, await client.offset_at(topic.name, partition, wanted.time))
    else:
        start = max(start, wanted.offset)
    return start, min(end, start + count)


async def read_range(client: aio.AsyncClient, topic: str, partition: int, first: int, end: int) -> list[Message]:
    """The messages of a range; those that retention deleted meanwhile are missing."""
    if first >= end:
        return []
    try:
        batch = await client.read(topic, partition, first, end - first, on_undecodable="raw")
    except OffsetOutOfRange:
        return []
    return list(messages_of(batch))


class Tail:
    """The newest messages of a topic, kept up to date."""

    def __init__(self, topic: TopicDescription, wanted: MessageQuery, shown: list[Message]) -> None:
        self._name = topic.name
        self._wanted = wanted
        self._fitting = _fitting(topic)
        self._ends = {partition: end for partition, (_, end) in topic.offsets.items()}
        self.messages = shown
        self.passed_over = 0

    @property
    def interval_seconds(self) -> float:
        """How long to wait between two looks: the answer is as large as there are partitions."""
        return 1.0 if len(self._ends) <= 100 else 5.0

    async def look(self, client: aio.AsyncClient) -> bool:
        """Read what is new; whether anything was."""
        offsets = await client.offsets(self._name)
        grown = [
            (partition, max(self._ends.get(partition, 0), start), end)
            for partition, (start, end) in offsets.items()
            if end > self._ends.get(partition, 0) and self._wanted.partition in (None, partition)
        ]
        ends = {partition: end for partition, (_, end) in offsets.items()}
        if not grown:
            shrunk = any(end < self._ends.get(partition, 0) for partition, end in ends.items())
            self._ends = ends
            if shrunk:
                self.messages = []
            return shrunk
        grown.sort(key=lambda each: each[1] - each[2])
        count = min(self._wanted.count, self._fitting)
        parts = [(partition, max(first, end - count), end) for partition, first, end in grown[:PARTITIONS_MAX]]
        found = await asyncio.gather(*(read_range(client, self._name, *part) for part in parts))
        self._ends = ends
        arrived = sum(end - first for _, first, end in grown)
        new = [message for part in found for message in part]
        self.passed_over += arrived - len(new)
        self.messages = _newest([*new, *self.messages], self._wanted.count)
        return True


def _newest(messages: Iterable[Message], count: int) -> list[Message]:
    return _held(sorted(messages, key=_by_time, reverse=True)[:count])


def _held(messages: list[Message]) -> list[Message]:
    """The first messages, as many as a page may hold."""
    total = 0
    for index, message in enumerate(messages):
        total += len(message.value or b"")
        if total > HELD_BYTES_MAX:
            return messages[: max(1, index)]
    return messages
