"""Counters of the broker by name; servers export them as metrics."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class Counters:
    """Numbers that only grow; everything is also counted in the parent. Thread-safe."""

    def __init__(self, parent: Counters | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._values: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Add to one counter; does nothing for 0."""
        if count:
            self.add_all({name: count})

    def add_all(self, counts: Mapping[str, int]) -> None:
        """Add to several counters at once."""
        with self._lock:
            for name, count in counts.items():
                self._values[name] = self._values.get(name, 0) + count
        if self._parent is not None:
            self._parent.add_all(counts)

    def __getitem__(self, name: str) -> int:
        return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """All counters at one moment."""
        with self._lock:
            return dict(sorted(self._values.items()))
