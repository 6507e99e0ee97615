"""The transaction for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import NamedTuple

from headrace.aio.bridge import ThreadBridge, awaited
from headrace.aio.consumer import AsyncConsumer
from headrace.client.transaction import ClientTransaction
from headrace.core.reports.descriptions import TransactionOffsets


class _Read(NamedTuple):
    """What a consumer has returned, as its own thread said."""

    consumer: AsyncConsumer
    offsets: list[TransactionOffsets]

    def uncommitted(self) -> list[TransactionOffsets]:
        return self.offsets

    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None:
        self.consumer.was_committed(offsets)


class AsyncTransaction(ThreadBridge[ClientTransaction]):
    """Messages and offsets that are committed together at the end of `async with`; calls are made one at a time.

    If the task is cancelled, everything is dropped. Only a commit that has begun is not stopped, and may be done.
    """

    _threads_max = 1

    send = awaited(ClientTransaction.send)
    send_batch = awaited(ClientTransaction.send_batch)
    send_group_offsets = awaited(ClientTransaction.send_group_offsets)
    commit = awaited(ClientTransaction.commit)

    async def send_offsets(self, consumer: AsyncConsumer) -> None:
        """Commit what a consumer has returned and not committed, as `ClientTransaction.send_offsets`."""
        read = _Read(consumer, await consumer.uncommitted())
        await self._run(partial(self._wrapped.send_offsets, read))

    async def abort(self) -> None:
        """Drop all of it; the offsets stay as they were."""
        await self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(partial(self._wrapped.__exit__, kind, error, trace))
