"""An open topic: its record, its log, the queue of its publishers and the watches of its readers.

In a shared store other servers write to the log too. The last known start and end offsets are cached for callers that
must not block, such as an event loop; `offsets` queries the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.broker.clock import Clock
from headrace.broker.counters import Counters
from headrace.broker.publish.combiner import Leaders
from headrace.broker.publish.commit_builder import CommitBuilder
from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.parts import PassedNumbers
from headrace.broker.publish.submission import Submission
from headrace.broker.read.feed import written_of
from headrace.broker.read.wakeups import Wakeups
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import (
    HeadraceError,
    OutOfMemory,
    SourceNotFound,
    StorageError,
    StoreUnavailable,
    again,
    exhausted,
)
from headrace.core.hashes.columns import Int64s
from headrace.core.messages import content_bytes
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.plan import plan_reset
from headrace.core.publish.state import Commit, Directory, TopicState
from headrace.core.reports.histogram import COUNTS, SECONDS, Histogram
from headrace.core.topics.write_speed import WriteSpeeds
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Fences, OffsetRange, TopicLog

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
OtherWindows = Callable[["Topic"], Sequence[PayloadWindow]]


class Topic:
    """An open topic. Thread-safe."""

    def __init__(
        self,
        record: TopicRecord,
        log: TopicLog,
        settings: BrokerSettings,
        clock: Clock,
        counters: Counters,
        store_window_lock: threading.Lock,
        other_windows: OtherWindows,
        leaders: Leaders,
        is_shared: bool = False,
    ) -> None:
        self.record = record
        self.is_shared = is_shared
        # The last known offsets of a shared store, and the ends for which local waiters were last woken.
        self._seen: OffsetRange | None = None
        self._woken_ends: Int64s | None = None
        self.log = log
        self.watches = Wakeups()
        self.ended: HeadraceError | None = None
        messages_max = settings.queue_messages_per_partition * record.partitions
        self.intake = TopicIntake(record.name, self._commit, messages_max, settings, leaders)
        self._passed = PassedNumbers()
        # How fast partitions were written, and the lock of that.
        self._speeds = WriteSpeeds()
        self._speeds_lock = threading.Lock()
        self._settings = settings
        self._clock = clock
        self.counters = Counters(counters)
        self.fetch_seconds = Histogram(SECONDS)
        self.commit_messages = Histogram(COUNTS)
        # Held by commits of topics that share payloads.
        self.store_window_lock = store_window_lock
        self._other_windows = other_windows

    @property
    def shares_window(self) -> bool:
        """Whether payloads are deduplicated across all topics of the store with this setting."""
        return self.record.settings.shares_window

    def change(self, record: TopicRecord) -> None:
        """Apply other settings, more partitions or deleted messages, and wake all waiters."""
        if record.partitions > self.record.partitions:
            self.log.add_partitions(record.partitions)
            self.intake.messages_max = self._settings.queue_messages_per_partition * record.partitions
        if record.deleted_before != self.record.deleted_before:
            self.log.delete_before(record.deleted_before)
            self._seen = None
        self.record = record
        self.watches.wake_all()

    def end(self, reason: HeadraceError) -> None:
        """Finish accepted publishes, accept nothing more, and wake all waiters."""
        self.intake.close(reason)
        self.ended = reason
        self.watches.wake_all()

    def check_alive(self) -> None:
        """Raise the reason if the topic has ended."""
        if self.ended is not None:
            raise again(self.ended)

    @contextmanager
    def using(self) -> Iterator[TopicLog]:
        """The log; once the topic has ended, every failure raises that reason."""
        self.check_alive()
        try:
            yield self.log
        except StorageError:
            self.check_alive()
            raise
        except (OSError, MemoryError) as error:
            self.check_alive()
            short = exhausted(f"topic {self.record.name!r}", error)
            if short is not None:
                logger.error("%s", short)
            raise short or StoreUnavailable(f"of topic {self.record.name!r}", str(error)) from error

    def offsets(self) -> OffsetRange:
        """The current start and end of every partition."""
        with self.using() as log:
            offsets = log.offsets()
        self._seen = offsets
        return offsets

    def seen_offsets(self) -> OffsetRange | None:
        """The last known ones, without blocking; None if nothing was queried yet."""
        self.check_alive()
        return self._seen if self.is_shared else self.log.offsets()

    def may_hold(self, offsets: Mapping[int, int]) -> bool:
        """Whether these offsets are within the last known ones; if not, they may exist anyway."""
        seen = self.seen_offsets()
        if seen is None:
            return False
        count, ends = len(seen.end), seen.end
        return all(0 <= partition < count and 0 <= offset <= ends[partition] for partition, offset in offsets.items())

    def wake_changed(self, everyone: bool) -> None:
        """Another server wrote, or may have: wake the waiters of the changed partitions, or all."""
        if not len(self.watches):
            return
        before, after = self._woken_ends, self.offsets().end
        self._woken_ends = after
        if everyone or before is None or len(before) != len(after):
            self.watches.wake_all()
        else:
            self.watches.wake(np.flatnonzero(before != after).tolist())

    def fetch(
        self, partition: int, offset: int, messages_max: int, bytes_max: int, wait_seconds: float
    ) -> pa.RecordBatch:
        """Read, waiting for the first message if there is none."""
        batch = self._read(partition, offset, messages_max, bytes_max)
        if batch.num_rows or wait_seconds <= 0:
            return batch
        read = partial(self._read, partition, offset, messages_max, bytes_max)
        return self.watches.wait_until(lambda batch: batch.num_rows > 0, read, partition, wait_seconds)

    def _read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        began = time.perf_counter()
        with self.using() as log:
            batch = log.read(partition, offset, messages_max, bytes_max)
        self._count_read([batch], began)
        return batch

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Read many partitions at once, each its share; `fetch` raises the reason why one was omitted."""
        began = time.perf_counter()
        with self.using() as log:
            batches = log.read_many(positions, messages_max, bytes_max)
        self._count_read(batches, began)
        return batches

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> pa.RecordBatch | None:
        """Read ranges of many partitions as one batch, if the engine can."""
        began = time.perf_counter()
        with self.using() as log:
            batch = log.read_ranges(start, stop, messages_max, bytes_max)
        if batch is not None:
            self._count_read([batch], began)
        return batch

    def _count_read(self, batches: Sequence[pa.RecordBatch], began: float) -> None:
        if any(batch.num_rows for batch in batches):
            self.fetch_seconds.observe(time.perf_counter() - began)
            self.count_read(batches)

    def count_read(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Count messages that readers get."""
        if batches:
            messages = sum(batch.num_rows for batch in batches)
            self.counters.add_all({"messages_read": messages, "bytes_read": sum(map(content_bytes, batches))})

    def between_commits(self, look: Callable[[TopicState], Result]) -> Result:
        """The result of a function of the state, called between commits; it may drop expired entries."""
        return self.between_fences(lambda state, _: look(state))

    def between_fences(self, look: Callable[[TopicState, Fences], Result]) -> Result:
        """The same with the epochs of producers, which it may change."""
        results: list[Result] = []

        def decide(state: TopicState, fences: Fences) -> Sequence[Commit]:
            results.append(look(state, fences))
            return ()

        with self.using() as log:
            log.commit(decide)
        # The last result: a decision on a broken connection is repeated.
        return results[-1]

    def reset_source(self, source: tuple[str, str]) -> int | None:
        """Reset a source durably; returns its former highest seqno."""
        forgotten: list[int | None] = []

        def decide(state: TopicState, fences: Fences) -> Sequence[Commit]:
            if source not in state.sources:
                raise SourceNotFound(self.record.name, *source)
            forgotten.append(state.sources.last_seqno(source))
            return [] if forgotten[-1] is None else [plan_reset(state, [source], self._clock.now_us())]

        with self.using() as log:
            log.commit(decide)
        # The last result: a decision on a broken connection is repeated.
        return forgotten[-1]

    def _commit(self, submissions: Sequence[Submission]) -> None:
        """Build, persist and apply a commit of some submissions; each gets its receipts, and readers are woken."""
        builder = self.builder(submissions)
        try:
            if builder.shares_window:
                with self.store_window_lock:
                    self.log.commit(
                        lambda state, fences: builder.build(state, fences, self.other_windows()), store_wide=True
                    )
            else:
                self.log.commit(builder.build)
        except MemoryError as error:
            raise short_of_memory(f"publishing to topic {self.record.name!r}", error) from error
        self.tell(builder)

    def builder(self, submissions: Sequence[Submission]) -> CommitBuilder:
        """What decides a commit of some submissions; once it is committed, `tell` them."""
        return CommitBuilder(submissions, self.record, self._settings, self._clock, self._passed)

    def other_windows(self) -> Sequence[PayloadWindow]:
        """The payload windows that this topic shares; the caller holds `store_window_lock`."""
        return self._other_windows(self)

    def tell(self, builder: CommitBuilder) -> None:
        """Give submissions that were committed their receipts, count them, and wake readers."""
        summary = builder.answer()
        self.counters.add_all(summary.counts)
        if summary.written:
            self._hold_back(builder.submissions, summary.written)
        if summary.frames:
            self.commit_messages.observe(summary.messages)
            if self.is_shared:
                self._see(summary.frames)
            if len(summary.frames) == 1:
                written = written_of(summary.single) if self.watches.has_feeds else None
                self.watches.wake(summary.frames[0].partition.tolist(), written)
            else:
                for frame in summary.frames:
                    self.watches.wake(frame.partition.tolist())

    def _hold_back(self, submissions: Sequence[Submission], written: Mapping[int, int]) -> None:
        """Have those wait for their outcome who wrote to partitions faster than these may be written."""
        limit = self.record.settings.write_limit
        if limit is None:
            return
        with self._speeds_lock:
            waits = self._speeds.spend(written, limit, self._clock.monotonic_us())
        if waits:
            now = time.monotonic()
            for submission in submissions:
                # Of staged rows nobody knows where they went: to any partition of the commit.
                partitions = submission.written_partitions() if submission.staged is None else waits
                seconds = max((waits.get(each, 0.0) for each in partitions), default=0.0)
                submission.answer_at = now + seconds if seconds else 0.0

    def _see(self, frames: Sequence[Directory]) -> None:
        """Record what this server has written: it has woken the readers of that itself."""
        if self._seen is not None:
            self._seen = OffsetRange(self._seen.start, _moved(self._seen.end, frames))
        if self._woken_ends is not None:
            self._woken_ends = _moved(self._woken_ends, frames)


def short_of_memory(what: str, error: MemoryError) -> OutOfMemory:
    """What is told, and logged, of a commit for which there was no memory."""
    short = OutOfMemory(what, str(error) or "allocation failed")
    logger.error("%s", short)
    return short


def _moved(ends: Int64s, frames: Sequence[Directory]) -> Int64s:
    """End offsets after some frames; unknown partitions are omitted."""
    ends = ends.copy()
    for directory in frames:
        partition, written = directory.partition, directory.first_offset + directory.rows
        is_known = partition < len(ends)
        ends[partition[is_known]] = np.maximum(ends[partition[is_known]], written[is_known])
    return ends
