"""Readers over Flight for `headrace consume`: of partitions directly, or as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import chosen_partitions, offsets_at
from headrace.cli.output import print_note
from headrace.client import Client, Consumer
from headrace.core.positions import AtTime, Earliest, Latest, Position, moment, read_from

# How long a group member without --follow waits for more: another member may just have left.
_LINGER_SECONDS: Final = 0.5


class FlightReader:
    """Reads partitions without a group."""

    def __init__(self, client: Client, topic: str, place: Position, partitions: list[int], is_following: bool) -> None:
        self._client = client
        self._topic = topic
        self._follow = is_following
        self._followed = partitions or None
        known = client.offsets(topic)
        self._ends = {partition: known[partition][1] for partition in chosen_partitions(topic, partitions, known)}
        bounds = {partition: known[partition] for partition in self._ends}
        self._begins = offsets_at(place, bounds, self._offset_at, topic)

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """The existing messages, partition by partition; then new ones if it follows."""
        for partition, end in self._ends.items():
            begin = self._begins[partition]
            for batch in self._client.scan(self._topic, partition, begin, end, max_messages=limit):
                yield pa.Table.from_batches([batch])
        if self._follow:
            with self._client.follow(self._topic, self._followed, start=self._ends, decode=False) as batches:
                for batch in batches:
                    yield pa.Table.from_batches([batch])

    def printed(self, table: pa.Table) -> None:
        """Does nothing: there is no group to commit to."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _offset_at(self, partition: int, time_us: int) -> int:
        return self._client.offset_at(self._topic, partition, moment(time_us))


class FlightMember:
    """Reads as a member of a group."""

    def __init__(self, client: Client, topic: str, group: str, place: Position | None, is_following: bool) -> None:
        self._client = client
        self._topic = topic
        self._follow = is_following
        if place is not None:
            self._begin_at(place, group)
        self._consumer: Consumer = client.consumer(topic, group, decode=False)

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """The messages that the group has not read yet, and new ones if it follows."""
        while True:
            batch = self._consumer.take(limit, _LINGER_SECONDS)
            if batch.num_rows:
                yield pa.Table.from_batches([batch])
            elif not self._follow and self._has_everything():
                return

    def printed(self, table: pa.Table) -> None:
        """Commit what was printed. If the group was rebalanced meanwhile, another member prints it again."""
        for batch in table.to_batches():
            self._consumer.give(batch)
        if self._consumer.commit():
            print_note("the group was rebalanced: another member may print the last messages again")

    def close(self) -> None:
        """Leave the group, so that other members get the partitions at once."""
        self._consumer.close()

    def _has_everything(self) -> bool:
        """Whether all partitions of this member were read to the end; prefetched messages count as unread."""
        ends = self._client.offsets(self._topic)
        return all(offset >= ends[partition][1] for partition, offset in self._consumer.positions().items())

    def _begin_at(self, place: Position, group: str) -> None:
        """Set where the group starts, if it is new."""
        if not isinstance(place, Earliest | Latest | AtTime):
            raise Failure(
                Exit.USAGE, "a group starts at earliest, latest or a time; move it later with `headrace group seek`"
            )
        if group.casefold() in (known.casefold() for known in self._client.list_groups(self._topic)):
            print_note(
                f"group {group} exists and continues at its committed offsets: --from applies to new groups only"
            )
        else:
            self._client.register_group(self._topic, group, read_from=read_from(place))
