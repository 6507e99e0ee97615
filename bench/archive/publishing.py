"""Publish to a server that archives and to one that does not, in turn: which part of its rate does a publisher keep?

    python -m bench.archive.publishing [--turns 10] [--seconds 3]

Both are real servers with a topic of the same backlog, and the one whose turn it is not is stopped by a signal. Prints
the median of the ratios of neighbouring turns beside 0.9, the rate of the archive meanwhile, and the memory of the
server that archives.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.engine.loads import batch
from bench.memory import watching
from bench.report import Report
from headrace import connect
from headrace.load.server import serving, temporary_store

_PARTITIONS: Final = 8
_TOPIC: Final = "orders"
_BATCH: Final = 10_000
_UNDER_WAY: Final = 8
# Below the size at which files are merged: merging is archiving too, and is part of what is measured.
_FILE_BYTES: Final = 32 << 20


class Publisher:
    """A server with a topic, which runs only while this publishes."""

    def __init__(self, url: str, pid: int, is_archived: bool) -> None:
        self.pid = pid
        self._client = connect(url)
        self._client.create_topic(_TOPIC, partitions=_PARTITIONS, archive_after_seconds=0)
        self._producer = self._client.producer(_TOPIC)
        self.publish(5.0)
        if is_archived:
            self._client.alter_topic(_TOPIC, archive="on")
        os.kill(pid, signal.SIGSTOP)

    def turn(self, seconds: float) -> tuple[float, float]:
        """Publish for a while; returns the rate, and that of the archive meanwhile."""
        os.kill(self.pid, signal.SIGCONT)
        before, began = self._archived(), time.perf_counter()
        rate = self.publish(seconds)
        archived = (self._archived() - before) / (time.perf_counter() - began)
        os.kill(self.pid, signal.SIGSTOP)
        return rate, archived

    def publish(self, seconds: float) -> float:
        """Publish for a while; returns the rate."""
        messages = batch(_BATCH)
        under_way: deque[Future[Any]] = deque()
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            under_way.append(self._producer.submit_batch(messages))
            count += _BATCH
            if len(under_way) >= _UNDER_WAY:
                under_way.popleft().result()
        for future in under_way:
            future.result()
        return count / (time.perf_counter() - began)

    def close(self) -> None:
        """Let it run on, to end."""
        os.kill(self.pid, signal.SIGCONT)
        self._producer.close()
        self._client.close()

    def _archived(self) -> int:
        return sum(self._client.archive(_TOPIC).complete.values())


@contextmanager
def publisher(directory: Path | None, is_archived: bool) -> Iterator[Publisher]:
    """A server with a publisher, until the end of the block."""
    with temporary_store(directory) as store:
        archive = Path(store.removeprefix("file:")).parent / "archive"
        settings = {"URL": str(archive), "CHECK_SECONDS": "0.1", "FILE_BYTES": str(_FILE_BYTES)}
        os.environ.update({f"HEADRACE_ARCHIVE_{name}": value for name, value in settings.items()})
        with serving(store) as server:
            made = Publisher(server.url, server.pid, is_archived)
            try:
                yield made
            finally:
                made.close()


def measure(report: Report, alone: Publisher, beside: Publisher, turns: int, seconds: float) -> None:
    """All turns, the archiving server first in every other pair."""
    rates: dict[Publisher, list[float]] = {alone: [], beside: []}
    archived: list[float] = []
    with watching(beside.pid) as memory:
        for number in range(turns):
            for one in (alone, beside) if number % 2 else (beside, alone):
                rate, written = one.turn(seconds)
                rates[one].append(rate)
                archived += [written] if one is beside else []
    ratios = [one / other for one, other in zip(rates[beside], rates[alone], strict=True)]
    report.note(f"ratios of neighbouring turns: {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}")
    report.line("publish, batches of 10,000, without archiving", statistics.median(rates[alone]), "messages/s")
    report.line("the same while archiving", statistics.median(rates[beside]), "messages/s")
    report.line("ratio, the median of all pairs", statistics.median(ratios), "", least=0.9)
    report.line("archived meanwhile", statistics.mean(archived), "messages/s")
    report.line("memory of the server that archives", memory.most_of_its_own_bytes / 1e6, "MB")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--turns", type=int, default=10)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--directory", type=Path)
    given = options.parse_args()
    report = Report("publishing beside the archiver")
    report.begin()
    with ExitStack() as stack:
        alone, beside = (stack.enter_context(publisher(given.directory, archived)) for archived in (False, True))
        measure(report, alone, beside, given.turns, given.seconds)
    report.end()


if __name__ == "__main__":
    main()
