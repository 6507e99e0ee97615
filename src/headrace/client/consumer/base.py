"""What every consumer can do, of one topic or of several: polling, loops over messages, stopping, closing.

A consumer is used by one thread. From another thread, or from a signal handler, `stop` ends its loops and `close` ends
it. A `close` that interrupts a call of the same thread (in a signal handler, in a callback) takes effect when that call
returns, so that nothing is entered twice.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from headrace.client import fork
from headrace.client.message import Message
from headrace.client.read.start import Start
from headrace.core.checks import check_whole
from headrace.core.errors import Closed
from headrace.core.limits import FETCH_MESSAGES_DEFAULT, SEQNO_MAX
from headrace.core.reports.descriptions import TransactionOffsets

# How a partition is named: by its number, or by its topic and number.
Place = TypeVar("Place")


class BaseConsumer(ABC, Generic[Place]):
    """Reads messages in the thread that polls."""

    def __init__(self) -> None:
        self._generation = fork.generation
        self._stopped = False
        self._closed = False
        # The thread that is inside a call, and whether the consumer is to be closed when it returns.
        self._worker: int | None = None
        self._is_to_close = False

    # Reading

    def poll(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """Return the next messages, of one or several partitions; waits for the first, and may return none.

        With `auto_commit` the messages returned before are committed first. A consumer that was stopped returns none.

        A value that cannot be decoded by its codec raises `Undecodable`, after the messages before it were returned,
        unless `on_undecodable` says otherwise. It raises again at each poll, until a `seek` skips it:
        `consumer.seek({error.partition: error.offset + 1})`.
        """
        check_whole("max_messages", max_messages, 1, SEQNO_MAX)
        batch = self.take(max_messages, timeout)
        self.give(batch)
        return batch

    def messages(self, idle_seconds: float | None = None) -> Iterator[Message]:
        """Iterate over single messages.

        Ends after `idle_seconds` without messages, or when the consumer is stopped or closed.
        """
        while not self._closed and not self._stopped:
            try:
                batch = self.take(FETCH_MESSAGES_DEFAULT, idle_seconds)
            except Closed:
                if self.is_closed:
                    return
                raise
            if batch.num_rows:
                yield from self.one_by_one(batch)
            elif idle_seconds is not None:
                return

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def take(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """As `poll`, for those who `give` the messages out themselves, or `one_by_one`."""
        fork.check(self._generation, "this consumer")
        if self._closed:
            raise Closed("the consumer")
        with self._working():
            return self._take(max_messages, timeout)

    @abstractmethod
    def _take(self, max_messages: int, timeout: float | None) -> pa.RecordBatch: ...

    @abstractmethod
    def is_next(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch that was taken is still what comes next; after a seek or a pause it is read again."""

    @abstractmethod
    def give(self, batch: pa.RecordBatch) -> None:
        """A batch that was taken is given out as a whole."""

    @abstractmethod
    def one_by_one(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The messages of a batch that was taken, given out as they are reached."""

    @property
    @abstractmethod
    def skipped(self) -> int:
        """The number of messages that were skipped because their values cannot be decoded."""

    # Positions

    @abstractmethod
    def positions(self) -> dict[Place, int]:
        """The next offset to return, by partition."""

    @property
    @abstractmethod
    def assignment(self) -> list[Place]:
        """The partitions that are read."""

    @property
    @abstractmethod
    def generation(self) -> int | None:
        """The generation of `assignment`; None without a group, or with several topics."""

    @abstractmethod
    def seek(self, to: Start | Mapping[Any, int]) -> None:
        """Continue at "earliest", "latest", an offset, a time, or offsets by partition.

        Partitions that are not named keep their position.
        """

    def commit(self, offsets: Mapping[Place, int] | None = None) -> list[Place]:
        """Commit the messages returned so far; in a loop over messages, up to the current one.

        With `offsets`, commit these instead: by partition the next offset to read.

        Returns the partitions that could not be committed, usually none: they belong to another member now, or a seek
        moved the group. Their messages since the last commit are delivered again, here or to the other member; until
        then they stay uncommitted. A rebalance is never an error.
        """
        fork.check(self._generation, "this consumer")
        with self._working():
            return self._commit(offsets)

    @abstractmethod
    def _commit(self, offsets: Mapping[Place, int] | None) -> list[Place]: ...

    def uncommitted(self) -> list[TransactionOffsets]:
        """What `commit` would commit now: what `ClientTransaction.send_offsets` sends."""
        fork.check(self._generation, "this consumer")
        with self._working():
            return self._uncommitted()

    @abstractmethod
    def _uncommitted(self) -> list[TransactionOffsets]: ...

    @abstractmethod
    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None:
        """A transaction has committed this."""

    @abstractmethod
    def pause(self, partitions: Iterable[Place] | None = None) -> None:
        """Return no messages of these partitions, or of all, until they are resumed; they stay assigned."""

    @abstractmethod
    def resume(self, partitions: Iterable[Place] | None = None) -> None:
        """Continue with these partitions, or with all, where they were paused."""

    @property
    @abstractmethod
    def paused(self) -> list[Place]:
        """The partitions that are paused."""

    # Ending

    def stop(self) -> None:
        """End loops: `poll` returns, and a loop over messages ends after the current one.

        Safe in a signal handler and from any thread. What was returned can still be committed; then close.
        """
        self._stopped = True
        self._wake()

    @abstractmethod
    def _wake(self) -> None: ...

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped or closed."""
        return self._stopped or self._closed

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, maybe by another thread."""
        return self._closed

    def close(self) -> None:
        """Close: commit what was returned if `auto_commit` is set, leave the group, and stop reading."""
        if self._closed or self._generation != fork.generation:
            # A forked process must not make its parent leave the group.
            return
        if self._worker == threading.get_ident():
            self._is_to_close = True
            self.stop()
            return
        try:
            self._finish()
        finally:
            self._closed = True
            self._end()

    @abstractmethod
    def _finish(self) -> None:
        """What is still to be done before the end, such as the last commit."""

    @abstractmethod
    def _end(self) -> None:
        """Release everything."""

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Inside a call; a call within a call (a commit in a callback) changes nothing."""
        outer, self._worker = self._worker, threading.get_ident()
        try:
            yield
        finally:
            self._worker = outer
            if self._is_to_close and outer is None:
                self._is_to_close = False
                self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
