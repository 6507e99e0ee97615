"""The bridge from asyncio to the broker: the only place where the event loop meets threads.

Publishes go to the intake of their topic without a thread; those that arrive while another commit of the topic is
running share the next one. Waiting for space needs no thread, and neither does waiting for messages (`long_poll`).
Everything else runs in a small thread pool, so that nothing blocks the loop; commits have threads of their own in the
broker, so that readers and catalog changes do not delay them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, ParamSpec, TypeVar

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.checks import check_batch, check_commit_key
from headrace.broker.publish.parts import Part
from headrace.broker.publish.submission import Submission
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.limits import STOP_SECONDS
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.edge.draining import Draining
from headrace.edge.event_loop.loop_sink import LoopSink, Outcome

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 16


class Bridge:
    """A broker, as seen from an event loop."""

    def __init__(
        self,
        broker: Broker,
        draining: Draining | None = None,
        stop_seconds: float = STOP_SECONDS,
        threads: int = THREADS,
    ) -> None:
        self.broker = broker
        self._stop_seconds = stop_seconds
        self.draining = draining or Draining()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-http")
        self._sink: LoopSink | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sink(self) -> LoopSink:
        """Where outcomes come to on the event loop that uses this bridge."""
        if self._sink is None:
            self._sink = LoopSink(self.broker.settings.publish_timeout_seconds, self.draining)
        return self._sink

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the broker in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

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

    async def publish(
        self, topic: str, batch: pa.RecordBatch, commit_key: CommitKey | None = None, account: str = ""
    ) -> Receipts:
        """Publish in one commit with all publishers that arrive meanwhile; `account` is charged for space."""
        key = check_commit_key(commit_key)
        return await self._published(topic, Submission([check_batch(batch)], key, account=account, sink=self.sink))

    async def publish_value(self, topic: str, value: bytes, account: str = "") -> None:
        """Publish a message that has only a value; those that arrive meanwhile form one batch."""
        await self._published(topic, Submission(value=value, account=account, sink=self.sink))

    async def _published(self, topic: str, submission: Submission) -> Receipts:
        """The receipts; if the caller is cancelled before its submission is taken, that is not written."""
        if not self.broker.knows_topic(topic):
            await self.know(topic)
        intake = self.broker.intake(topic)
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        self.sink.submit(intake, submission, partial(_settle, future))
        try:
            return await future
        except asyncio.CancelledError:
            self.sink.withdraw(intake, submission)
            raise

    async def publish_numbered(self, topic: str, client: str, value: bytes, partition: int | None) -> None:
        """Publish as the next message of a client of the queue API; who writes too fast waits without a thread."""
        await self.draining.pause(await self.call(self.broker.publish_numbered, topic, client, value, partition))

    def publish_parts(self, topic: str, parts: Sequence[Part], tell: Callable[[], None], account: str = "") -> None:
        """Publish parts in one commit without a task for it; `tell` is called on the event loop once all are decided.

        What is published to a known topic is written in the order of the calls.
        """

        def finish(outcome: Outcome) -> None:
            for part in parts:
                if isinstance(outcome, Exception) and part.error is None:
                    part.error = outcome
            tell()

        try:
            intake = self.broker.intake(topic)
            self.sink.submit(intake, Submission(parts=parts, account=account, sink=self.sink), finish)
        except HeadraceError as error:
            finish(error)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Have work done beside the caller."""
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself does not keep tasks alive.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop the threads; those that take longer than the stop timeout are abandoned."""
        # In a thread, because a pool waits without a timeout.
        ending = threading.Thread(target=self._pool.shutdown, name="headrace-http-stop", daemon=True)
        ending.start()
        ending.join(self.draining.seconds_left(self._stop_seconds))
        if ending.is_alive():
            self._pool.shutdown(wait=False, cancel_futures=True)


def _settle(future: asyncio.Future[Receipts], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
