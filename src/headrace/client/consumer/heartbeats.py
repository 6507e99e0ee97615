"""The thread that sends heartbeats: one for all sessions of a consumer, however many topics it reads.

A session is due after its interval, or at once when something asks for a look. Sessions are served one after the other,
the most overdue first; they share a connection, so what blocks one would block the others too. The thread starts with
the first session and ends with the last. Thread-safe, and safe in signal handlers: the lock is reentrant.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Beating(Protocol):
    """What the thread needs of a session."""

    @property
    def interval_seconds(self) -> float:
        """How long to wait until the next heartbeat."""

    def beat(self) -> None:
        """Send a heartbeat; never raises."""


class Heartbeats:
    """Sessions and when each is due."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Beating, float] = {}
        self._is_running = False

    def add(self, session: Beating) -> None:
        """Send heartbeats for a session from now on."""
        with self._changed:
            self._due[session] = time.monotonic() + session.interval_seconds
            self._changed.notify_all()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True).start()

    def remove(self, session: Beating) -> None:
        """Send no more for a session; one that is on its way may still arrive."""
        with self._changed:
            self._due.pop(session, None)
            self._changed.notify_all()

    def hurry(self, session: Beating) -> None:
        """Send one for a session now."""
        with self._changed:
            if session in self._due:
                self._due[session] = 0.0
                self._changed.notify_all()

    def _run(self) -> None:
        """The top of the thread."""
        while (session := self._next()) is not None:
            session.beat()

    def _next(self) -> Beating | None:
        """Wait until a session is due; None if there are no more sessions."""
        with self._changed:
            while self._due:
                session = min(self._due, key=self._due.__getitem__)
                now = time.monotonic()
                if self._due[session] <= now:
                    # Set before it is sent: who asks for another meanwhile gets one.
                    self._due[session] = now + session.interval_seconds
                    return session
                self._changed.wait(self._due[session] - now)
            self._is_running = False
            return None
