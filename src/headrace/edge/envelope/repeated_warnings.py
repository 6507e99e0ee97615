"""Warnings that anyone may cause: a few lines of the log a minute, then one that counts the rest.

Thread-safe; a line that is left out is never the first of its minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

LINES_PER_PERIOD: Final = 20
PERIOD_SECONDS: Final = 60.0


class RepeatedWarnings:
    """Warnings of one kind; `what` names many of them, such as "Kafka connections were closed"."""

    def __init__(self, logger: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0
        self._lines = 0
        self._left_out = 0
        self._last = ""

    def warn(self, message: str) -> None:
        """Write a line, or count it."""
        self.summarise()
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._until, self._lines = now + PERIOD_SECONDS, 0
            self._lines += 1
            if self._lines > LINES_PER_PERIOD:
                self._left_out += 1
                self._last = message
                return
        self._logger.warning("%s", message)

    def summarise(self, is_over: bool = False) -> None:
        """Say how many lines were left out, once their minute is over, or now if `is_over`."""
        with self._lock:
            if not self._left_out or (self._clock() < self._until and not is_over):
                return
            left_out, self._left_out = self._left_out, 0
        self._logger.warning("%d more %s; the last of them: %s", left_out, self._what, self._last)
