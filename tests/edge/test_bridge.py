"""From the event loop into the broker: single values that come together are one batch, and each has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker, BrokerSettings
from headrace.broker.publish.parts import Part
from headrace.core.errors import Closed, MessageTooLarge, Overloaded, TopicDeleted, TopicNotFound
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
        await asyncio.to_thread(until_queued, broker, "orders", 51)
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
        assert [type(error) for error in ended] == [Closed]

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


def narrow(store: GatedStore, **settings: Any) -> Broker:
    """A broker whose queues have room for three messages a topic."""
    store_of_any: Any = store
    given = {"queue_messages_per_partition": 3, "publish_timeout_seconds": 0.2} | settings
    broker = Broker(store_of_any, BrokerSettings(**given))
    broker.create_topic("orders")
    return broker


def one(value: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [value]})


@pytest.mark.parametrize("as_batches", [False, True])
def test_what_finds_no_room_is_refused_and_never_written(store: GatedStore, as_batches: bool) -> None:
    """The queue's bound is the only one, and counts what waits for the event loop too."""

    async def run(broker: Broker) -> dict[bytes, object]:
        bridge = Bridge(broker)
        queue = broker.topics.find("orders").topic.intake
        store.gate.clear()
        values = [b"%d" % number for number in range(20)]
        publish = (lambda value: bridge.publish("orders", one(value))) if as_batches else None
        calls = [publish(value) if publish else bridge.publish_value("orders", value) for value in values]
        tasks = [asyncio.create_task(call) for call in calls]
        _, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_EXCEPTION)
        while len(waiting) > 3:
            assert queue.depth <= 3
            await asyncio.sleep(0.01)
            waiting = {task for task in tasks if not task.done()}
        store.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        bridge.close()
        assert queue.depth == 0
        return dict(zip(values, outcomes, strict=True))

    broker = narrow(store)
    outcomes = asyncio.run(run(broker))
    refused = [value for value, outcome in outcomes.items() if isinstance(outcome, Overloaded)]
    written = [value for value, outcome in outcomes.items() if not isinstance(outcome, BaseException)]
    assert (len(written), len(refused)) == (3, 17)
    assert content(broker, "orders") == {0: written}
    broker.close()


def test_who_waits_for_room_gets_it_in_order(store: GatedStore) -> None:
    async def run(broker: Broker) -> None:
        bridge = Bridge(broker)
        store.gate.clear()
        tasks = [asyncio.create_task(bridge.publish("orders", one(b"%d" % number))) for number in range(30)]
        await asyncio.sleep(0.05)
        store.gate.set()
        await asyncio.gather(*tasks)
        bridge.close()

    broker = narrow(store, publish_timeout_seconds=60.0)
    asyncio.run(run(broker))
    assert content(broker, "orders") == {0: [b"%d" % number for number in range(30)]}
    broker.close()


def test_what_was_given_up_before_it_was_handed_over_is_not_written(store: GatedStore) -> None:
    async def run(broker: Broker) -> None:
        bridge = Bridge(broker)
        queue = broker.topics.find("orders").topic.intake
        store.gate.clear()
        first = asyncio.create_task(bridge.publish("orders", one(b"first")))
        await asyncio.to_thread(until_queued, broker, "orders", 1)
        collected = [asyncio.create_task(bridge.publish("orders", one(b"collected"))) for _ in range(2)]
        await asyncio.sleep(0.01)
        in_line = asyncio.create_task(bridge.publish("orders", one(b"in line")))
        await asyncio.sleep(0.01)
        for task in (*collected, in_line):
            task.cancel()
        await asyncio.gather(*collected, in_line, return_exceptions=True)
        store.gate.set()
        await first
        bridge.close()
        assert queue.depth == 0

    broker = narrow(store, publish_timeout_seconds=60.0)
    asyncio.run(run(broker))
    assert content(broker, "orders") == {0: [b"first"]}
    broker.close()


def test_a_wait_for_room_in_a_topic_that_ends_is_an_error(store: GatedStore) -> None:
    async def run(broker: Broker) -> BaseException | None:
        bridge = Bridge(broker)
        store.gate.clear()
        tasks = [asyncio.create_task(bridge.publish("orders", one(b"%d" % number))) for number in range(4)]
        await asyncio.to_thread(until_queued, broker, "orders", 3)
        deleting = asyncio.create_task(asyncio.to_thread(broker.delete_topic, "orders"))
        await asyncio.wait([tasks[3]])
        store.gate.set()
        await deleting
        await asyncio.gather(*tasks, return_exceptions=True)
        bridge.close()
        return tasks[3].exception()

    broker = narrow(store, publish_timeout_seconds=60.0)
    assert isinstance(asyncio.run(run(broker)), TopicDeleted)
    broker.close()


def soon(bridge: Bridge, topic: str, value: bytes) -> asyncio.Future[Part]:
    """A part that is published without a task, once it is decided."""
    part, told = Part(0, one(value), 0, 1), asyncio.get_running_loop().create_future()
    bridge.publish_parts(topic, [part], partial(told.set_result, part))
    return told


def test_batches_published_soon_keep_their_order_and_wait_for_room(store: GatedStore) -> None:
    async def run(broker: Broker) -> list[Any]:
        bridge = Bridge(broker)
        store.gate.clear()
        first = soon(bridge, "orders", b"0")
        await asyncio.to_thread(until_queued, broker, "orders", 1)
        others = [soon(bridge, "orders", b"%d" % number) for number in range(1, 30)]
        store.gate.set()
        outcomes = await asyncio.gather(first, *others)
        bridge.close()
        return outcomes

    broker = narrow(store, publish_timeout_seconds=60.0)
    assert [part.offset for part in asyncio.run(run(broker))] == list(range(30))
    assert content(broker, "orders") == {0: [b"%d" % number for number in range(30)]}
    broker.close()


def test_a_batch_published_soon_without_room_in_time_is_refused(store: GatedStore) -> None:
    async def run(broker: Broker) -> list[Any]:
        bridge = Bridge(broker)
        store.gate.clear()
        told = [soon(bridge, "orders", b"%d" % number) for number in range(6)]
        refused = await asyncio.gather(*told[3:])
        store.gate.set()
        await asyncio.gather(*told[:3])
        bridge.close()
        return refused

    broker = narrow(store)
    assert [type(part.error) for part in asyncio.run(run(broker))] == [Overloaded] * 3
    assert content(broker, "orders") == {0: [b"0", b"1", b"2"]}
    broker.close()


def test_a_batch_published_soon_that_cannot_be_written_is_told_why(broker: Broker) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        assert isinstance((await soon(bridge, "missing", b"a")).error, TopicNotFound)
        assert isinstance((await soon(bridge, "orders", b"too large for it")).error, MessageTooLarge)
        bridge.close()

    asyncio.run(run())
    assert content(broker, "orders") == {0: []}


def test_a_loop_that_has_ended_is_not_told(broker: Broker, store: GatedStore) -> None:
    async def run() -> None:
        bridge = Bridge(broker)
        store.gate.clear()
        soon(bridge, "orders", b"a")
        await asyncio.to_thread(until_queued, broker, "orders", 1)
        bridge.close()

    asyncio.run(run())
    store.gate.set()
    broker.topics.find("orders").topic.intake.close(Closed("the broker"))
    assert content(broker, "orders") == {0: [b"a"]}
