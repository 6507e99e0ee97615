"""What the broker needs of a storage engine. Engines are sibling packages with the same file names.

A store has a catalog (topics, groups, committed offsets), a log per topic, and stages for rows that are to be
published later in one commit. Everything here may be called from any thread; `commit` of one log is called by one
thread at a time.

A shared store is used by several servers at once: each sees what the others write, and signals notify them of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.placed import Places
from headrace.core.publish.sources import Source
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.reports.histogram import Histogram
from headrace.core.reports.store_check import StoreReport
from headrace.core.topics.retention import Piece
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.commits.store_commits import CatalogChange, RepeatedCommit
from headrace.storage.ranges import Gap, OffsetRange
from headrace.storage.staged import StagePiece, StoredStage

__all__ = [
    "CatalogChange",
    "Decide",
    "Fences",
    "Gap",
    "OffsetRange",
    "RepeatedCommit",
    "Signals",
    "StagePiece",
    "Stages",
    "Store",
    "StoreCommit",
    "StoredStage",
    "TopicLog",
]


class Fences(Protocol):
    """The newest epoch of each producer that was opened for a source of a topic.

    It belongs to a decision: what is put takes effect with its commit, and no producer is opened meanwhile.
    """

    def epochs(self, sources: Sequence[Source]) -> dict[Source, int]: ...

    def put(self, source: Source, epoch: int) -> None: ...


# From the state of the topic and its producers to what is written: one commit as one or more frames, or nothing. It
# does not change the state, except that expired entries may be dropped, which needs no record. A shared store may ask
# again, if another server committed before the first answer was written: the last answer counts. Frames of a large
# commit may be planned lazily: a writer that writes each before it asks for the next holds only one in memory.
Decide = Callable[[TopicState, Fences], Iterable[Commit]]


class StoreCommit(NamedTuple):
    """What becomes durable together, or not at all: commits of topics by their ids, changes of groups, and the key.

    A shared store asks all of it again if its connection broke, and orders commits with the same key by itself: if the
    store is not shared, the broker does that.
    """

    topics: Mapping[int, Decide]
    now_us: int
    key: CommitKey | None = None
    changes: Sequence[CatalogChange] = ()
    store_wide: bool = False


class TopicLog(Protocol):
    """The messages of one topic. `state` is what planning knows; only `commit` changes it.

    On a shared store `state` is what this server knew at its last commit; it is refreshed before a decision. `peek`
    returns it only if it is loaded, `window` refreshes the payload window. A `store_wide` commit excludes every other
    such commit of any server; if the store is not shared, the broker does that.

    `read_many` reads many partitions at once: each gets its share of the limits, at least one message, and those whose
    next message is oldest come first. If it returns nothing of a partition that has messages, `read` raises the reason.

    `read_ranges` reads from `start` up to `stop`, both by partition, in the order written and as one batch. It returns
    None if it cannot, for whatever reason: then `read_many` and `read` do, or raise it.

    `delete_before` hides the messages of each partition below an offset, once the catalog has these offsets durably
    (`TopicRecord.deleted_before`, with which the log is opened again). `drop_outlived` deletes them later.

    `drop_outlived` keeps what is not below `held`: by partition the lowest offset that an important group has not read,
    or, if the topic is archived, that is not in the archive.
    """

    @property
    def state(self) -> TopicState: ...

    @property
    def sync_seconds(self) -> Histogram: ...

    @property
    def failure(self) -> str | None: ...

    @property
    def damaged_segments(self) -> int: ...

    def peek(self) -> TopicState | None: ...

    def window(self) -> PayloadWindow: ...

    def commit(self, decide: Decide, store_wide: bool = False) -> None: ...

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch: ...

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]: ...

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> pa.RecordBatch | None: ...

    def offsets(self) -> OffsetRange: ...

    def first_at(self, partition: int, time_us: int) -> int: ...

    def time_of(self, partition: int, offset: int) -> int | None: ...

    def add_partitions(self, partitions: int) -> None: ...

    def delete_before(self, offsets: Sequence[int]) -> None: ...

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int: ...

    def pieces(self) -> list[Piece]: ...

    def seal(self) -> int: ...

    def bytes_stored(self) -> int: ...

    def close(self) -> None: ...


class Stages(Protocol):
    """Rows that wait to be published together. Places are kept only if `keeps_places` says so."""

    @property
    def keeps_places(self) -> bool: ...

    def write(
        self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int, places: Places | None = None
    ) -> int: ...

    def read(self, topic_id: int, stage: str) -> StoredStage | None: ...

    def drop(self, topic_id: int, stage: str) -> bool: ...

    def drop_topic(self, topic_id: int) -> None: ...

    def expire(self, idle_since_us: int) -> int: ...


class Signals(Protocol):
    """Notifications between the servers of a shared store. One may be lost, so nothing may depend on it."""

    def announce(self, notification: str) -> None: ...

    def listen(self, receive: Callable[[str | None], None]) -> None: ...


class Store(Protocol):
    """An open store. It has `signals` if, and only if, other servers may use the same store.

    `disk_space` is the size of the file system and what is free of it, if the store is on one of this machine.
    `can_write` says whether it takes new data now: not if its disk is full or fails.
    `commit` makes a commit of several topics, whose logs are open: readers see all of it or nothing, but of one topic
    maybe a moment earlier than of another. It raises `RepeatedCommit` if the key is known, and after any other error
    than `OutcomeUnknown` nothing was written.
    `examine` checks the store while it is open, a topic at a time; it returns None if the engine cannot check itself.
    """

    @property
    def catalog(self) -> Catalog: ...

    @property
    def stages(self) -> Stages: ...

    @property
    def signals(self) -> Signals | None: ...

    def create_log(self, topic: TopicRecord, now_us: int) -> None: ...

    def open_log(self, topic: TopicRecord, now_us: int) -> TopicLog: ...

    def delete_log(self, topic_id: int) -> None: ...

    def commit(self, commit: StoreCommit) -> None: ...

    def disk_space(self) -> tuple[int, int] | None: ...

    def can_write(self) -> bool: ...

    def examine(self) -> Iterator[StoreReport] | None: ...

    def close(self) -> None: ...
