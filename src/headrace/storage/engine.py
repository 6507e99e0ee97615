"""What the broker needs of a storage engine. Engines are sibling packages with the same file names.

A store has a catalog (topics, groups, committed offsets), a log per topic, and stages for rows that are to be
published later in one commit. Everything here may be called from any thread; `commit` of one log is called by one
thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.core.hashing import Int64s
from headrace.core.measures import Histogram
from headrace.core.planning import Commit, TopicState
from headrace.core.settings import TopicSettings
from headrace.storage.catalog import Catalog, TopicRecord

# Given the state of the topic, what is to be written: one commit as one or more frames, or nothing. It changes nothing
# of the state but may let it forget what has expired, since forgetting needs no record.
Decide = Callable[[TopicState], Sequence[Commit]]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Start and end offset of every partition."""

    start: Int64s
    end: Int64s


class TopicLog(Protocol):
    """The messages of one topic. `state` is what planning knows; only `commit` changes it."""

    @property
    def state(self) -> TopicState: ...

    @property
    def sync_seconds(self) -> Histogram: ...

    @property
    def failure(self) -> str | None: ...

    def commit(self, decide: Decide) -> None: ...

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch: ...

    def offsets(self) -> Offsets: ...

    def first_at(self, partition: int, time_us: int) -> int: ...

    def time_of(self, partition: int, offset: int) -> int | None: ...

    def add_partitions(self, partitions: int) -> None: ...

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int: ...

    def seal(self) -> int: ...

    def bytes_stored(self) -> int: ...

    def close(self) -> None: ...


class Stages(Protocol):
    """Rows that wait to be published together."""

    def write(self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int) -> int: ...

    def read(self, topic_id: int, stage: str) -> list[pa.RecordBatch] | None: ...

    def drop(self, topic_id: int, stage: str) -> bool: ...

    def drop_topic(self, topic_id: int) -> None: ...

    def expire(self, idle_since_us: int) -> int: ...


class Store(Protocol):
    """An open store."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def stages(self) -> Stages: ...

    def create_log(self, topic: TopicRecord, now_us: int) -> None: ...

    def open_log(self, topic: TopicRecord, now_us: int) -> TopicLog: ...

    def delete_log(self, topic_id: int) -> None: ...

    def close(self) -> None: ...
