"""The consumer for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from headrace.aio.crossing import Crossing, awaited
from headrace.client.consumer import Consumer
from headrace.client.message import Message

_IDLE_SECONDS = 0.5


class AsyncConsumer(Crossing[Consumer]):
    """Reads one topic. Callbacks of the consumer are called in a thread."""

    poll = awaited(Consumer.poll)
    commit = awaited(Consumer.commit)
    seek = awaited(Consumer.seek)
    positions = awaited(Consumer.positions)

    @property
    def assignment(self) -> list[int]:
        """The partitions that are read."""
        return self._wrapped.assignment

    async def messages(self, idle_seconds: float | None = None) -> AsyncIterator[Message]:
        """Messages one by one; ends when none came for so long, or never."""
        while True:
            batch = await self._run(partial(self._wrapped.take, timeout=idle_seconds or _IDLE_SECONDS))
            for message in self._wrapped.one_by_one(batch):
                yield message
            if not batch.num_rows and idle_seconds is not None:
                return

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()
