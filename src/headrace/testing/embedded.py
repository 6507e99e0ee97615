"""A client whose broker lives in the same process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.broker import Broker
from headrace.client.client import Client
from headrace.testing.transport import EmbeddedTransport


@contextmanager
def embedded(store: str = "memory:") -> Iterator[Client]:
    """A client of its own broker, in memory by default; both are closed with the block.

    >>> with embedded() as client:
    ...     client.list_topics()
    []
    """
    with Broker.open(store) as broker, Client(EmbeddedTransport(broker)) as client:
        yield client
