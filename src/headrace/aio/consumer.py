"""The consumer for asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.aio.bridge import ThreadBridge
from headrace.aio.shield import CALL_SECONDS, CancelShield
from headrace.client.consumer.base import BaseConsumer
from headrace.client.message import Message
from headrace.client.read.start import Start
from headrace.core.errors import Closed
from headrace.core.limits import FETCH_MESSAGES_DEFAULT
from headrace.core.reports.descriptions import TransactionOffsets


class AsyncConsumer(ThreadBridge[BaseConsumer[Any]]):
    """Reads one topic, or several. Callbacks of the consumer are called in a thread.

    A poll that is cancelled loses nothing: what it would have given is given to the next one.
    """

    _threads_max = 1

    def __init__(self, wrapped: BaseConsumer[Any]) -> None:
        super().__init__(wrapped)
        self._takes: CancelShield[pa.RecordBatch] = CancelShield(self._submit)

    async def commit(self, offsets: Mapping[Any, int] | None = None) -> list[Any]:
        """Commit the messages returned so far, or given offsets, as `Consumer.commit`."""
        return await self._run(partial(self._wrapped.commit, offsets))

    async def uncommitted(self) -> list[TransactionOffsets]:
        """What `commit` would commit now: what `AsyncTransaction.send_offsets` sends."""
        return await self._run(self._wrapped.uncommitted)

    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None:
        """A transaction has committed this; called in any thread, done in that of the consumer."""
        # One that was closed meanwhile has no thread.
        with suppress(RuntimeError):
            self._threads.submit(self._wrapped.was_committed, offsets)

    async def positions(self) -> dict[Any, int]:
        """The next offset to return, by partition."""
        return await self._run(self._wrapped.positions)

    async def pause(self, partitions: Iterable[Any] | None = None) -> None:
        """Return no messages of these partitions, or of all, until they are resumed; they stay assigned."""
        await self._run(partial(self._wrapped.pause, partitions))

    async def resume(self, partitions: Iterable[Any] | None = None) -> None:
        """Continue with these partitions, or with all, where they were paused."""
        await self._run(partial(self._wrapped.resume, partitions))

    @property
    def paused(self) -> list[Any]:
        """The partitions that are paused."""
        return self._wrapped.paused

    @property
    def assignment(self) -> list[Any]:
        """The partitions that are read."""
        return self._wrapped.assignment

    @property
    def generation(self) -> int | None:
        """The generation of the group in which `assignment` holds; none without a group, or with several topics."""
        return self._wrapped.generation

    @property
    def skipped(self) -> int:
        """How many messages were skipped since their values cannot be decoded."""
        return self._wrapped.skipped

    async def poll(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """The next messages, of one or several partitions; waits up to `timeout` for the first, and may return none."""
        batch = await self._take(max_messages, timeout)
        self._wrapped.give(batch)
        return batch

    def stop(self) -> None:
        """End loops, as `Consumer.stop`; it does not wait, so it can be a signal handler of the event loop."""
        self._wrapped.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped or closed."""
        return self._wrapped.is_stopped

    async def seek(self, to: Start | Mapping[Any, int]) -> None:
        """Continue elsewhere, as `Consumer.seek`; what a cancelled poll would have returned is dropped."""
        await self._run(partial(self._wrapped.seek, to))

    async def messages(self, idle_seconds: float | None = None) -> AsyncIterator[Message]:
        """Messages one by one; ends after `idle_seconds` without any, or when the consumer is closed."""
        while True:
            try:
                batch = await self._take(FETCH_MESSAGES_DEFAULT, idle_seconds)
            except Closed:
                if self._is_over:
                    return
                raise
            for message in self._wrapped.one_by_one(batch):
                yield message
            if self.is_stopped or (not batch.num_rows and idle_seconds is not None):
                return

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def close(self) -> None:
        """End: commit what was given out if that is automatic, leave the group, read no more."""
        try:
            await super().close()
        finally:
            await self._takes.end()

    async def _take(self, max_messages: int, timeout: float | None) -> pa.RecordBatch:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = CALL_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            take = partial(self._wrapped.take, max_messages, min(left, CALL_SECONDS))
            batch = await self._takes.run(take)
            if batch.num_rows and not self._wrapped.is_next(batch):
                # A cancelled poll took it before a seek or a pause: what it holds is read again, if at all.
                continue
            if batch.num_rows or self.is_stopped or (deadline is not None and time.monotonic() >= deadline):
                return batch
