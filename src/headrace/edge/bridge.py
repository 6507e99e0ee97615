"""The bridge from asyncio to the broker: the only place where the event loop meets threads.

Publishes that arrive while another commit of their topic is running are collected and submitted together
(`publish_lines`): one thread switch per commit, not per message. Each one is admitted to the queue of its topic before
it is collected, so everything that waits here counts against the broker's limits; waiting for admission needs no
thread, and neither does waiting for messages (`long_poll`). Everything else runs in a small thread pool, so that
nothing blocks the loop; publishing has its own threads, so that readers and catalog changes do not delay it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, ParamSpec, TypeVar

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.publish.admissions import Admission
from headrace.broker.publish.commit_queue import BatchParts
from headrace.broker.read.topic_reader import TopicReader
from headrace.broker.topics.topic import Topic
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.limits import STOP_SECONDS
from headrace.core.messages import STORED_SCHEMA
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.edge.draining import Draining
from headrace.edge.event_loop.publish_lines import Entry, Outcome, PublishLines

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 16

_VALUE: Final = STORED_SCHEMA.field("value")
_VALUES: Final = pa.schema([_VALUE])


@dataclass(slots=True)
class _Soon:
    """A batch for `publish_soon` that waits to be admitted, and since when."""

    batch: pa.RecordBatch
    parts: BatchParts | None
    tell: Callable[[Outcome], None]
    since: float
    admission: Admission | None = None
    turn: asyncio.Future[None] | None = None


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
        # Batches and single values of a topic are two lines.
        self._lines: PublishLines[tuple[Topic, bool]] = PublishLines(
            self._publish_line, broker.admissions.withdraw, threads
        )
        # By topic, what `publish_soon` was given while something before it waits for admission.
        self._behind: dict[str, deque[_Soon]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

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

    async def _admitted(self, topic: str, ask: Callable[[Callable[[], None]], Admission]) -> Admission:
        """Admit a batch to the queue of a topic: from here on it counts against the only limit on waiting writes."""
        if not self.broker.knows_topic(topic):
            await self.know(topic)
        admission, turn = _asked(ask)
        await self._await_admission(admission, turn, self.broker.admissions.wait_seconds)
        return admission

    async def _await_admission(self, admission: Admission, turn: asyncio.Future[None], seconds: float) -> None:
        """Wait until a batch is admitted."""
        admissions = self.broker.admissions
        if admission.is_in():
            return
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            admissions.withdraw(admission)
            raise admissions.overloaded(admission) from None
        except BaseException:
            admissions.withdraw(admission)
            raise
        if not admission.is_in():
            raise admissions.overloaded(admission)

    async def publish(self, topic: str, batch: pa.RecordBatch, commit_key: CommitKey | None = None) -> Receipts:
        """Publish in one commit with all publishers that arrive meanwhile."""
        admissions = self.broker.admissions
        admission = await self._admitted(topic, lambda wake: admissions.admit(topic, batch, wake, commit_key))
        return await self._published(admission)

    def publish_soon(
        self, topic: str, batch: pa.RecordBatch, tell: Callable[[Outcome], None], parts: BatchParts | None = None
    ) -> None:
        """The same without a task for it: `tell` is called with the receipts or the error, later, on the event loop.

        Batches of a topic are written in the order of the calls. Raises what is known to be wrong at once. If the batch
        has parts, one that breaks a rule is refused by itself.
        """
        soon = _Soon(batch, parts, tell, asyncio.get_running_loop().time())
        behind = self._behind.get(topic)
        if behind is not None:
            behind.append(soon)
            return
        if self.broker.knows_topic(topic):
            soon.admission, soon.turn = _asked(partial(self.broker.admissions.admit, topic, batch, parts=parts))
            if soon.admission.is_in():
                self._lines.add((soon.admission.topic, False), Entry(soon.admission, tell, _always))
                return
        self._behind[topic] = deque([soon])
        self.start(self._admit_behind(topic))

    async def _admit_behind(self, topic: str) -> None:
        """Admit what waits, one after another, until nothing more does."""
        admissions, loop, behind = self.broker.admissions, asyncio.get_running_loop(), self._behind[topic]
        while behind:
            soon = behind[0]
            try:
                left = soon.since + admissions.wait_seconds - loop.time()
                if soon.admission is None or soon.turn is None:
                    await self.know(topic)
                    soon.admission, soon.turn = _asked(partial(admissions.admit, topic, soon.batch, parts=soon.parts))
                await self._await_admission(soon.admission, soon.turn, max(0.0, left))
                self._lines.add((soon.admission.topic, False), Entry(soon.admission, soon.tell, _always))
            except Exception as error:
                soon.tell(error)
            behind.popleft()
        del self._behind[topic]

    async def _published(self, admission: Admission, value: bytes | None = None) -> Receipts:
        """The receipts of what was admitted; if its caller is cancelled before it is taken, it is not written."""
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        entry = Entry(admission, partial(_settle, future), lambda: not future.done(), value or b"")
        self._lines.add((admission.topic, value is not None), entry)
        return await future

    async def publish_value(self, topic: str, value: bytes) -> None:
        """Publish a message that has only a value; those that arrive meanwhile form one batch."""
        admissions, size = self.broker.admissions, len(value)
        admission = await self._admitted(topic, lambda wake: admissions.admit_value(topic, size, wake))
        await self._published(admission, value)

    def _publish_line(self, line: tuple[Topic, bool], entries: Sequence[Entry]) -> Sequence[Outcome]:
        """Publish what waited in a line; runs in a thread."""
        topic, are_values = line
        admitted = [entry.admission for entry in entries]
        if are_values:
            return self._publish_values(topic.record.name, admitted, [entry.value for entry in entries])
        return self.broker.admissions.publish(admitted)

    def _publish_values(
        self, topic: str, admitted: Sequence[Admission], values: Sequence[bytes]
    ) -> Sequence[Receipts | Exception]:
        """The outcome of each value; runs in a thread."""
        outcome = self.broker.admissions.publish_values(admitted, _batch_of(values))[0]
        if not isinstance(outcome, InvalidInput):
            return [outcome] * len(values)
        # Only some are invalid: each is published separately.
        return self.broker.publish_many(topic, [_batch_of([value]) for value in values])

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Have work done beside the caller."""
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself does not keep tasks alive.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop the threads; those that take longer than the stop timeout are abandoned."""
        for pool in (self._lines.pool, self._pool):
            # In a thread, because a pool waits without a timeout.
            ending = threading.Thread(target=pool.shutdown, name="headrace-http-stop", daemon=True)
            ending.start()
            ending.join(self.draining.seconds_left(self._stop_seconds))
            if ending.is_alive():
                pool.shutdown(wait=False, cancel_futures=True)


def _batch_of(values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, _VALUE.type)], schema=_VALUES)


def _asked(ask: Callable[[Callable[[], None]], Admission]) -> tuple[Admission, asyncio.Future[None]]:
    """An admission that was asked for, and a future that is done once it is granted or refused."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        # The loop may be closed when the last topics end.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_take_turn, turn)

    return ask(wake), turn


def _always() -> bool:
    return True


def _take_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _settle(future: asyncio.Future[Receipts], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
