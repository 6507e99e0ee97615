"""Transactions: messages to any topics, and the offsets of consumers that they follow from, in one atomic commit.

    with client.transaction() as transaction:
        transaction.send("invoices", b"...", key=b"user-1")
        transaction.send_offsets(consumer)

Messages are put aside in stages as they are sent, and nobody sees them. At the end of the block all of it becomes
visible and durable together; an exception in the block drops it. Stages that are left behind expire.

A transaction has a key, so that a commit whose answer was lost can be asked for again: calls do so by themselves, and
`commit` may be called again after an error. Each key has a writer of its own among those open at the same
time; the next transaction uses it again, with the next number. A transaction is for one thread.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.core.errors import Closed, HeadraceError, InvalidInput
from headrace.core.limits import PRODUCER_BATCH_BYTES
from headrace.core.messages import PUBLISH_SCHEMA
from headrace.core.names import topic_key
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets, TransactionOutcome

_COLUMNS: Final = ("value", "key", "attributes", "partition", "created_at")


class Staging(Protocol):
    """What a transaction asks of its client."""

    def stage(self, topic: str, batches: Iterable[pa.RecordBatch], stage: str | None = None) -> Staged: ...

    def drop_stages(self, topic: str, stages: Iterable[str]) -> int: ...

    def commit_transaction(
        self,
        stages: Mapping[str, Iterable[Staged]],
        offsets: Iterable[TransactionOffsets] = (),
        commit_key: CommitKey | None = None,
    ) -> TransactionOutcome: ...


class CommittingConsumer(Protocol):
    """A consumer, of one topic or of several."""

    def uncommitted(self) -> list[TransactionOffsets]: ...

    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None: ...


class TransactionWriters:
    """The writers of the transactions of a client: each is that of one that is open, or waits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[CommitKey] = []

    def take(self) -> CommitKey:
        """A key that no transaction had."""
        with self._lock:
            return self._free.pop() if self._free else CommitKey(f"transaction-{uuid.uuid4().hex}", 0)

    def give_back(self, key: CommitKey) -> None:
        """Its transaction has ended: the next one gets the next number."""
        with self._lock:
            self._free.append(CommitKey(key.writer, key.number + 1))


class ClientTransaction:
    """Messages and offsets that are committed together. Not thread-safe."""

    def __init__(self, client: Staging, writers: TransactionWriters) -> None:
        self._client = client
        self._writers = writers
        self.key = writers.take()
        # The bytes of messages sent since all of them were put aside.
        self.waiting_bytes = 0
        self._is_open = True
        # What was not put aside yet, by what the names of one topic share; and what was.
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._names: dict[str, str] = {}
        self._stages: dict[str, list[Staged]] = {}
        self._offsets: list[TransactionOffsets] = []
        self._read: list[Callable[[], None]] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        attributes: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        created_at: datetime | None = None,
    ) -> None:
        """Send one message; it is checked when it is put aside, by a later call, at the end at the latest.

        If this raises, the message was not sent; all that was sent before is still part of the transaction.
        """
        self._check_open()
        for name, given in (("value", value), ("key", key)):
            if given is not None and not isinstance(given, bytes):
                raise InvalidInput(name, type(given).__name__, "it must be bytes, or None")
        if self.waiting_bytes >= PRODUCER_BATCH_BYTES:
            self._put_aside()
        rows = self._rows.setdefault(self._named(topic), [])
        rows.append((value, key, None if attributes is None else list(attributes.items()), partition, created_at))
        self.waiting_bytes += len(value or b"") + len(key or b"")

    def send_batch(self, topic: str, batch: pa.RecordBatch) -> None:
        """Send a batch of messages, with the columns of `producer.send_batch`."""
        self._check_open()
        self._put_aside()
        self._stage(self._named(topic), batch)

    def send_offsets(self, consumer: CommittingConsumer) -> None:
        """Commit what a consumer has returned and not committed; refused as a whole if it lost any of it since.

        Call it once for each consumer, after its last poll in the transaction.
        """
        offsets = consumer.uncommitted()
        self._check_open()
        self._offsets += offsets
        self._read.append(lambda: consumer.was_committed(offsets))

    def send_group_offsets(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets of a group without members, as `commit_offsets` does."""
        self._check_open()
        self._offsets.append(TransactionOffsets(topic, group, dict(offsets)))

    def commit(self) -> TransactionOutcome:
        """Make all of it visible and durable; after an error it may be called again, and is made at most once."""
        self._check_open()
        self._put_aside()
        stages = {self._names[key]: staged for key, staged in self._stages.items()}
        outcome = self._client.commit_transaction(stages, self._offsets, self.key)
        self._end()
        for tell in self._read:
            tell()
        return outcome

    def abort(self) -> None:
        """Drop all of it; the offsets stay as they were."""
        if self._is_open:
            self._end()
            for key, staged in self._stages.items():
                with contextlib.suppress(HeadraceError):
                    self._client.drop_stages(self._names[key], [each.stage for each in staged])

    close = abort

    def __enter__(self) -> ClientTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._is_open:
                self.commit()
        finally:
            self.abort()

    def _named(self, topic: str) -> str:
        key = topic_key(topic)
        self._names.setdefault(key, topic)
        return key

    def _put_aside(self) -> None:
        """Put aside what waits, and forget it then; the stages of a topic are published in their order."""
        for key, rows in list(self._rows.items()):
            columns = {name: [row[place] for row in rows] for place, name in enumerate(_COLUMNS)}
            arrays = {
                name: pa.array(column, PUBLISH_SCHEMA.field(name).type)
                for name, column in columns.items()
                if name == "value" or any(each is not None for each in column)
            }
            self._stage(key, pa.record_batch(arrays))
            del self._rows[key]
        self.waiting_bytes = 0

    def _stage(self, key: str, batch: pa.RecordBatch) -> None:
        staged = self._client.stage(self._names[key], [batch])
        self._stages.setdefault(key, []).append(staged)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("the transaction")

    def _end(self) -> None:
        self._is_open = False
        self._writers.give_back(self.key)
