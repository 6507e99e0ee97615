"""A deadline for stopping: the process ends in time, whatever its threads are doing.

Stopping waits for running requests, then closes the store. A thread that is blocked in a device or a database that does
not respond would delay either step forever. `begin` starts a timer thread that ends the process when the time is up;
the next start recovers the store as after a kill. If the store is closed and only some threads did not end, `leave`
ends the process at once, because Python would wait for those threads. Thread-safe.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

from headrace.cli.exits import Exit

logger = logging.getLogger(__name__)


class StopDeadline:
    """Ends the process if a stop takes longer than the given seconds, unless it is cancelled."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the timer; later calls do nothing."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-stop-deadline", daemon=True)
                self._thread.start()

    def cancel(self) -> None:
        """Stop the timer: the stop has finished."""
        self._over.set()

    def _run(self) -> None:
        if not self._over.wait(self._seconds):
            logger.error(
                "the server did not stop within %g s (threads still running: %s) and exits now; the next start "
                "recovers the store",
                self._seconds,
                ", ".join(_at_work()),
            )
            _exit(Exit.FAILING)


def leave(is_clean: bool) -> None:
    """Exit without waiting for threads that did not end; do nothing if there are none."""
    left = _at_work()
    if left or not is_clean:
        logger.warning("stopped without waiting for %s", ", ".join(left) or "streams that clients hold open")
        _exit(0)


def _at_work() -> list[str]:
    """Names of the threads that Python would wait for at exit."""
    main = threading.main_thread()
    return sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main)


def _exit(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(int(code))
