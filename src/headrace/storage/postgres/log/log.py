"""The log of one topic in a database that other servers use too.

    commit(decide)
      transaction on a connection
        begin, and lock the topic's row             topic_row       commits of all servers one after another
        apply what others committed since           topic_state
        decide                                      core.publish    again in every attempt
        start a new segment if the last is full     segments
        COPY the rows if they are many              encode_copy
        in one message to the database              commit
          INSERT them if they are few               encode_insert
          store sources, keys, hashes               topic_state
          update the row                            topic_row
          COMMIT                                    durable, and visible to every server
      apply to the state, announce

Reading takes no lock. A server caches the row; a read at or beyond the cached end reads the row again, and so does one
that finds a segment missing: retention dropped it. If the row still has the segment, or after a few attempts, its table
was dropped outside Headrace, and the read raises that.

Failure: an error before COMMIT leaves nothing behind. A connection that is lost before COMMIT is replaced, and the
commit is decided again: others may have committed meanwhile, or opened a producer, which does not change the row. If
COMMIT itself gets no answer, the outcome is found out from what it would have written, once its row lock is free; if
that takes too long, the outcome is unknown. Thread-safe: the write lock orders the commits of this process and
protects the state.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import errors, sql

from headrace.core.errors import HeadraceError, LogFailed, OutcomeUnknown, StoreUnavailable, TableMissing
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import LOOKS_MAX
from headrace.core.messages import NO_MESSAGES, read_batch
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.state import Commit, TopicState
from headrace.core.reports.histogram import SECONDS, Histogram
from headrace.core.topics.retention import Piece, Sightings
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Decide, OffsetRange
from headrace.storage.postgres.codec.decode import read_columns
from headrace.storage.postgres.errors import failure_of, has_ended_connection, is_lost, reason_of
from headrace.storage.postgres.log import topic_row, topic_state
from headrace.storage.postgres.log.commit import CommitWriter, persist, resolve_lost_commit
from headrace.storage.postgres.log.producers import TransactionFences
from headrace.storage.postgres.log.retention import Retention
from headrace.storage.postgres.log.segments import Segments, begin_segment, is_full, look, pieces_of, segments_of
from headrace.storage.postgres.log.topic_row import TopicRow
from headrace.storage.postgres.log.topic_state import TRIM_COMMITS
from headrace.storage.postgres.notify import PostgresSignals
from headrace.storage.postgres.pool import RETRY_PAUSE_SECONDS, Connection, ConnectionPool
from headrace.storage.postgres.sql.schema import table_of
from headrace.storage.ranges import check_range, deleted_to
from headrace.storage.shares import read_each, within_bytes

_CLOSED: Final = "the log is closed"
# The maximum that one statement reads; larger reads take several.
READ_MESSAGES: Final = 1 << 16

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LogView:
    """A topic as this server last saw it; replaced, never changed."""

    row: TopicRow
    segments: Segments

    def covers(self, partition: int, offset: int) -> bool:
        """Whether there certainly was such a message."""
        row = self.row
        if not 0 <= partition < row.partitions or offset < deleted_to(row.deleted_before, partition):
            return False
        return bool(row.starts[partition] <= offset < row.ends[partition])

    def place_of(self, partition: int, offset: int) -> int:
        """The index of the segment of a message."""
        return max(0, bisect.bisect_right(self.segments, offset, key=lambda each: each.base(partition)) - 1)

    def end_of(self, place: int, partition: int) -> int:
        """Where a segment ends in a partition."""
        after = self.segments[place + 1 : place + 2]
        return after[0].base(partition) if after else int(self.row.ends[partition])


class WrittenView(NamedTuple):
    """What a transaction wrote: the topic as it is once that is committed, and the commits."""

    view: LogView
    commits: Sequence[Commit]


class PostgresLog:
    """The messages of one topic in a database. Thread-safe."""

    def __init__(self, connections: ConnectionPool, signals: PostgresSignals, topic: TopicRecord) -> None:
        self._connections = connections
        self._signals = signals
        self.topic = topic
        self._state: TopicState | None = None
        self._view: LogView | None = None
        # What was deleted on request, as far as this server knows; a view may be older.
        self._deleted_before: Sequence[int] = topic.deleted_before
        self._write_lock = threading.RLock()
        self._retention_lock = threading.Lock()
        self._sightings = Sightings()
        self.sync_seconds = Histogram(SECONDS)
        self.failure: str | None = None
        self.damaged_segments = 0

    @property
    def state(self) -> TopicState:
        """What planning knew at the last commit here; loaded if there was none."""
        return self._state or self._refreshed()

    def peek(self) -> TopicState | None:
        """What planning knew at the last commit here, if there was one."""
        return self._state

    def window(self) -> PayloadWindow:
        """The recently written payloads, through any server."""
        return self._refreshed().window

    def commit(self, decide: Decide, store_wide: bool = False) -> None:
        """Decide, persist, apply: the frames that `decide` returns become visible together, or not at all."""
        with self._write_lock:
            if self.failure is not None:
                raise LogFailed(self.topic.name, self.failure)
            writing = CommitWriter(decide, store_wide)
            while not self._attempt(writing):
                time.sleep(RETRY_PAUSE_SECONDS)
            self._apply(writing.commits or ())
        if writing.commits:
            self._signals.announce(f"topic:{self.topic.id}")

    def _apply(self, commits: Sequence[Commit]) -> None:
        """Apply commits that were written to the state in memory; if that fails halfway, the state is reloaded."""
        state, self._state = self._state, None
        assert state is not None, "it was brought up to date for the decision"
        try:
            for commit in commits:
                state.apply(commit)
        except Exception as error:
            raise OutcomeUnknown(self.topic.name, f"after COMMIT: {error!r}") from error
        self._state = state

    # For commits of several topics (`store_commit`), which hold `writing` from the first step to the last.

    @property
    def writing(self) -> threading.RLock:
        """Held while something is written."""
        return self._write_lock

    def lock_row(self, connection: Connection) -> TopicRow:
        """The row of the topic, locked until the transaction ends."""
        if self.failure is not None:
            raise LogFailed(self.topic.name, self.failure)
        return topic_row.lock(connection, self.topic)

    def write_within(self, connection: Connection, row: TopicRow, decide: Decide) -> WrittenView:
        """Decide and write in a transaction that has locked the row."""
        writing = CommitWriter(decide, False)
        view, statements = self._write_locked(connection, row, writing)
        if statements:
            connection.execute("; ".join(statements))
        return WrittenView(view, writing.commits or ())

    def take(self, written: WrittenView) -> None:
        """Apply what was committed."""
        self._view = written.view
        self._apply(written.commits)

    def forget(self) -> None:
        """Look at the database again: what was committed is known, and not what came after it."""
        self._state = self._view = None

    def offsets(self) -> OffsetRange:
        """Start and end of every partition, as the database has them now."""
        return self._look().row.offsets

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        """Messages of one partition from `offset` on, within the limits but at least one if there is one."""
        view = self._last_view(partition, offset)
        return self._unless_missing(view, partial(self._read_at, partition, offset, messages_max, bytes_max))

    def _last_view(self, partition: int, offset: int) -> LogView:
        """The topic as last seen if it had this message, which was not deleted since; else as it is now."""
        view = self._view
        if view is None or not view.covers(partition, offset) or offset < deleted_to(self._deleted_before, partition):
            view = self._look()
        return view

    def _read_at(
        self, partition: int, offset: int, messages_max: int, bytes_max: int, view: LogView
    ) -> pa.RecordBatch | None:
        """The result of a read of the topic as last seen; None if retention dropped a segment meanwhile."""
        end = check_range(self.topic.name, view.row.offsets, partition, offset)
        stop = min(end, offset + messages_max)
        if offset >= stop:
            return read_batch(NO_MESSAGES, partition, offset, np.zeros(0, np.int64))
        batches = self._unless_dropped(partial(self._read, view, partition, offset, stop, bytes_max))
        return None if batches is None else within_bytes(pa.concat_batches(batches), bytes_max)

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Messages of many partitions, each its share, the oldest first."""
        return read_each(self, positions, messages_max, bytes_max)

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> None:
        """There is no faster way than `read_many`."""

    def first_at(self, partition: int, time_us: int) -> int:
        """The first offset of a partition at or after a time; its end offset if all messages are older."""

        def first(view: LogView) -> int | None:
            return self._unless_dropped(partial(self._first_at, view, partition, time_us))

        return self._unless_missing(self._look(), first)

    def _unless_missing(self, view: LogView, work: Callable[[LogView], Result | None]) -> Result:
        """The result of work on the topic as last seen; repeated with a fresh view if retention dropped a segment."""
        for _ in range(LOOKS_MAX):
            found = work(view)
            if found is not None:
                return found
            view = self._look_after(view)
        raise self._missing(view)

    def _look_after(self, before: LogView) -> LogView:
        """The topic as it is now, after a table was missing; raises if retention was not the reason."""
        view = self._look()
        if view.row.first_segment == before.row.first_segment:
            raise self._missing(view)
        return view

    def _missing(self, view: LogView) -> TableMissing:
        first, last = view.row.first_segment, view.row.segment
        return TableMissing(self.topic.name, f"one of the tables topic_{self.topic.id}_{first} to _{last}")

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it does not exist."""
        view = self._last_view(partition, offset)
        if not view.covers(partition, offset):
            return None
        table = table_of(self.topic.id, view.segments[view.place_of(partition, offset)].number)
        query = sql.SQL('SELECT time_us FROM {} WHERE partition = %s AND "offset" = %s').format(table)
        found = self._unless_dropped(lambda connection: connection.execute(query, [partition, offset]).fetchone())
        return None if found is None else int(found[0])

    def add_partitions(self, partitions: int) -> None:
        """Grow to this number of partitions; the row of the topic already has it."""
        with self._write_lock:
            self._view = None
            if self._state is not None and self._state.partitions < partitions:
                self._state.add_partitions(partitions)

    def delete_before(self, offsets: Sequence[int]) -> None:
        """Hide the messages of each partition below an offset; the row of the topic already has it."""
        # Who reads or writes at this moment may put an older view back.
        self._deleted_before = offsets
        self._view = None

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int:
        """Drop the oldest segments that are past retention and not held; returns how many."""
        with self._retention_lock:
            dropped = Retention(self._connections, self.topic, settings, held, now_us, self._sightings).run()
        if dropped:
            self._view = None
        return dropped

    def pieces(self) -> list[Piece]:
        """The segments as retention sees them."""
        view = self._look()
        return pieces_of(view.segments, view.row)

    def seal(self) -> int:
        """Nothing to seal."""
        return 0

    def bytes_stored(self) -> int:
        """The approximate size of the messages in the database now."""
        return self._look().row.bytes_stored

    def close(self) -> None:
        """Accept nothing more."""
        with self._write_lock:
            self.failure = _CLOSED

    def _attempt(self, writing: CommitWriter) -> bool:
        """Try to write; returns whether it is done. Retryable errors are raised only after the deadline."""
        try:
            with self._connections.by_hand() as connection:
                view, statements = self._write(connection, writing)
                began = time.perf_counter()
                writing.is_committing = True
                connection.execute("; ".join([*statements, "COMMIT"]))
        except psycopg.Error as error:
            is_doubtful = writing.is_committing and (is_lost(error) or has_ended_connection(error))
            writing.is_doubtful |= is_doubtful
            writing.is_committing = False
            if (is_doubtful or is_lost(error)) and self._has_time(writing):
                return False
            raise self._failed(writing, error) from error
        except StoreUnavailable as error:
            # No connection is free; the outcome of the last attempt is still unknown.
            if writing.may_be_there:
                raise OutcomeUnknown(self.topic.name, error.reason) from error
            raise
        if writing.commits:
            self.sync_seconds.observe(time.perf_counter() - began)
        self._view = view
        return True

    def _has_time(self, writing: CommitWriter) -> bool:
        now = time.monotonic()
        if writing.deadline is None:
            writing.deadline = now + self._connections.options.retry_seconds
        return now < writing.deadline

    def _failed(self, writing: CommitWriter, error: psycopg.Error) -> HeadraceError:
        address = self._connections.address
        if writing.may_be_there:
            return OutcomeUnknown(self.topic.name, f"no answer to COMMIT: {reason_of(error, address)}")
        return failure_of(error, address, self.topic.name)

    def _write(self, connection: Connection, writing: CommitWriter) -> tuple[LogView, list[str]]:
        """Everything before COMMIT; returns the topic as it will be after it, and the statements to commit with."""
        topic = self.topic
        row, transaction = topic_row.begin(connection, topic, writing.store_wide)
        if writing.is_doubtful:
            # If it was not written, it is decided again below.
            writing.is_written = bool(writing.commits) and resolve_lost_commit(connection, topic, row, writing)
            writing.is_doubtful = False
        if writing.is_written:
            return LogView(row, segments_of(connection, topic.id, row, self._segments())), []
        writing.transaction = transaction
        return self._write_locked(connection, row, writing)

    def _write_locked(self, connection: Connection, row: TopicRow, writing: CommitWriter) -> tuple[LogView, list[str]]:
        """The same from the decision on."""
        topic = self.topic
        view = LogView(row, segments_of(connection, topic.id, row, self._segments()))
        state = self._known(connection, row)
        fences = TransactionFences(connection, topic.id)
        writing.commits, writing.base = list(writing.decide(state, fences)), row.commits
        fences.save()
        if not writing.commits:
            return view, []
        if is_full(view.segments[-1], row, self._connections.options):
            view = LogView(row, (*view.segments, begin_segment(connection, topic.id, row)))
        statements = persist(connection, topic, row, writing.commits)
        if writing.base // TRIM_COMMITS < row.commits // TRIM_COMMITS:
            statements += topic_state.trimming(connection, topic.id, row, self.state, writing.commits)
        return view, statements

    def _known(self, connection: Connection, row: TopicRow) -> TopicState:
        """The state, refreshed from the row; the caller has the write lock."""
        if self._state is None:
            self._state = topic_state.load(connection, self.topic.id, row)
        else:
            topic_state.refresh(connection, self.topic.id, row, self._state)
        return self._state

    def _refreshed(self) -> TopicState:
        with self._write_lock:
            # Without the row's lock there may be a commit between two statements; what is seen of it early is applied
            # again later, which changes nothing.
            return self._connections.read(self._load)

    def _load(self, connection: Connection) -> TopicState:
        return self._known(connection, topic_row.look(connection, self.topic))

    def _look(self) -> LogView:
        """The topic as it is now."""
        known = self._segments()
        view = self._connections.read(lambda connection: LogView(*look(connection, self.topic, known)))
        self._view = view
        return view

    def _segments(self) -> Segments:
        view = self._view
        return () if view is None else view.segments

    def _read(
        self, view: LogView, partition: int, offset: int, stop: int, bytes_max: int, connection: Connection
    ) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        position, bytes_left = offset, bytes_max
        place = view.place_of(partition, offset)
        while position < stop and (bytes_left > 0 or not batches):
            end = min(stop, view.end_of(place, partition), position + READ_MESSAGES)
            if position < end:
                table = table_of(self.topic.id, view.segments[place].number)
                stored, times = read_columns(connection, table, partition, position, end, bytes_left)
                batches.append(read_batch(stored, partition, position, times))
                position += stored.num_rows
                bytes_left -= stored.nbytes
            place += position >= view.end_of(place, partition)
        return batches

    def _first_at(self, view: LogView, partition: int, time_us: int, connection: Connection) -> int:
        segments, row = view.segments, view.row
        start = int(row.offsets.start[partition])
        for place, segment in enumerate(segments):
            is_older = place + 1 < len(segments) and segments[place + 1].created_us < time_us
            first = max(segment.base(partition), start)
            end = view.end_of(place, partition)
            if is_older or first >= end:
                continue
            table = table_of(self.topic.id, segment.number).as_string()
            query = "SELECT headrace_first_at(%s, %s, %s, %s, %s)"
            found = connection.execute(query, [table, partition, first, end, time_us]).fetchone()
            assert found is not None
            if found[0] < end:
                return int(found[0])
        return int(row.ends[partition])

    def _unless_dropped(self, work: Callable[[Connection], Result]) -> Result | None:
        """The result of work; None if retention dropped a segment meanwhile."""
        try:
            return self._connections.read(work)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, errors.UndefinedTable):
                return None
            raise
