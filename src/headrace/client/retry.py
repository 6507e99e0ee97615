"""Retries: the pauses between attempts, and operations that are repeated as far as that is safe.

`core.retry` says which errors are worth another attempt; here are the time limit and the loop.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Final

from headrace.client.transport.listener import wrong_port
from headrace.client.transport.transport import Transport
from headrace.core.errors import HeadraceError, LimitExceeded, Unreachable
from headrace.core.retry import may_repeat
from headrace.wire.operations import Answer, Operation

_FIRST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 1.0
_GROWTH: Final = 2.0


class Backoff:
    """Pauses between attempts: exponential, jittered, up to a deadline."""

    def __init__(self, patience_seconds: float, stop: threading.Event | None = None) -> None:
        self._deadline = time.monotonic() + patience_seconds
        self._stop = stop or threading.Event()
        self._pause_seconds = _FIRST_SECONDS

    def wait(self, error: HeadraceError | None = None) -> bool:
        """Pause, at least as long as the error asks for; whether there is time for another attempt."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        asked_seconds = error.retry_after_seconds if isinstance(error, LimitExceeded) else 0.0
        pause = min(left, max(asked_seconds, self._pause_seconds * random.uniform(0.5, 1.0)))
        self._pause_seconds = min(_LONGEST_SECONDS, self._pause_seconds * _GROWTH)
        return not self._stop.wait(pause)


class Calls:
    """Operations on a transport, retried for up to `patience_seconds`. Safe for threads."""

    def __init__(self, transport: Transport, patience_seconds: float) -> None:
        self._transport = transport
        self._patience_seconds = patience_seconds

    def __call__(self, operation: Operation[Answer]) -> Answer:
        """Perform an operation and return its answer."""
        backoff = Backoff(self._patience_seconds)
        while True:
            try:
                return self._transport.call(operation)
            except HeadraceError as error:
                if not may_repeat(error, operation.is_repeatable) or not backoff.wait(error):
                    told = wrong_port(error.address) if type(error) is Unreachable else None
                    if told is not None and isinstance(error, Unreachable):
                        raise Unreachable(error.address, told) from None
                    raise
