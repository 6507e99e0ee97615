"""Waiters on the event loop that share the watch of a topic."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import StoreUnavailable
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.event_loop.long_poll import LoopWakeups
from tests.postgres_server import PostgresServer

PATIENCE_SECONDS = 60.0


def test_a_topic_that_was_opened_again_is_watched_although_somebody_watches_what_it_was(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of a shared store that could not be deleted is opened again, with the same id."""

    def fail(_: int) -> bool:
        raise StoreUnavailable("of topics", "gone")

    async def watch(broker: Broker) -> None:
        wakeups = LoopWakeups(Bridge(broker, Draining(), 1.0))
        before, after = asyncio.Event(), asyncio.Event()
        kept = wakeups.watch(before, broker.reader("kept"))
        with monkeypatch.context() as fault, pytest.raises(StoreUnavailable):
            fault.setattr(broker._topics._store.catalog, "remove_topic", fail)
            broker.delete_topic("kept")
        again = wakeups.watch(after, broker.reader("kept"))
        # The end of what it was is told first.
        await asyncio.wait_for(before.wait(), PATIENCE_SECONDS)
        after.clear()
        broker.publish("kept", pa.RecordBatch.from_pydict({"value": [b"x"]}))
        await asyncio.wait_for(after.wait(), PATIENCE_SECONDS)
        wakeups.unwatch(before, kept)
        wakeups.unwatch(after, again)

    with Broker.open(postgres.url(postgres.fresh_database())) as broker:
        broker.create_topic("kept")
        asyncio.run(watch(broker))
