"""A producer of a load: batches as fast as they are answered, or at a set rate.

What is under way is bounded, so that at full speed the times are those of the server and not of a long queue. With a
rate each batch has its moment; one that is late does not make the next ones late too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import numpy as np

from headrace.client import Client, Producer
from headrace.load.histogram import LatencyHistogram
from headrace.load.load import Job
from headrace.load.payload import Payload

_BATCHES_UNDER_WAY: Final = 8
_SINGLES_UNDER_WAY: Final = 10_000
_REPORT_SECONDS: Final = 0.5
# Single messages are created in batches of this size.
_MADE_TOGETHER: Final = 100


class Producing:
    """The work of one process."""

    def __init__(self, client: Client, job: Job) -> None:
        assert job.producer is not None, "the job is a producer's"
        load = job.load
        self._job = job
        self._messages = load.share(job.producer)
        self._rate = load.rate / load.producers
        rows = max(load.batch, _MADE_TOGETHER if load.batch == 1 else 1)
        self._payload = Payload(job.producer, load.value_bytes, load.keys, min(rows, self._messages))
        name = f"load-{job.producer}"
        linger = load.linger_seconds if load.batch == 1 else 0.0
        self._producer: Producer = client.producer(job.topic, name, linger_seconds=linger)
        self._acknowledged: deque[tuple[int, int]] = deque()
        self.acknowledgements = LatencyHistogram()
        self.began_ns = 0
        self.ended_ns = 0

    def run(self, report: Callable[[int], None]) -> None:
        """Publish everything, and wait for the last answer; reports progress."""
        self.began_ns = time.monotonic_ns()
        reported_at, sent = time.monotonic(), 0
        under_way: deque[Future[Any]] = deque()
        bound = _SINGLES_UNDER_WAY if self._job.load.batch == 1 else _BATCHES_UNDER_WAY
        with self._producer:
            for future in self._singles() if self._job.load.batch == 1 else self._batches():
                under_way.append(future)
                sent += 1
                if len(under_way) >= bound:
                    under_way.popleft().result()
                if time.monotonic() - reported_at >= _REPORT_SECONDS:
                    reported_at = time.monotonic()
                    report(sent)
            for future in under_way:
                future.result()
        self.ended_ns = time.monotonic_ns()
        taken = np.array([ended_ns - sent_ns for sent_ns, ended_ns in self._acknowledged], np.float64)
        self.acknowledgements.add(taken / 1e9)

    def _batches(self) -> Iterator[Future[Any]]:
        size = self._job.load.batch
        for first in range(0, self._messages, size):
            sent_ns = self._wait_for(first)
            batch = self._payload.batch(first, min(size, self._messages - first), sent_ns)
            future: Future[Any] = self._producer.submit_batch(batch)
            self._note(future, sent_ns)
            yield future

    def _singles(self) -> Iterator[Future[Any]]:
        """One by one; the time in a value is that at which it is sent, so a rate stamps each by itself."""
        together = 1 if self._rate else _MADE_TOGETHER
        for first in range(0, self._messages, together):
            sent_ns = self._wait_for(first)
            batch = self._payload.batch(first, min(together, self._messages - first), sent_ns)
            keys = batch.column("key").to_pylist() if self._job.load.keys else [None] * batch.num_rows
            for value, key in zip(batch.column("value").to_pylist(), keys, strict=True):
                future: Future[Any] = self._producer.send(value, key)
                yield future
            self._note(future, sent_ns)

    def _wait_for(self, first: int) -> int:
        """Wait for the moment of a message; the time that counts as its own."""
        if self._rate:
            due_ns = self.began_ns + int(first / self._rate * 1e9)
            if (pause_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(pause_ns / 1e9)
        return time.monotonic_ns()

    def _note(self, future: Future[Any], sent_ns: int) -> None:
        future.add_done_callback(lambda done: self._acknowledged.append((sent_ns, time.monotonic_ns())))
