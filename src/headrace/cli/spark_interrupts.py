"""Ctrl-C and SIGTERM while a pipeline starts, runs and ends, and what Spark prints meanwhile.

    starting    Python imports Spark, Java starts: the process ends at once. Nothing was written.
    running     a stream is asked to stop, and the command ends with 0; a batch is interrupted, and has written all or
                nothing; the command ends with 130.
    ending      a second signal, or ten seconds after the first: the process ends at once, and the next run continues
                from the checkpoint.

A process that ends at once has the exit code 130 after Ctrl-C, 143 after SIGTERM. Java ends when its parent does.
Spark would set a handler of its own when a session starts, which fails if it comes at the wrong moment: see
`handlers_kept`.

What Java and the Python workers write to stderr passes `Filter`, which leaves out the tracebacks of workers whose other
end was closed: they mean nothing, and look like a failure. After a signal nothing of it is shown: Java describes at
length what was interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
END_SECONDS: Final = 10.0
_TRACEBACK: Final = b"Traceback (most recent call last):"
_HARMLESS: Final = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")
_OF_SPARK: Final = b"pyspark"
# Set with the first signal of this process.
_interrupted: Final = threading.Event()


class Interrupts:
    """Reacts to signals as the phase of the run asks for. Belongs to the main thread."""

    def __init__(self, stop: Callable[[], None] | None) -> None:
        """`stop` asks a stream to stop; without it the run is a batch."""
        self._stop = stop
        self._is_running = False
        self._asked: int | None = None

    def arm(self, is_running: bool) -> None:
        """Handle signals from now on, as of a run that is starting or running."""
        self._is_running = is_running
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def disarm(self) -> None:
        """Handle signals as before the run."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def was_asked(self) -> bool:
        """Whether a signal came."""
        return self._asked is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_running or self._asked is not None:
            end_now(number)
        self._asked = number
        _interrupted.set()
        # What breaks from now on breaks because of the signal.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        timer = threading.Timer(END_SECONDS, end_now, [number])
        timer.daemon = True
        timer.start()
        if self._stop is None:
            raise KeyboardInterrupt
        self._stop()


def end_now(number: int) -> None:
    """End the process without waiting for anything."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + number)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Let nobody set a handler in this block. Spark's calls Java, and fails if that is what was interrupted."""
    real = signal.signal

    def ignore(number: int, handler: Any) -> Any:
        # The child that becomes Java sets SIGINT to be ignored, which is no function.
        return signal.getsignal(number) if callable(handler) else real(number, handler)

    signal.signal = ignore  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = real


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """What is started in this block writes to a filtered stderr as long as it lives; this process only meanwhile."""
    source, sink = os.pipe()
    real = os.dup(2)
    thread = threading.Thread(target=_pump, args=(source, real), name="headrace-spark-stderr", daemon=True)
    thread.start()
    sys.stderr.flush()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)


def _pump(source: int, target: int) -> None:
    """Pass on what is worth reading, line by line, until all writers have ended."""
    filter = NoiseFilter()
    with os.fdopen(source, "rb", buffering=0) as lines:
        rest = b""
        while chunk := lines.read(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            if _interrupted.is_set():
                rest = b""
                continue
            for line in whole:
                _write(target, filter.passed(line + b"\n"))
            if rest and not filter.is_holding:
                # A line without an end, such as a progress bar, is shown at once.
                _write(target, rest)
                rest = b""
        _write(target, filter.passed(rest) + filter.rest())


def _write(target: int, text: bytes) -> None:
    while text:
        text = text[os.write(target, text) :]


class NoiseFilter:
    """Holds a traceback back until its last line says whether it matters. Pure."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    @property
    def is_holding(self) -> bool:
        """Whether a traceback has begun and not ended."""
        return bool(self._held)

    def passed(self, line: bytes) -> bytes:
        """What to print after this line."""
        if line.startswith(_TRACEBACK):
            before, self._held = b"".join(self._held), [line]
            return before
        if not self._held:
            return line
        self._held.append(line)
        if line.startswith((b" ", b"\t")) or not line.strip():
            return b""
        block, self._held = b"".join(self._held), []
        return b"" if line.startswith(_HARMLESS) and _OF_SPARK in block else block

    def rest(self) -> bytes:
        """What was held back to the end."""
        rest, self._held = b"".join(self._held), []
        return rest
