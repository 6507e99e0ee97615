"""Work in other threads, awaited and never slept for; and a log whose commits a test can hold back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.checks import check_batch
from headrace.broker.publish.submission import Submission
from headrace.core.publish.receipts import Receipts
from headrace.storage.interface import Decide
from headrace.storage.open import open_store
from tests.broker.sites import Site

Result = TypeVar("Result")

# Long enough for the slowest machine: only a test that has failed ever waits for it.
PATIENCE_SECONDS = 60.0


class Background(Generic[Result]):
    """A call in a thread of its own."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Result:
        """What the call returned, or raised."""
        self._thread.join(PATIENCE_SECONDS)
        assert self.is_done, "the call did not come back"
        if self._error is not None:
            raise self._error
        return self._result[0]


def together(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call them all at the same time; what each returned."""
    barrier = threading.Barrier(len(works))

    def started(work: Callable[[], Result]) -> Callable[[], Result]:
        def run() -> Result:
            barrier.wait(PATIENCE_SECONDS)
            return work()

        return run

    threads = [Background(started(work)) for work in works]
    return [thread.result() for thread in threads]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def until_waiting(broker: Broker, topic: str, readers: int = 1) -> None:
    """Wait until so many readers wait for messages of a topic."""
    watches = broker.topics.find(topic).topic.watches
    eventually(lambda: len(watches) == readers)


def until_queued(broker: Broker, topic: str, messages: int) -> None:
    """Wait until so many messages wait to be written, behind a commit that is held back: what comes is not in it."""
    intake = broker.topics.find(topic).topic.intake
    eventually(lambda: intake.depth == messages and bool(intake._taken))


class HeldWaits(threading.Event):
    """How long publishers that wrote too fast to a topic are to wait; they do until their waits are ended."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        broker.intake(topic)._ending = self

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        assert super().wait(PATIENCE_SECONDS), "the waits were not ended"
        return True


class Collected:
    """A sink that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.done: list[Submission] = []

    def complete(self, done: Sequence[Submission]) -> None:
        self.done += done

    def has(self, count: int) -> None:
        """Wait until that many were told."""
        eventually(lambda: len(self.done) >= count)


def publish_together(broker: Broker, topic: str, batches: Sequence[pa.RecordBatch]) -> list[Receipts | Exception]:
    """The outcomes of batches that stand in the queue together, so that one commit takes as many as fit."""
    intake, sink = broker.topics.find(topic).topic.intake, Collected()
    submissions = [Submission([check_batch(batch)], sink=sink) for batch in batches]
    with intake._lock:
        assert intake._leading is None, "nobody else publishes"
        leader = intake._leading = Submission()
    try:
        for submission in submissions:
            intake.submit(submission)
    finally:
        with intake._lock:
            intake._pass_lead(leader)
    sink.has(len(submissions))
    return [submission.outcome for submission in submissions]


class GatedStore:
    """A store whose logs commit only while the gate is open."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.error: BaseException | None = None

    def open_log(self, *arguments: Any) -> Any:
        return GatedLog(self._store.open_log(*arguments), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def open_gated(site: Site, **settings: Any) -> tuple[Broker, GatedStore]:
    """A broker on such a store, with its gate open."""
    store = GatedStore(open_store(site.url))
    return site.open(store=store, **settings), store


class GatedLog:
    """A log of such a store; it can be told to fail too."""

    def __init__(self, log: Any, store: GatedStore) -> None:
        self._log = log
        self._store = store

    def commit(self, decide: Decide, store_wide: bool = False) -> None:
        assert self._store.gate.wait(PATIENCE_SECONDS)
        if self._store.error is not None:
            raise self._store.error
        self._log.commit(decide, store_wide)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
