"""Waiting between attempts: longer each time, a little at random, and not for ever."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

_FIRST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 1.0
_GROWTH: Final = 2.0


class Backoff:
    """The attempts at one thing, which may go on for so many seconds."""

    def __init__(self, patience_seconds: float, stop: threading.Event | None = None) -> None:
        self._deadline = time.monotonic() + patience_seconds
        self._stop = stop or threading.Event()
        self._pause_seconds = _FIRST_SECONDS

    def wait(self) -> bool:
        """Wait a while; whether there is time for another attempt."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        pause = min(left, self._pause_seconds * random.uniform(0.5, 1.0))
        self._pause_seconds = min(_LONGEST_SECONDS, self._pause_seconds * _GROWTH)
        return not self._stop.wait(pause)
