"""The processes of a load, as seen by the one who started them: orders in, lines of JSON out.

All outputs are watched together, and read without a buffer in between: what a buffer held would not wake the watch.
One that ends before it is done takes the load with it. Leaving the block ends all, whatever happened.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec

from headrace.load.interrupts import undisturbed
from headrace.load.load import Job, LoadFailed

_READ_BYTES: Final = 1 << 20
_END_SECONDS: Final = 10.0
_TOLD_BYTES: Final = 500


class Worker:
    """One process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.said: dict[str, Any] = {}
        self.is_done = False
        self._rest = b""
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "headrace.load.worker"]
        # In its own session, so that Ctrl-C reaches only the parent.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        self.order(msgspec.json.encode(job))

    def order(self, line: bytes) -> None:
        """Send it a message; if it has ended, reading its output raises that."""
        assert self.process.stdin is not None
        try:
            os.write(self.process.stdin.fileno(), line + b"\n")
        except BrokenPipeError:
            return

    def read(self) -> bool:
        """Read what it wrote; returns whether there was a complete line. Raises if it ended early."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), _READ_BYTES)
        if not chunk:
            raise LoadFailed(f"a process of the load ended with {self.process.wait()}: {self._last_words()}")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line, type=dict[str, Any])
            if said["kind"] == "failed":
                raise LoadFailed(f"a process of the load failed: {said['reason']}")
            self.said |= said
            self.is_done = said["kind"] == "done"
        return bool(lines)

    def end(self) -> None:
        """End it, however it is."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        # The end of its input has ended it, unless it hangs.
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-_TOLD_BYTES:].decode(errors="replace").strip()


class Workers:
    """All processes of one load."""

    def __init__(self) -> None:
        self.all: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def start(self, job: Job) -> Worker:
        """Start one more."""
        with undisturbed():
            worker = Worker(job)
            self.all.append(worker)
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        return worker

    def listen(self, timeout_seconds: float) -> bool:
        """Read what any of them wrote, with a timeout; returns whether there was anything."""
        deadline = time.monotonic() + timeout_seconds
        is_news = False
        while not is_news and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                worker: Worker = key.data
                is_news |= worker.read()
                if worker.is_done:
                    self._selector.unregister(key.fileobj)
        return is_news

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for worker in self.all:
            worker.end()
