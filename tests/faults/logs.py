"""A topic's log opened by itself, without a broker: quick enough to do it for every byte of a frame."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.broker.settings import BrokerSettings
from headrace.core.errors import Damaged
from headrace.core.limits import FRAME_ROWS
from headrace.core.messages import accept
from headrace.core.publish.plan import plan
from headrace.core.publish.state import Commit, TopicState
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.log import DiskLog
from headrace.storage.interface import Fences
from tests.faults.invariants import TINY, Message, Place, batch_of, opened

NOW_US = 1_700_000_000_000_000


@dataclass
class Prepared:
    """A store with one topic: its files as they were when it was closed or when its process died, and its content."""

    directory: Path
    messages: dict[Place, Message]
    last_seqno: dict[str, int]

    @property
    def topic(self) -> Path:
        """The directory of the topic."""
        (topic,) = (self.directory / "topics").iterdir()
        return topic

    @property
    def logs(self) -> list[Path]:
        """The segments in order."""
        return sorted(self.topic.glob("*.log"))

    def ends(self) -> dict[int, int]:
        """The end offset of every partition."""
        return {p: 1 + max(o for q, o in self.messages if q == p) for p in {p for p, _ in self.messages}}


def prepare(
    directory: Path, partitions: int, commits: list[list[Message]], closed: bool, frame_rows: int = FRAME_ROWS
) -> Prepared:
    """Publish some commits; take the files as they are after a clean close, or before it."""
    work = directory.with_name(directory.name + "-work")
    content: dict[Place, Message] = {}
    seqnos: dict[str, int] = {}
    with opened(work, TINY, settings=BrokerSettings(frame_rows=frame_rows)) as broker:
        broker.create_topic("t", partitions)
        for messages in commits:
            receipts = broker.publish("t", batch_of(messages))
            places = zip(receipts.partition.tolist(), receipts.offset.tolist(), strict=True)
            content.update(zip(places, messages, strict=True))
            seqnos.update({m.producer_id: m.seqno for m in messages if m.producer_id and m.seqno is not None})
        if not closed:
            shutil.copytree(work, directory)
    if closed:
        shutil.copytree(work, directory)
    shutil.rmtree(work)
    return Prepared(directory, content, seqnos)


@contextmanager
def topic_of(prepared: Prepared) -> Iterator[tuple[DiskStore, TopicRecord]]:
    """The store of a prepared topic, to open its log again and again."""
    store = DiskStore(prepared.directory, TINY)
    try:
        yield store, store.catalog.topics()[0]
    finally:
        store.close()


@contextmanager
def opened_log(store: DiskStore, topic: TopicRecord) -> Iterator[DiskLog]:
    """The log, let go of as a process that dies lets go of it: nothing is written."""
    log = store.open_log(topic, NOW_US)
    try:
        yield log
    finally:
        log._files.close(log._handle)


def read_one(log: DiskLog, place: Place) -> bytes | Damaged:
    """The value at a place, or the damage that stands in the way."""
    try:
        rows = log.read(*place, 1, 1 << 20)
    except Damaged as error:
        return error
    assert rows.num_rows == 1
    assert rows.column("offset").to_pylist() == [place[1]]
    value = rows.column("value")[0].as_py()
    assert isinstance(value, bytes)
    return value


def read_rows(log: DiskLog, partition: int, offset: int) -> list[tuple[int, bytes]]:
    """As many offsets and values as one read gives."""
    rows = log.read(partition, offset, 1000, 1 << 20)
    return list(zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True))


def append(log: DiskLog, topic: TopicRecord, value: bytes, partition: int) -> int:
    """Publish one message to a partition; its offset."""
    rows = accept(batch_of([Message(value, partition=partition)]), topic.settings, topic.partitions)
    offsets: list[int] = []

    def decide(state: TopicState, fences: Fences) -> list[Commit]:
        commit, receipts = plan(rows, state, topic.settings, NOW_US)
        offsets.extend(receipts.offset.tolist())
        return [commit]

    log.commit(decide)
    return offsets[0]
