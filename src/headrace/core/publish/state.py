"""What planning knows of a topic, and the commits that change it.

`TopicState.apply` is the only place where a commit changes the state: live, once the commit is on the device, and again
on recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.limits import ONE_TIME_WRITERS_MAX, WRITERS_MAX
from headrace.core.messages import NO_MESSAGES, content_bytes
from headrace.core.publish.payload_window import NO_PAYLOADS, Payloads, PayloadWindow
from headrace.core.publish.sources import NO_UPDATES, Int32s, Source, SourceTable, SourceUpdates
from headrace.core.publish.writers import FINGERPRINT_MARK, is_one_time

FINGERPRINT_BITS: Final = 32
# Its numbers are those of the commits of several topics.
STORE_COMMITS: Final = "\x1e"


@dataclass(frozen=True, slots=True)
class CommitKey:
    """Makes a whole commit idempotent: a number at or below the last one of its writer publishes nothing.

    fingerprint: 32 bits that identify the content of the commit. A known number with another fingerprint is a conflict,
        and so is a number below the last one; without a fingerprint both count as repeated.
    """

    writer: str
    number: int
    fingerprint: int | None = None

    def conflicts_with(self, last: CommitKey) -> bool:
        """Whether the writer's last commit shows that another program uses the same writer."""
        if self.fingerprint is None or self.number > last.number:
            return False
        return self.number < last.number or last.fingerprint not in (None, self.fingerprint)

    def recorded(self) -> tuple[CommitKey, ...]:
        """The keys that a commit records: those with a fingerprint are two, so that formats stay as they are.

        The second has a name that no writer can have. Its number is that of the commit, then the fingerprint, so it
        rises with the commits as every number of a writer does.
        """
        if self.fingerprint is None:
            return (self,)
        number = self.number << FINGERPRINT_BITS | self.fingerprint
        return CommitKey(self.writer, self.number), CommitKey(self.writer + FINGERPRINT_MARK, number)


@dataclass(frozen=True, slots=True)
class Directory:
    """The partition directory: where the rows of each partition are in a sorted batch; partitions ascend."""

    partition: Int32s
    first_offset: Int64s
    rows: Int64s

    @property
    def first_row(self) -> Int64s:
        """The first row of each partition."""
        return np.cumsum(self.rows) - self.rows


# The directory of a commit without rows.
NOWHERE: Final = Directory(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Commit:
    """One frame to be written: the stored rows sorted by partition, and everything that follows from them.

    `continues`: the next frame belongs to the same commit, and they become visible together.
    """

    number: int
    time_us: int
    rows: pa.RecordBatch
    directory: Directory
    round_robin: int
    keys: tuple[CommitKey, ...]
    sources: SourceUpdates
    payloads: Payloads
    continues: bool = False
    # Sources whose highest seqno is forgotten.
    resets: tuple[Source, ...] = ()

    def bare(self) -> Commit:
        """The same without its rows, which are not needed once they are written."""
        return replace(self, rows=NO_MESSAGES)

    def bytes_by_partition(self) -> dict[int, int]:
        """What is written to each partition: values, keys and attributes."""
        partitions, counts = self.directory.partition.tolist(), self.directory.rows.tolist()
        starts = accumulate(counts, initial=0)
        return {
            partition: content_bytes(self.rows.slice(start, count))
            for partition, count, start in zip(partitions, counts, starts, strict=False)
        }


@dataclass(slots=True)
class TopicState:
    """All that planning knows of a topic. `apply` is the only place where it changes by a commit."""

    end_offsets: Int64s
    next_number: int = 0
    last_time_us: int = 0
    round_robin: int = 0
    sources: SourceTable = field(default_factory=SourceTable)
    writers: dict[str, int] = field(default_factory=dict)
    one_time_writers: dict[str, int] = field(default_factory=dict)
    window: PayloadWindow = field(default_factory=PayloadWindow)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.end_offsets)

    def apply(self, commit: Commit) -> None:
        """Apply a persisted commit."""
        directory = commit.directory
        self.end_offsets[directory.partition] = directory.first_offset + directory.rows
        self.last_time_us = commit.time_us
        self.round_robin = commit.round_robin
        for source in commit.resets:
            self.sources.reset(source)
        if commit.sources is not NO_UPDATES:
            self.sources.apply(commit.sources, commit.time_us)
        if commit.payloads is not NO_PAYLOADS:
            self.window.add(commit.payloads)
        for key in commit.keys:
            self.remember(key.writer, key.number)
        # Last: it means that all of the commit was applied.
        self.next_number = commit.number + 1

    def remember(self, writer: str, number: int) -> None:
        """Remember the number of a writer's commit; above a maximum the one that was silent longest is forgotten."""
        writers, most = self._writers_like(writer)
        # Removed and inserted again, so that the dictionary's order is that of last use.
        writers[writer] = max(number, writers.pop(writer, number))
        if len(writers) > most:
            del writers[next(iter(writers))]

    def _writers_like(self, writer: str) -> tuple[dict[str, int], int]:
        """The writers that are remembered together with one, and how many at most."""
        if is_one_time(writer):
            return self.one_time_writers, ONE_TIME_WRITERS_MAX
        return self.writers, WRITERS_MAX

    def is_repeated(self, key: CommitKey) -> bool:
        """Whether a commit with this key, or a later one of its writer, was published before."""
        last = self.last_number(key.writer)
        return last is not None and key.number <= last

    def last_number(self, writer: str) -> int | None:
        """The number of a writer's last commit."""
        return self._writers_like(writer)[0].get(writer)

    def last_key(self, writer: str) -> CommitKey | None:
        """The key of a writer's last commit, with its fingerprint if it had one."""
        number = self.last_number(writer)
        if number is None:
            return None
        writers, _ = self._writers_like(writer)
        of, fingerprint = divmod(writers.get(writer + FINGERPRINT_MARK, -1), 1 << FINGERPRINT_BITS)
        return CommitKey(writer, number, fingerprint if of == number else None)

    def add_partitions(self, partitions: int) -> None:
        """Grow to this number of partitions; the new ones are empty."""
        self.end_offsets = np.concatenate([self.end_offsets, np.zeros(partitions - self.partitions, np.int64)])

    def copy(self) -> TopicState:
        """An independent state, to plan several frames of one commit on."""
        return TopicState(
            self.end_offsets.copy(),
            self.next_number,
            self.last_time_us,
            self.round_robin,
            self.sources.copy(),
            self.writers.copy(),
            self.one_time_writers.copy(),
            self.window.copy(),
        )
