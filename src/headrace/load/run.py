"""Runs a load: its own topic, consumers with assigned partitions, then the producers, then the totals.

    start consumers ── each group has divided the partitions ── start producers ── all ready ── go
         ── producers are done ── every group has everything ── stop ── add up

Whatever happens, the processes are ended and the topic is deleted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace

from headrace.client import connect
from headrace.load.histogram import LatencyHistogram
from headrace.load.load import Job, Load, LoadFailed
from headrace.load.outcome import LoadOutcome
from headrace.load.verification import findings
from headrace.load.workers import Worker, Workers

_CONNECT_SECONDS: Final = 5.0
# A process has to load its libraries, and a group to notice its members.
_START_SECONDS: Final = 120.0
# How long to wait for unexpected messages after all expected ones arrived.
_MORE_SECONDS: Final = 0.3


def run(
    load: Load,
    url: str,
    token: str | None = None,
    root_certificates: str | None = None,
    advance: Callable[[int], None] | None = None,
) -> LoadOutcome:
    """Run a load on the server at a URL; returns its result. `advance` is called with the number of messages read."""
    load.check()
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    patience = min(_CONNECT_SECONDS, load.timeout_seconds)
    with connect(url, token, root_certificates=root_certificates, timeout_seconds=patience) as client:
        client.create_topic(topic, partitions=load.partitions)
        try:
            with TemporaryDirectory(prefix="headrace-bench-") as directory:
                base = Job(load=load, url=url, topic=topic, token=token, root_certificates=root_certificates)
                return _Run(base, Path(directory), advance).run()
        finally:
            client.delete_topic(topic)


class _Run:
    """One run of a load."""

    def __init__(self, base: Job, directory: Path, advance: Callable[[int], None] | None) -> None:
        self._advance = advance
        self._told = 0
        self._base = base
        self._load = base.load
        self._directory = directory
        self._groups: list[list[Worker]] = []
        self._producers: list[Worker] = []

    def run(self) -> LoadOutcome:
        with Workers() as workers:
            self._start(workers)
            self._wait(workers, self._is_divided, _START_SECONDS, "the consumers did not get their partitions")
            self._wait(workers, self._is_ready, _START_SECONDS, "the producers are not ready")
            _order(self._producers, b"go")
            patience = self._load.timeout_seconds + self._load.pause_seconds
            self._wait(workers, self._is_published, patience, "no messages were acknowledged")
            self._wait(workers, self._has_arrived, patience, "")
            workers.listen(_MORE_SECONDS)
            readers = [worker for members in self._groups for worker in members]
            _order(readers, b"stop")
            self._wait(workers, lambda: _all_done(readers), _START_SECONDS, "the consumers did not stop")
        return self._outcome(readers)

    def _start(self, workers: Workers) -> None:
        for group in range(self._load.groups if self._load.consumers else 0):
            members = []
            for member in range(self._load.consumers):
                counts_path = str(self._directory / f"{group}-{member}.npy")
                members.append(workers.start(replace(self._base, group=f"group-{group}", counts_path=counts_path)))
            self._groups.append(members)
        self._producers = [
            workers.start(replace(self._base, producer=producer)) for producer in range(self._load.producers)
        ]

    def _wait(self, workers: Workers, is_so: Callable[[], bool], patience_seconds: float, otherwise: str) -> None:
        """Wait until `is_so`; give up when no worker reports for `patience_seconds`."""
        heard = time.monotonic()
        while not is_so():
            if workers.listen(1.0):
                heard = time.monotonic()
                self._tell_progress()
            elif time.monotonic() - heard > patience_seconds:
                if otherwise:
                    raise LoadFailed(f"{otherwise}, for {patience_seconds:g} seconds")
                return

    def _tell_progress(self) -> None:
        done = sum(_sum(members, "arrived") for members in self._groups)
        if self._advance is not None and done > self._told:
            self._advance(done - self._told)
            self._told = done

    def _is_divided(self) -> bool:
        return all(_have_divided(members, self._load.partitions) for members in self._groups)

    def _is_ready(self) -> bool:
        return all(worker.said for worker in self._producers)

    def _is_published(self) -> bool:
        return _all_done(self._producers)

    def _has_arrived(self) -> bool:
        return all(_sum(members, "arrived") >= self._load.messages for members in self._groups)

    def _outcome(self, readers: list[Worker]) -> LoadOutcome:
        began_ns = min(worker.said["began_ns"] for worker in self._producers)
        published_ns = max(worker.said["ended_ns"] for worker in self._producers)
        read_ns = max((worker.said["ended_ns"] for worker in readers), default=began_ns)
        checked = [
            findings(
                [Path(worker.job.counts_path) for worker in members],
                self._load.messages,
                _sum(members, "out_of_order"),
                _sum(members, "foreign"),
            )
            for members in self._groups
        ]
        return LoadOutcome(
            self._load,
            (published_ns - began_ns) / 1e9,
            max(0, read_ns - began_ns) / 1e9,
            _merged(self._producers),
            _merged(readers),
            checked,
        )


def _have_divided(members: list[Worker], partitions: int) -> bool:
    """Whether each member knows its own, and all of them together are all."""
    shares = [worker.said.get("partitions", []) for worker in members]
    # While a member waits for its share, another still reads it.
    is_even = max(map(len, shares)) - min(map(len, shares)) <= 1
    return is_even and sorted(partition for share in shares for partition in share) == list(range(partitions))


def _order(workers: list[Worker], line: bytes) -> None:
    for worker in workers:
        worker.order(line)


def _all_done(workers: list[Worker]) -> bool:
    return all(worker.is_done for worker in workers)


def _sum(workers: list[Worker], name: str) -> int:
    return sum(int(worker.said.get(name, 0)) for worker in workers)


def _merged(workers: list[Worker]) -> LatencyHistogram:
    merged = LatencyHistogram()
    for worker in workers:
        merged.merge(LatencyHistogram(worker.said["latencies"]))
    return merged
