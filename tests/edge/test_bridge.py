"""From the event loop into the broker: single values that come together are one batch, and each has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.core.errors import Closed, MessageTooLarge, TopicNotFound
from headrace.edge.bridge import Bridge
from headrace.storage.open import open_store
from tests.broker.background import GatedStore, until_queued
from tests.broker.messages import content


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(open_store("memory:"))


@pytest.fixture
def broker(store: GatedStore) -> Iterator[Broker]:
    store_of_any: Any = store
    broker = Broker(store_of_any)
    broker.create_topic("orders", message_bytes_max=10)
    yield broker
    store.gate.set()
    broker.close()


async def published(bridge: Bridge, topic: str, *values: bytes) -> list[BaseException | None]:
    """What became of values that were published at the same time."""
    return await asyncio.gather(*(bridge.publish_value(topic, value) for value in values), return_exceptions=True)


def test_values_that_come_during_a_commit_share_the_next(broker: Broker, store: GatedStore) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        store.gate.clear()
        first = asyncio.create_task(bridge.publish_value("orders", b"first"))
        await asyncio.to_thread(until_queued, broker, "orders", 1)
        others = asyncio.create_task(published(bridge, "orders", *(b"%d" % number for number in range(50))))
        await asyncio.sleep(0)
        store.gate.set()
        await first
        assert await others == [None] * 50
        bridge.close()

    asyncio.run(run())
    assert content(broker, "orders") == {0: [b"first", *(b"%d" % number for number in range(50))]}
    assert broker.counters.snapshot()["commits_written"] == 2


def test_only_the_value_that_is_wrong_is_refused(broker: Broker) -> None:
    async def run() -> list[BaseException | None]:
        bridge = Bridge(broker)
        outcomes = await published(bridge, "orders", b"a", b"too large for it", b"b")
        bridge.close()
        return outcomes

    first, wrong, last = asyncio.run(run())
    assert (first, last) == (None, None)
    assert isinstance(wrong, MessageTooLarge)
    assert content(broker, "orders") == {0: [b"a", b"b"]}


def test_what_fails_fails_for_all_and_is_over_then(broker: Broker, store: GatedStore) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        missing = await published(bridge, "missing", b"a", b"b")
        assert [type(error) for error in missing] == [TopicNotFound, TopicNotFound]
        store.error = OSError("no disk")
        failed = await published(bridge, "orders", b"a", b"b")
        assert [type(error) for error in failed] == [OSError, OSError]
        store.error = None
        assert await published(bridge, "orders", b"c") == [None]
        broker.close()
        closed = await published(bridge, "orders", b"d")
        assert [type(error) for error in closed] == [Closed]
        bridge.close()
        ended = await published(bridge, "orders", b"e")
        assert [type(error) for error in ended] == [RuntimeError]

    asyncio.run(run())


def test_a_publisher_that_goes_away_disturbs_nobody(broker: Broker, store: GatedStore) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        store.gate.clear()
        gone = asyncio.create_task(bridge.publish_value("orders", b"gone"))
        await asyncio.to_thread(until_queued, broker, "orders", 1)
        stays = asyncio.create_task(bridge.publish_value("orders", b"stays"))
        await asyncio.sleep(0)
        gone.cancel()
        store.gate.set()
        await stays
        assert gone.cancelled()
        bridge.close()

    asyncio.run(run())
    assert content(broker, "orders") == {0: [b"gone", b"stays"]}


def test_readers_that_keep_all_threads_busy_do_not_hold_publishers(broker: Broker) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def read() -> None:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

        readers = [asyncio.create_task(bridge.call(read)) for _ in range(100)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await bridge.publish_value("orders", b"a")
        release.set()
        await asyncio.gather(*readers)
        bridge.close()

    asyncio.run(run())
    assert content(broker, "orders") == {0: [b"a"]}
