"""From asyncio into the broker: the one place where the event loop meets threads.

Publishes that arrive while another commit of their topic is under way are collected and handed over together: one
thread switch per commit and not per message. Waiting for messages takes no thread at all: a watch wakes the loop.
Everything else runs in a small pool of threads, so that nothing blocks the loop; publishing has threads of its own, so
that readers and changes of the catalog do not hold it up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import InvalidInput
from headrace.core.limits import STOP_SECONDS
from headrace.core.messages import STORED_SCHEMA
from headrace.core.publish.plan import Receipts
from headrace.edge.draining import Draining

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 16

_VALUE: Final = STORED_SCHEMA.field("value")
_VALUES: Final = pa.schema([_VALUE])


class Bridge:
    """A broker, as seen from an event loop."""

    def __init__(self, broker: Broker, draining: Draining | None = None, stop_seconds: float = STOP_SECONDS) -> None:
        self.broker = broker
        self._stop_seconds = stop_seconds
        self.draining = draining or Draining()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="headrace-http")
        self._publishing = ThreadPoolExecutor(THREADS, thread_name_prefix="headrace-publish")
        self._collected: dict[str, list[tuple[pa.RecordBatch, asyncio.Future[Receipts]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._values: dict[str, list[tuple[bytes, asyncio.Future[Receipts]]]] = {}

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the broker in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def _call_publishing(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._publishing, lambda: function(*args, **kwargs))

    async def publish(self, topic: str, batch: pa.RecordBatch) -> Receipts:
        """Publish in the same commit as all who publish to the topic meanwhile."""
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        collected = self._collected.get(topic)
        if collected is not None:
            collected.append((batch, future))
        else:
            self._collected[topic] = [(batch, future)]
            asyncio.get_running_loop().create_task(self._hand_over(topic))
        return await future

    async def _hand_over(self, topic: str) -> None:
        """Hand over what is collected, until nothing more comes."""
        while waiting := self._collected[topic]:
            self._collected[topic] = []
            batches = [batch for batch, _ in waiting]
            try:
                outcomes = await self._call_publishing(self.broker.publish_many, topic, batches)
            except Exception as error:
                outcomes = [error] * len(waiting)
            for (_, future), outcome in zip(waiting, outcomes, strict=True):
                _settle(future, outcome)
        del self._collected[topic]

    async def publish_value(self, topic: str, value: bytes) -> None:
        """Publish a message that is nothing but its value: those that come meanwhile make one batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipts] = loop.create_future()
        gathered = self._values.get(topic)
        if gathered is not None:
            gathered.append((value, future))
        else:
            self._values[topic] = [(value, future)]
            task = loop.create_task(self._hand_over_values(topic))
            # The loop itself does not keep tasks alive.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await future

    async def _hand_over_values(self, topic: str) -> None:
        """Hand over what is gathered, until nothing more comes."""
        while waiting := self._values[topic]:
            self._values[topic] = []
            outcomes: Sequence[Receipts | Exception]
            try:
                values = [value for value, _ in waiting]
                outcomes = await self._call_publishing(self._publish_values, topic, values)
            except Exception as error:
                outcomes = [error] * len(waiting)
            for (_, future), outcome in zip(waiting, outcomes, strict=True):
                _settle(future, outcome)
        del self._values[topic]

    def _publish_values(self, topic: str, values: Sequence[bytes]) -> Sequence[Receipts | Exception]:
        """What became of each value; in a thread."""
        try:
            return [self.broker.publish(topic, _batch_of(values))] * len(values)
        except InvalidInput:
            # Some are refused, and only those: each is looked at by itself.
            return self.broker.publish_many(topic, [_batch_of([value]) for value in values])

    async def fetch(
        self, topic: str, partition: int, offset: int, max_messages: int, max_bytes: int, wait_seconds: float
    ) -> pa.RecordBatch:
        """Read, waiting for the first message without a thread."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        event = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(event.set)

        with self.broker.watching(topic, partition, wake), self.draining.waking(event):
            while True:
                event.clear()
                batch = await self.call(self.broker.fetch, topic, partition, offset, max_messages, max_bytes)
                if batch.num_rows or self.draining.has_begun or loop.time() >= deadline:
                    return batch
                try:
                    async with asyncio.timeout_at(deadline):
                        await event.wait()
                except TimeoutError:
                    return batch

    def close(self) -> None:
        """End the threads once they are done, or leave behind those that take longer than a stop may."""
        for pool in (self._publishing, self._pool):
            # Waited for in a thread: a pool itself waits for ever.
            ending = threading.Thread(target=pool.shutdown, name="headrace-http-stop", daemon=True)
            ending.start()
            ending.join(self.draining.seconds_left(self._stop_seconds))
            if ending.is_alive():
                pool.shutdown(wait=False, cancel_futures=True)


def _batch_of(values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, _VALUE.type)], schema=_VALUES)


def _settle(future: asyncio.Future[Receipts], outcome: Receipts | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
