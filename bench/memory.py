"""The resident memory of a server while something is measured, looked at a few times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def resident_bytes(process: int, kind: str = "VmRSS") -> int:
    """What the system says of a process now; `RssAnon` leaves out mapped files, which it can drop at any time."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(kind)


class Watch:
    """What was seen of one process, with the seconds since the beginning."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._began = time.monotonic()
        self._over = threading.Event()
        self.seen: list[tuple[float, int, int]] = []

    def run(self, pause_seconds: float) -> None:
        """The top of a thread."""
        while not self._over.wait(pause_seconds):
            at = time.monotonic() - self._began
            self.seen.append((at, resident_bytes(self._process), resident_bytes(self._process, "RssAnon")))

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    @property
    def most_bytes(self) -> int:
        """The most that was seen."""
        return max(total for _, total, _ in self.seen)

    @property
    def most_of_its_own_bytes(self) -> int:
        """The most that was seen without mapped files."""
        return max(own for _, _, own in self.seen)

    def grown_bytes(self) -> float:
        """By how much the mean of the last quarter is above that of the second."""
        quarter = max(1, len(self.seen) // 4)
        second, last = self.seen[quarter : 2 * quarter], self.seen[-quarter:]
        return _mean(last) - _mean(second)


def _mean(seen: list[tuple[float, int, int]]) -> float:
    return sum(total for _, total, _ in seen) / len(seen)


@contextmanager
def watching(process: int, pause_seconds: float = 0.2) -> Iterator[Watch]:
    """Watch a process as long as the block lasts."""
    watch = Watch(process)
    thread = threading.Thread(target=watch.run, args=(pause_seconds,), name="bench-memory", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()
