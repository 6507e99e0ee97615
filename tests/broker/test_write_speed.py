"""The write speed of partitions: who exceeds it waits for the outcome, alone, and what is written is there at once."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.publish.parts import Part
from headrace.edge.bridge import Bridge
from tests.broker.background import Background, eventually
from tests.broker.messages import batch, statuses
from tests.broker.sites import Site


def end(broker: Broker, partition: int = 0) -> int:
    return broker.offsets("orders")[partition][1]


def test_who_writes_too_fast_waits_alone_and_is_answered_when_the_broker_closes(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", partitions=2, partition_write_bytes_per_second=1, partition_write_burst_bytes=1_000)
    assert statuses(broker.publish("orders", batch(b"x" * 1_000, partition=0))) == ["written"]
    waiting = Background(lambda: broker.publish("orders", batch(b"x" * 500, b"y", partition=0)))
    eventually(lambda: end(broker) == 3)
    # Another partition, and what is not written: a duplicate pays nothing.
    for _ in range(2):
        broker.publish("orders", batch(b"x" * 900, partition=1, producer_id="p", seqno=1))
    assert not waiting.is_done
    broker.close()
    assert statuses(waiting.result()) == ["written", "written"]


def test_what_is_acknowledged_is_as_fast_as_allowed_on_average(broker: Broker) -> None:
    broker.create_topic("orders", partition_write_bytes_per_second=20_000, partition_write_burst_bytes=1_000)
    began = time.monotonic()
    for _ in range(5):
        broker.publish("orders", batch(b"x" * 1_000))
    assert time.monotonic() - began >= 4_000 / 20_000
    broker.alter_topic("orders", partition_write_bytes_per_second=None)
    assert broker.describe_topic("orders").settings.write_limit is None


def test_on_an_event_loop_others_are_answered_meanwhile_and_a_stop_answers_all(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", partitions=2, partition_write_bytes_per_second=1, partition_write_burst_bytes=1_000)

    async def run() -> None:
        bridge = Bridge(broker)
        told: list[str] = []
        parts = [Part(1, pa.record_batch({"value": [b"x" * 2_000]}), 0, 1)]
        bridge.publish_parts("orders", parts, partial(told.append, "parts"))
        late = asyncio.create_task(bridge.publish("orders", batch(b"x" * 2_000, partition=0)))
        left = asyncio.create_task(bridge.publish("orders", batch(b"x", partition=0)))
        while end(broker) + end(broker, 1) < 3:
            await asyncio.sleep(0.001)
        broker.create_topic("others")
        await bridge.publish("others", batch(b"y"))
        assert not late.done() and not told
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        bridge.draining.begin()
        assert statuses(await late) == ["written"]
        assert told == ["parts"] and parts[0].offset == 0
        assert statuses(await bridge.publish("orders", batch(b"x", partition=0))) == ["written"]
        bridge.close()

    asyncio.run(run())


def test_staged_messages_are_counted_too(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", partition_write_bytes_per_second=1, partition_write_burst_bytes=1_000)
    staged = broker.stage("orders", batch(b"x" * 2_000))
    waiting = Background(lambda: broker.publish_staged("orders", [staged]))
    eventually(lambda: end(broker) == 1)
    assert not waiting.is_done
    broker.close()
    waiting.result()
