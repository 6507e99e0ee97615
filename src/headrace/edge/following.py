"""Follows partitions of a topic: where a follower is, and in which batches it gets what was read, over any protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.limits import FETCH_MESSAGES_MAX
from headrace.wire.tickets import Follow

# Up to this number of messages of several partitions are sent together: joining them costs less than separate batches.
_MIXED_MESSAGES: Final = 10_000
# More are joined if each partition has at most this number.
_SMALL_BATCH_MESSAGES: Final = 64


class Follower:
    """One follower. Belongs to the thread or the event loop that sends."""

    def __init__(self, reader: TopicReader, follow: Follow) -> None:
        self.reader = reader
        self._follow = follow
        self._positions = dict(follow.positions)
        # Each partition that is behind may fill a batch: a share of one would make many small ones.
        # A position out of range stays so, and is an error.
        bound = max(follow.max_messages, FETCH_MESSAGES_MAX)
        self.messages_max = min(follow.max_messages * max(1, len(self._positions)), bound)
        self._partitions = 0

    def check(self) -> None:
        """Raise for positions beyond the end."""
        self.reader.check_reached(self._positions)

    def positions(self) -> Mapping[int, int]:
        """Where it is, in partitions that were added too if it is growing."""
        if self._follow.growing and self._partitions != self.reader.partitions:
            self._partitions = self.reader.partitions
            self._positions = dict.fromkeys(range(self._partitions), 0) | self._positions
        return self._positions

    def passed_on(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was read, each batch of one partition, as it is sent; the follower is behind it from now on."""
        for batch in batches:
            self._positions[batch.column("partition")[0].as_py()] += batch.num_rows
        send = _mixed if self._follow.mixed else _cut
        return send(batches, self._follow.max_messages)


def _mixed(batches: list[pa.RecordBatch], messages_max: int) -> Iterator[pa.RecordBatch]:
    """Few messages of several partitions in one batch, small batches put together, large ones each by itself."""
    limit, total = min(messages_max, _MIXED_MESSAGES), sum(batch.num_rows for batch in batches)
    if total > limit and total > _SMALL_BATCH_MESSAGES * len(batches):
        yield from _cut(batches, messages_max)
        return
    few: list[pa.RecordBatch] = []
    rows = 0
    for batch in _cut(batches, limit):
        if rows + batch.num_rows > limit:
            yield from _joined(few)
            few, rows = [], 0
        few.append(batch)
        rows += batch.num_rows
    yield from _joined(few)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [pa.concat_batches(batches)] if len(batches) > 1 else batches


def _cut(batches: list[pa.RecordBatch], messages_max: int) -> Iterator[pa.RecordBatch]:
    """The batches, in pieces of limited size."""
    for batch in batches:
        for start in range(0, batch.num_rows, messages_max):
            yield batch.slice(start, messages_max)
