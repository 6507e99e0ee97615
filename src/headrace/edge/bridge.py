"""The bridge from asyncio to the broker: the only place where the event loop meets threads.

Publishes that arrive while another commit of their topic is running are collected and submitted together: one thread
switch per commit, not per message. Each one is admitted to the queue of its topic before it is collected, so everything
that waits here counts against the broker's limits; waiting for admission needs no thread, and neither does waiting for
messages (`long_poll`). Everything else runs in a small thread pool, so that nothing blocks the loop; publishing has its
own threads, so that readers and catalog changes do not delay it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.publish.admissions import Admission
from headrace.broker.read.topic_reader import TopicReader
from headrace.broker.topics.topic import Topic
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.limits import STOP_SECONDS
from headrace.core.messages import STORED_SCHEMA
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
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
        self._collected: dict[Topic, list[tuple[Admission, asyncio.Future[Receipts]]]] = {}
        self._values: dict[Topic, list[tuple[Admission, bytes, asyncio.Future[Receipts]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the broker in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def _call_publishing(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._publishing, lambda: function(*args, **kwargs))

    async def know(self, topic: str) -> None:
        """Load a topic, so that finding it does not block; a shared store may have to be queried once."""
        if not self.broker.knows_topic(topic):
            with suppress(HeadraceError):
                await self.call(self.broker.offsets, topic)

    async def reader(self, topic: str) -> TopicReader:
        """A reader of a topic."""
        if self.broker.knows_topic(topic):
            return self.broker.reader(topic)
        return await self.call(self.broker.reader, topic)

    async def _admitted(self, topic: str, ask: Callable[[Callable[[], None]], Admission]) -> Admission:
        """Admit a batch to the queue of a topic: from here on it counts against the only limit on waiting writes."""
        if not self.broker.knows_topic(topic):
            await self.know(topic)
        loop, admissions = asyncio.get_running_loop(), self.broker.admissions
        turn: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            # The loop may be closed when the last topics end.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_take_turn, turn)

        admission = ask(wake)
        if admission.is_in():
            return admission
        try:
            async with asyncio.timeout(admissions.wait_seconds):
                await turn
        except TimeoutError:
            admissions.withdraw(admission)
            raise admissions.overloaded(admission) from None
        except BaseException:
            admissions.withdraw(admission)
            raise
        if not admission.is_in():
            raise admissions.overloaded(admission)
        return admission

    async def publish(self, topic: str, batch: pa.RecordBatch, commit_key: CommitKey | None = None) -> Receipts:
        """Publish in one commit with all publishers that arrive meanwhile."""
        admissions = self.broker.admissions
        admission = await self._admitted(topic, lambda wake: admissions.admit(topic, batch, wake, commit_key))
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        collected = self._collected.get(admission.topic)
        if collected is not None:
            collected.append((admission, future))
        else:
            self._collected[admission.topic] = [(admission, future)]
            self.start(self._hand_over(admission.topic))
        return await future

    async def _hand_over(self, topic: Topic) -> None:
        """Submit what is collected, until nothing more arrives."""
        while collected := self._collected[topic]:
            self._collected[topic] = []
            waiting = [pair for pair in collected if self._is_wanted(*pair)]
            if not waiting:
                continue
            admitted = [admission for admission, _ in waiting]
            outcomes: Sequence[Receipts | Exception]
            try:
                outcomes = await self._call_publishing(self.broker.admissions.publish, admitted)
            except Exception as error:
                outcomes = self._given_up(admitted, error)
            for (_, future), outcome in zip(waiting, outcomes, strict=True):
                _settle(future, outcome)
        del self._collected[topic]

    async def publish_value(self, topic: str, value: bytes) -> None:
        """Publish a message that has only a value; those that arrive meanwhile form one batch."""
        admissions, size = self.broker.admissions, len(value)
        admission = await self._admitted(topic, lambda wake: admissions.admit_value(topic, size, wake))
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        gathered = self._values.get(admission.topic)
        if gathered is not None:
            gathered.append((admission, value, future))
        else:
            self._values[admission.topic] = [(admission, value, future)]
            self.start(self._hand_over_values(admission.topic))
        await future

    async def _hand_over_values(self, topic: Topic) -> None:
        """Submit the gathered values, until nothing more arrives."""
        while gathered := self._values[topic]:
            self._values[topic] = []
            waiting = [entry for entry in gathered if self._is_wanted(entry[0], entry[2])]
            if not waiting:
                continue
            admitted = [admission for admission, _, _ in waiting]
            outcomes: Sequence[Receipts | Exception]
            try:
                values = [value for _, value, _ in waiting]
                outcomes = await self._call_publishing(self._publish_values, topic.record.name, admitted, values)
            except Exception as error:
                outcomes = self._given_up(admitted, error)
            for (_, _, future), outcome in zip(waiting, outcomes, strict=True):
                _settle(future, outcome)
        del self._values[topic]

    def _publish_values(
        self, topic: str, admitted: Sequence[Admission], values: Sequence[bytes]
    ) -> Sequence[Receipts | Exception]:
        """The outcome of each value; runs in a thread."""
        outcome = self.broker.admissions.publish_values(admitted, _batch_of(values))[0]
        if not isinstance(outcome, InvalidInput):
            return [outcome] * len(values)
        # Only some are invalid: each is published separately.
        return self.broker.publish_many(topic, [_batch_of([value]) for value in values])

    def _is_wanted(self, admission: Admission, future: asyncio.Future[Receipts]) -> bool:
        """Whether its caller still waits; what was cancelled before submission is not written."""
        if future.done():
            self.broker.admissions.withdraw(admission)
            return False
        return True

    def _given_up(self, admitted: Sequence[Admission], error: Exception) -> list[Exception]:
        for admission in admitted:
            self.broker.admissions.withdraw(admission)
        return [error] * len(admitted)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Have work done beside the caller."""
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself does not keep tasks alive.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop the threads; those that take longer than the stop timeout are abandoned."""
        for pool in (self._publishing, self._pool):
            # In a thread, because a pool waits without a timeout.
            ending = threading.Thread(target=pool.shutdown, name="headrace-http-stop", daemon=True)
            ending.start()
            ending.join(self.draining.seconds_left(self._stop_seconds))
            if ending.is_alive():
                pool.shutdown(wait=False, cancel_futures=True)


def _batch_of(values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, _VALUE.type)], schema=_VALUES)


def _take_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _settle(future: asyncio.Future[Receipts], outcome: Receipts | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
