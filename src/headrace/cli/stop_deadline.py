"""The last resort of a stop: the process ends in time, whatever its threads are doing.

A stop waits for requests, then closes the store. A thread that never comes back, from a device or a database that does
not answer, would hold up either for ever. Once the deadline has begun, a thread of its own ends the process when the
time is over; the store is recovered at the next start as after a kill. Where only some threads did not end, and the
store is closed, `leave` ends the process at once, since Python would wait for them. Safe for threads.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

from headrace.cli.exits import Exit

logger = logging.getLogger(__name__)


class StopDeadline:
    """Ends the process some seconds after a stop began, unless it was cancelled."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """The stop began; later calls do nothing."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-stop-deadline", daemon=True)
                self._thread.start()

    def cancel(self) -> None:
        """The stop is done."""
        self._over.set()

    def _run(self) -> None:
        if not self._over.wait(self._seconds):
            logger.error(
                "the server did not stop within %g s (still at work: %s) and ends now; the store is recovered at the "
                "next start",
                self._seconds,
                ", ".join(_at_work()),
            )
            _exit(Exit.FAILING)


def leave(is_clean: bool) -> None:
    """End the process without waiting for threads that did not end; does nothing if there are none."""
    left = _at_work()
    if left or not is_clean:
        logger.warning("stopped without waiting for %s", ", ".join(left) or "streams that clients hold open")
        _exit(0)


def _at_work() -> list[str]:
    """The threads that Python would wait for."""
    main = threading.main_thread()
    return sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main)


def _exit(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(int(code))
