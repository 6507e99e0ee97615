"""A consumer of a load: a member of a group that counts messages and their delay.

It reads until it is stopped. The load starts only when the partitions are divided among all members, so that a
rebalance, after which a group may get messages again, does not look like a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.client import Client
from headrace.load.histogram import LatencyHistogram
from headrace.load.load import Job
from headrace.load.verification import Verification

_POLL_SECONDS: Final = 0.1
_POLL_MESSAGES: Final = 100_000
_REPORT_SECONDS: Final = 0.1


class Consuming:
    """The work of one process."""

    def __init__(self, client: Client, job: Job) -> None:
        self._job = job
        self._consumer = client.consumer(job.topic, job.group)
        self._verification = Verification(job.load)
        self.latencies = LatencyHistogram()
        self.began_ns = 0
        self.ended_ns = 0

    def run(self, is_over: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Read until it is over, reporting progress now and then; then save what was verified."""
        reported: dict[str, Any] = {}
        reported_at = 0.0
        with self._consumer:
            while not is_over():
                self._poll()
                progress = {"partitions": self._consumer.assignment, "arrived": self._verification.arrived}
                if progress != reported and time.monotonic() - reported_at >= _REPORT_SECONDS:
                    reported, reported_at = progress, time.monotonic()
                    yield {"kind": "progress", **progress}
            # Members leave one after the other: those that stay must not count this again.
            self._consumer.commit()
        self._verification.save(Path(self._job.counts_path))

    def _poll(self) -> None:
        batch = self._consumer.poll(_POLL_MESSAGES, _POLL_SECONDS)
        if not batch.num_rows:
            return
        now_ns = time.monotonic_ns()
        self.began_ns = self.began_ns or now_ns
        self.ended_ns = now_ns
        heads = self._verification.enter(batch)
        self.latencies.add((now_ns - heads.sent_ns).astype(np.float64) / 1e9)

    def summary(self) -> dict[str, Any]:
        """The final report."""
        return {
            "arrived": self._verification.arrived,
            "began_ns": self.began_ns,
            "ended_ns": self.ended_ns,
            "out_of_order": self._verification.out_of_order,
            "foreign": self._verification.foreign,
            "latencies": self.latencies.counts(),
        }
