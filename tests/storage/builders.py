"""Batches, commits and stores for the tests of storage."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.core.limits import MICROSECONDS
from headrace.core.messages import PUBLISH_SCHEMA, accept
from headrace.core.names import topic_key
from headrace.core.publish.plan import plan
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Fences, Store, TopicLog
from headrace.storage.open import open_store

NOW_US = 1_700_000_000 * MICROSECONDS
# Topics are made a while before anything is written to them.
CREATED_US = NOW_US - MICROSECONDS
EVERYTHING = 1 << 30
# So small that segments roll within three messages.
TINY = "segment_bytes=1024&segment_frames=3"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory of one's own, gone at the end."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)


def batch_of(rows: Sequence[dict[str, Any]], partitions: int = 8) -> pa.RecordBatch:
    """Rows as a canonical batch; a row without a value has an empty one."""
    names = [name for name in PUBLISH_SCHEMA.names if name == "value" or any(name in row for row in rows)]
    arrays = [
        pa.array([row.get(name, b"" if name == "value" else None) for row in rows], PUBLISH_SCHEMA.field(name).type)
        for name in names
    ]
    return accept(pa.RecordBatch.from_arrays(arrays, names=names), DEFAULT_SETTINGS, partitions)


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Values that are numbers from `start` on."""
    return [b"%d" % number for number in range(start, start + count)]


def values(*given: bytes, partition: int | None = 0) -> pa.RecordBatch:
    """Messages with these values, in one partition or wherever they fall."""
    return batch_of([{"value": value} | ({} if partition is None else {"partition": partition}) for value in given])


def commit_of(
    batches: Sequence[pa.RecordBatch],
    state: TopicState,
    now_us: int = NOW_US,
    settings: TopicSettings = DEFAULT_SETTINGS,
    keys: tuple[CommitKey, ...] = (),
) -> tuple[list[Commit], list[Receipts]]:
    """One commit with a frame for each batch that writes something, as the broker decides it."""
    draft = state.copy()
    commits: list[Commit] = []
    receipts: list[Receipts] = []
    for number, batch in enumerate(batches, start=1):
        commit, receipt = plan(batch, draft, settings, now_us, keys if number == len(batches) else ())
        receipts.append(receipt)
        if commit.rows.num_rows or commit.keys:
            draft.apply(commit)
            commits.append(commit)
    return [replace(commit, continues=True) for commit in commits[:-1]] + commits[-1:], receipts


def publish(
    log: TopicLog,
    *batches: pa.RecordBatch,
    now_us: int = NOW_US,
    settings: TopicSettings = DEFAULT_SETTINGS,
    keys: tuple[CommitKey, ...] = (),
) -> list[Receipts]:
    """Write one commit with a frame for each batch; the receipts of each."""
    answers: list[Receipts] = []

    def decide(state: TopicState, fences: Fences) -> Sequence[Commit]:
        commits, answers[:] = commit_of(batches, state, now_us, settings, keys)
        return commits

    log.commit(decide)
    return answers


def read_all(log: TopicLog, partition: int = 0, messages_max: int = EVERYTHING) -> pa.RecordBatch:
    """Everything a partition keeps, in as many reads as it takes."""
    offsets = log.offsets()
    position, end = int(offsets.start[partition]), int(offsets.end[partition])
    batches = [log.read(partition, position, messages_max, EVERYTHING)]
    while (position := position + batches[-1].num_rows) < end:
        assert batches[-1].num_rows > 0
        batches.append(log.read(partition, position, messages_max, EVERYTHING))
    return pa.concat_batches(batches)


def values_in(log: TopicLog, partition: int = 0) -> list[bytes]:
    """The values that a partition keeps; its offsets are checked on the way."""
    batch = read_all(log, partition)
    offsets = log.offsets()
    assert batch["offset"].to_pylist() == list(range(int(offsets.start[partition]), int(offsets.end[partition])))
    assert set(batch["partition"].to_pylist()) <= {partition}
    result: list[bytes] = batch["value"].to_pylist()
    return result


def state_of(log: TopicLog) -> dict[str, Any]:
    """All that planning knows, to be compared."""
    state = log.state
    window = state.window.snapshot().to_pydict()
    return {
        "end_offsets": state.end_offsets.tolist(),
        "next_number": state.next_number,
        "last_time_us": state.last_time_us,
        "round_robin": state.round_robin,
        "sources": state.sources.snapshot().to_pylist(),
        "writers": [list(state.writers.items()), list(state.one_time_writers.items())],
        "window": sorted(zip(*window.values(), strict=True)),
    }


class Place:
    """Where a store is during a test. `reopen` is the middle of a test: what was there must be there after it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: Store = open_store(url)
        self._logs: dict[int, TopicLog] = {}

    def log(self, topic_id: int) -> TopicLog:
        return self._logs[topic_id]

    def opened(self, topic: TopicRecord, now_us: int) -> TopicLog:
        self._logs[topic.id] = self.store.open_log(topic, now_us)
        return self._logs[topic.id]

    def forget(self, topic_id: int) -> None:
        del self._logs[topic_id]

    def reopen(self, now_us: int = NOW_US) -> None:
        self._leave()
        self.store = open_store(self.url)
        for topic in self.store.catalog.topics():
            self.opened(topic, now_us)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self.store.close()

    def _leave(self) -> None:
        """What becomes of the store before it is opened again."""
        self.close()


class MemoryPlace(Place):
    """The memory engine forgets at close, so it is never closed in the middle."""

    def __init__(self) -> None:
        super().__init__("memory:")

    def reopen(self, now_us: int = NOW_US) -> None:
        """Nothing to do."""


class DiskPlace(Place):
    """A directory that is closed and opened again; or, if `killed`, opened as a process finds it after another died."""

    def __init__(self, directory: Path, options: str = TINY, killed: bool = False) -> None:
        self.directory = directory
        self._options = options
        self._killed = killed
        super().__init__(f"file:{directory}?{options}")

    def _leave(self) -> None:
        after = self.directory.with_name(self.directory.name + "+")
        if self._killed:
            shutil.copytree(self.directory, after)
        self.close()
        if self._killed:
            self.directory = after
            self.url = f"file:{after}?{self._options}"


class PostgresPlace(Place):
    """A schema of a database, used by one store after another; or, if `shared`, also by the one before it."""

    def __init__(self, url: str, shared: bool = False) -> None:
        self._shared = shared
        self._others: list[Store] = []
        super().__init__(url)

    def close(self) -> None:
        super().close()
        for store in self._others:
            store.close()

    def _leave(self) -> None:
        """Another server takes over; the one before it is ended only if the store is not shared."""
        if self._shared:
            self._others.append(self.store)
            self._logs.clear()
        else:
            super().close()


class Topic:
    """A topic in a place: its log is looked up anew each time, since reopening changes it."""

    def __init__(
        self,
        place: Place,
        name: str = "Orders",
        partitions: int = 2,
        settings: TopicSettings = DEFAULT_SETTINGS,
        now_us: int = CREATED_US,
    ) -> None:
        store = place.store
        self.place = place
        self.record = store.catalog.add_topic(
            name, topic_key(name), partitions, settings, now_us, lambda topic: store.create_log(topic, now_us)
        )
        place.opened(self.record, now_us)

    @property
    def log(self) -> TopicLog:
        return self.place.log(self.record.id)

    def publish(
        self, *batches: pa.RecordBatch, now_us: int = NOW_US, keys: tuple[CommitKey, ...] = ()
    ) -> list[Receipts]:
        return publish(self.log, *batches, now_us=now_us, settings=self.record.settings, keys=keys)

    def delete(self) -> None:
        """As the broker does it: out of the catalog, closed, then its disk."""
        self.place.store.catalog.remove_topic(self.record.id)
        self.log.close()
        self.place.forget(self.record.id)
        self.place.store.delete_log(self.record.id)

    def delete_before(self, offsets: dict[int, int]) -> None:
        """As the broker does it: in the catalog, then in the log."""
        self.record = self.place.store.catalog.delete_before(self.record, offsets)
        self.log.delete_before(self.record.deleted_before)

    def grow(self, partitions: int) -> None:
        self.record = replace(self.record, partitions=partitions)
        self.place.store.catalog.change_topic(self.record, lambda _: self.record)
        self.log.add_partitions(partitions)
