"""Reads a few messages of a topic for a page: the newest, or those from an offset or a time on.

What is read is bounded, however large the topic and its messages are: `PARTITIONS_MAX` partitions, as many messages as
are shown from each, and about `READ_BYTES` in all. Partitions share the bytes evenly and are read a few at a time; once
the bytes are used up, the others are left out, and the page says how many those are. Of a partition with large messages
fewer are read, the newest ones. Each read returns at least one message, which may be larger than its share: so the
most that a page reads is its bytes, and one message for each partition that is read at the same time.

`Tail` continues from there: it looks at the end offsets and reads only partitions that grew, the newest messages only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from headrace import aio
from headrace.client.message import Message, messages_of
from headrace.core.errors import OffsetOutOfRange
from headrace.core.reports.descriptions import TopicDescription

PARTITIONS_MAX: Final = 32
# What a page reads in all, and of one partition at least.
READ_BYTES: Final = 4 << 20
PARTITION_BYTES_MIN: Final = 64 << 10
# How many partitions are read at the same time.
_AT_ONCE: Final = 8

Start = Literal["newest", "offset", "time"]
# A partition, the first offset to read there, and the one behind the last.
Range = tuple[int, int, int]


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
    """Messages in the order in which they are shown, how many partitions were not looked at, and whether there are
    fewer messages than wanted because they are large."""

    messages: list[Message]
    partitions_left_out: int = 0
    is_cut: bool = False


async def read(client: aio.AsyncClient, topic: TopicDescription, wanted: MessageQuery) -> Found:
    """The wanted messages: the newest first, or the oldest first from an offset or a time on."""
    partitions, left_out = _partitions(topic.offsets, wanted.partition)
    ranges = await _ranges(client, topic, partitions, wanted)
    is_newest = wanted.start == "newest"
    found, is_read = await _read_ranges(client, topic.name, ranges, is_newest)
    shown = _held(sorted(found, key=_by_time, reverse=is_newest)[: wanted.count])
    there = sum(max(0, end - first) for _, first, end in ranges)
    return Found(shown, left_out + len(ranges) - is_read, len(shown) < min(wanted.count, there))


def _by_time(message: Message) -> tuple[int, int, int]:
    return message.timestamp_us, message.offset, message.partition


def _partitions(offsets: dict[int, tuple[int, int]], wanted: int | None) -> tuple[list[int], int]:
    """The partitions to read: the wanted one, or those with messages, the fullest first, up to a limit."""
    if wanted is not None:
        return ([wanted] if wanted in offsets else []), 0
    filled = sorted((start - end, partition) for partition, (start, end) in offsets.items() if end > start)
    return [partition for _, partition in filled[:PARTITIONS_MAX]], max(0, len(filled) - PARTITIONS_MAX)


async def _ranges(
    client: aio.AsyncClient, topic: TopicDescription, partitions: list[int], wanted: MessageQuery
) -> list[Range]:
    bounds = {partition: topic.offsets[partition] for partition in partitions}
    if wanted.start == "newest":
        return [(partition, max(start, end - wanted.count), end) for partition, (start, end) in bounds.items()]
    firsts = dict.fromkeys(partitions, wanted.offset)
    if wanted.start == "time" and wanted.time is not None:
        firsts = await client.offsets_at(topic.name, wanted.time, partitions)
    starts = {partition: max(start, firsts[partition]) for partition, (start, _) in bounds.items()}
    return [(partition, start, min(bounds[partition][1], start + wanted.count)) for partition, start in starts.items()]


async def _read_ranges(
    client: aio.AsyncClient, topic: str, ranges: Sequence[Range], is_newest: bool
) -> tuple[list[Message], int]:
    """The messages of some ranges, within the bytes of a page; and how many of the ranges were read."""
    share = max(PARTITION_BYTES_MIN, READ_BYTES // max(1, len(ranges)))
    read_part = _read_newest if is_newest else read_range
    found: list[Message] = []
    read_bytes = 0
    for first in range(0, len(ranges), _AT_ONCE):
        if read_bytes >= READ_BYTES:
            return found, first
        some = ranges[first : first + _AT_ONCE]
        for part in await asyncio.gather(*(read_part(client, topic, *each, share) for each in some)):
            found += part
            read_bytes += sum(len(message.value or b"") for message in part)
    return found, len(ranges)


async def read_range(
    client: aio.AsyncClient, topic: str, partition: int, first: int, end: int, max_bytes: int = READ_BYTES
) -> list[Message]:
    """The first messages of a range; those that retention deleted meanwhile are missing."""
    if first >= end:
        return []
    try:
        batch = await client.read(topic, partition, first, end - first, max_bytes=max_bytes, on_undecodable="raw")
    except OffsetOutOfRange:
        return []
    return list(messages_of(batch))


async def _read_newest(
    client: aio.AsyncClient, topic: str, partition: int, first: int, end: int, max_bytes: int
) -> list[Message]:
    """The last messages of a range that fit: it is halved until its end can be read in one go."""
    while True:
        found = await read_range(client, topic, partition, first, end, max_bytes)
        if end - first <= 1 or (found and found[-1].offset == end - 1):
            return found
        first = max(end - max(1, len(found)), (first + end) // 2)


class Tail:
    """The newest messages of a topic, kept up to date."""

    def __init__(self, topic: TopicDescription, wanted: MessageQuery, shown: list[Message]) -> None:
        self._name = topic.name
        self._wanted = wanted
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
        count = self._wanted.count
        parts = [(partition, max(first, end - count), end) for partition, first, end in grown[:PARTITIONS_MAX]]
        new, _ = await _read_ranges(client, self._name, parts, is_newest=True)
        self._ends = ends
        arrived = sum(end - first for _, first, end in grown)
        self.passed_over += arrived - len(new)
        self.messages = _newest([*new, *self.messages], self._wanted.count)
        return True


def _newest(messages: Iterable[Message], count: int) -> list[Message]:
    return _held(sorted(messages, key=_by_time, reverse=True)[:count])


def _held(messages: list[Message]) -> list[Message]:
    """The first messages, as many as a page may hold; at least one."""
    total = 0
    for index, message in enumerate(messages):
        total += len(message.value or b"")
        if total > READ_BYTES:
            return messages[: max(1, index)]
    return messages
