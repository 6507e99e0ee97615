"""What a protocol that counts its own requests has served since the server started, for the metrics.

HTTP and Flight are watched from outside (proxies, `flight_calls`); Kafka's requests carry their outcome inside, so the
protocol counts them here. One thread writes, any may read: what is read may be a moment old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Traffic:
    """Connections, requests by what they were and how they ended, and bytes."""

    def __init__(self) -> None:
        self.connections = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._requests: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """One connection, as long as it is open."""
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    def count(self, request: str, outcome: str, bytes_in: int, bytes_out: int) -> None:
        """A request was answered."""
        self._requests[request, outcome] += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests there were, by what they were and how they ended."""
        return dict(self._requests)
