"""Readers for `headrace consume`: of partitions directly, or as a member of a group; of one topic or of several.

Several topics are read one after another, and followed in turn. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from headrace.cli.messages.positions import chosen_partitions, group_start, offsets_at
from headrace.cli.terminal.output import print_note
from headrace.client import Client, Consumer
from headrace.core.errors import OffsetOutOfRange
from headrace.core.names import check_group_name
from headrace.core.positions import Position

# How long a group member without --follow waits for more: another member may just have left.
_LINGER_SECONDS: Final = 0.5
# How long it waits for its first partitions.
_JOINING_SECONDS: Final = 3.0
# How long one of several topics is waited for before it is the turn of the next.
_TURN_SECONDS: Final = 0.1

Delivery = tuple[str, pa.RecordBatch]


class MessageSource(Protocol):
    """A source of messages that is notified of what was printed. `total` is how many there are, if that is known."""

    total: int | None

    def deliveries(self, limit: int) -> Iterator[Delivery]: ...

    def printed(self, topic: str, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicRange:
    """What is read of one topic: begin and end offset by partition."""

    topic: str
    begins: dict[int, int]
    ends: dict[int, int]


def range_of(client: Client, topic: str, begin: Position, to: Position | None, partitions: Sequence[int]) -> TopicRange:
    """The messages of a topic between two positions; without an end, all that exist now."""
    known = client.offsets(topic)
    bounds = {partition: known[partition] for partition in chosen_partitions(topic, partitions, known)}
    begins = offsets_at(client, topic, begin, bounds)
    ends = {partition: end for partition, (_, end) in bounds.items()}
    if to is not None:
        ends = offsets_at(client, topic, to, bounds, "--to")
    return TopicRange(topic, begins, ends)


def batches_of(client: Client, found: TopicRange, limit: int) -> Iterator[pa.RecordBatch]:
    """The messages of a range as they are stored, by partition; what retention deletes meanwhile is skipped."""
    for partition, end in found.ends.items():
        offset = found.begins[partition]
        while offset < end:
            try:
                for batch in client.scan(found.topic, partition, offset, end, max_messages=limit):
                    offset += batch.num_rows
                    yield batch
                break
            except OffsetOutOfRange as error:
                if error.start <= offset:
                    raise
                print_note(f"retention deleted messages before they were read: {error}; reading continues there")
                offset = error.start


class PartitionReader:
    """Reads partitions without a group."""

    def __init__(
        self,
        client: Client,
        topics: Sequence[str],
        begin: Position,
        to: Position | None,
        partitions: Sequence[int],
        is_following: bool,
    ) -> None:
        self._client = client
        self._follow = is_following
        self._followed = list(partitions) or None
        self._ranges = [range_of(client, topic, begin, to, partitions) for topic in topics]
        rows = sum(max(0, end - each.begins[at]) for each in self._ranges for at, end in each.ends.items())
        self.total = None if is_following else rows

    def deliveries(self, limit: int) -> Iterator[Delivery]:
        """The existing messages, topic by topic and partition by partition; then new ones if it follows."""
        for found in self._ranges:
            for batch in batches_of(self._client, found, limit):
                yield found.topic, batch
        if self._follow:
            yield from self._new_ones()

    def _new_ones(self) -> Iterator[Delivery]:
        with ExitStack() as stack:
            followed = [
                (
                    each.topic,
                    stack.enter_context(self._client.follow(each.topic, self._followed, start=each.ends, decode=False)),
                )
                for each in self._ranges
            ]
            turn_seconds = None if len(followed) == 1 else _TURN_SECONDS
            while True:
                for topic, following in followed:
                    batch = following.take(turn_seconds)
                    if batch is not None:
                        yield topic, batch

    def printed(self, topic: str, batch: pa.RecordBatch) -> None:
        """Does nothing: there is no group to commit to."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


class MemberReader:
    """Reads as a member of a group of each topic, or as a consumer of one of a fixed size."""

    total: int | None = None

    def __init__(
        self,
        client: Client,
        topics: Sequence[str],
        group: str,
        consumer_index: int | None,
        place: Position | None,
        is_following: bool,
    ) -> None:
        self._client = client
        self._follow = is_following
        self._joined_by = time.monotonic() + _JOINING_SECONDS
        self._consumers: dict[str, Consumer] = {}
        try:
            for topic in topics:
                if place is not None:
                    _begin_at(client, place, topic, group)
                self._consumers[topic] = client.consumer(topic, group, decode=False, consumer_index=consumer_index)
        except BaseException:
            self.close()
            raise

    def deliveries(self, limit: int) -> Iterator[Delivery]:
        """The messages that the group has not read yet, and new ones if it follows."""
        wait_seconds = _LINGER_SECONDS if len(self._consumers) == 1 else _TURN_SECONDS
        while True:
            is_idle = True
            for topic, consumer in self._consumers.items():
                batch = consumer.take(limit, wait_seconds)
                if batch.num_rows:
                    is_idle = False
                    yield topic, batch
            if is_idle and not self._follow and self._has_everything():
                return

    def printed(self, topic: str, batch: pa.RecordBatch) -> None:
        """Commit what was printed. If the group was rebalanced meanwhile, another member prints it again."""
        consumer = self._consumers[topic]
        consumer.give(batch)
        if consumer.commit():
            print_note("the group was rebalanced: another member may print the last messages again")

    def close(self) -> None:
        """Leave the group, so that other members get the partitions at once."""
        for consumer in self._consumers.values():
            consumer.close()

    def _has_everything(self) -> bool:
        """Whether all partitions of this member were read to the end; prefetched messages count as unread.

        A member without partitions may get some soon: others have to let them go first.
        """
        if not all(consumer.assignment for consumer in self._consumers.values()):
            return time.monotonic() >= self._joined_by
        return all(
            offset >= ends[partition][1]
            for topic, consumer in self._consumers.items()
            for ends in [self._client.offsets(topic)]
            for partition, offset in consumer.positions().items()
        )


def _begin_at(client: Client, place: Position, topic: str, group: str) -> None:
    """Set where the group starts, if it is new."""
    start = group_start(place)
    if check_group_name(group) in client.list_groups(topic):
        print_note(f"group {group} exists and continues at its committed offsets: --from applies to new groups only")
    else:
        client.register_group(topic, group, read_from=start)
