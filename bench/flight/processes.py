"""Clients as processes: started, waited for, and ended with the block."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class ClientProcess:
    """One job of bench.flight.jobs."""

    def __init__(self, job: str, url: str, topic: str, seconds: float) -> None:
        command = [sys.executable, "-m", "bench.flight.jobs", job, url, topic, str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> dict[str, float]:
        """The next thing that it says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise RuntimeError(f"a client ended with {self._process.wait()} and said nothing")
        told: dict[str, float] = json.loads(said)
        return told

    def stop(self) -> None:
        """Stop an endless one."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """End it in any case."""
        self.stop()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def client(job: str, url: str, topic: str, seconds: float) -> Iterator[ClientProcess]:
    """A client that does a job."""
    process = ClientProcess(job, url, topic, seconds)
    try:
        yield process
    finally:
        process.end()


def result(job: str, url: str, topic: str, seconds: float) -> dict[str, float]:
    """What a client says of its job, at its end."""
    with client(job, url, topic, seconds) as process:
        return process.line()
