"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from types import TracebackType

from headrace.aio.bridge import ThreadBridge, awaited
from headrace.client.producer.producer import Producer
from headrace.client.producer.receipt import Receipt
from headrace.core.errors import Overloaded


class AsyncProducer(ThreadBridge[Producer]):
    """Sends messages to one topic; `asyncio.gather` over many sends shares their batches."""

    send_batch = awaited(Producer.send_batch)
    flush = awaited(Producer.flush)

    @property
    def last_seqno(self) -> int | None:
        """The highest seqno known to be written for this producer's id, in earlier runs too; none if there is none."""
        return self._wrapped.last_seqno

    async def send(
        self,
        value: object,
        key: object = None,
        attributes: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        created_at: datetime | None = None,
        *,
        seqno: int | None = None,
    ) -> Receipt:
        """Send one message and await its receipt; while the buffer is full this waits in a thread, not in the loop."""
        send = partial(self._wrapped.send, value, key, attributes, partition, created_at, seqno=seqno)
        try:
            future = send(timeout=0.0)
        except Overloaded:
            future = await self._run(send)
        return await asyncio.wrap_future(future)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(partial(self._wrapped.__exit__, kind, error, trace))
