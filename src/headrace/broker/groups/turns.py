"""Turns by name: one thread at a time changes a group, and others change other groups meanwhile.

    with turns.of("billing"): ...

A name that nobody uses takes no memory. Thread-safe; the lock inside is held for a moment only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class GroupTurns:
    """Locks by name, which exist as long as somebody holds or waits for them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._users: dict[str, int] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Hold the turn of a name."""
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
            self._users[name] = self._users.get(name, 0) + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                self._users[name] -= 1
                if not self._users[name]:
                    del self._locks[name], self._users[name]

    def names(self) -> list[str]:
        """The names whose turn somebody holds or waits for now."""
        with self._guard:
            return list(self._locks)
