"""Following for asyncio: the batches of some partitions as they come."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from headrace.aio.bridge import ThreadBridge
from headrace.aio.shield import CALL_SECONDS, CancelShield
from headrace.client.read.follow import Following
from headrace.core.errors import Closed


class AsyncFollowing(ThreadBridge[Following]):
    """Batches for ever, each of one partition, until it is closed; one that is cancelled loses none."""

    _threads_max = 1

    def __init__(self, wrapped: Following) -> None:
        super().__init__(wrapped)
        self._takes: CancelShield[pa.RecordBatch | None] = CancelShield(self._submit)

    @property
    def skipped(self) -> int:
        """How many messages were skipped since their values cannot be decoded."""
        return self._wrapped.skipped

    def __aiter__(self) -> AsyncFollowing:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        while not self._wrapped.is_closed:
            try:
                batch = await self._takes.run(partial(self._wrapped.take, CALL_SECONDS))
            except Closed:
                if self._is_over:
                    break
                raise
            if batch is not None:
                return batch
        raise StopAsyncIteration

    async def close(self) -> None:
        """Follow no more."""
        # Not in the thread: that may just be waiting for a batch, and closing does not wait.
        self._wrapped.close()
        await self._takes.end()
        self._is_over = True
        self._threads.shutdown(wait=False)
