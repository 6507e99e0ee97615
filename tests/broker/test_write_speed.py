"""The write speed of partitions: who exceeds it waits for the outcome, alone, and what is written is there at once."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.checks import check_batch
from headrace.broker.publish.parts import Part
from headrace.broker.publish.submission import Submission
from headrace.core.errors import StageNotFound
from headrace.core.limits import WRITE_WAIT_SECONDS_MAX
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.topics.settings import TopicOptions
from headrace.edge.bridge import Bridge
from tests.broker.background import Background, HeldWaits, eventually
from tests.broker.messages import batch, statuses
from tests.broker.sites import Site

# A byte a second: whoever writes more waits as long as anybody does.
SLOW: TopicOptions = {"partition_write_bytes_per_second": 1, "partition_write_burst_bytes": 1_000}


def end(broker: Broker, partition: int = 0) -> int:
    return broker.offsets("orders")[partition][1]


def test_who_writes_too_fast_waits_alone_and_is_answered_when_the_broker_closes(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", partitions=2, **SLOW)
    held = HeldWaits(broker, "orders")
    assert statuses(broker.publish("orders", batch(b"x" * 1_000, partition=0))) == ["written"]
    waiting = Background(lambda: broker.publish("orders", batch(b"x" * 500, b"y", partition=0)))
    eventually(lambda: bool(held.seconds))
    assert end(broker) == 3
    # Another partition, and what is not written: a duplicate pays nothing.
    for _ in range(2):
        broker.publish("orders", batch(b"x" * 900, partition=1, producer_id="p", seqno=1))
    assert not waiting.is_done and len(held.seconds) == 1
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


def test_on_an_event_loop_others_are_answered_meanwhile_and_a_stop_answers_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = site.open()
    broker.create_topic("orders", partitions=2, **SLOW)

    async def run() -> None:
        # No timer fires.
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
        bridge = Bridge(broker)
        told: list[str] = []
        parts = [Part(1, pa.record_batch({"value": [b"x" * 2_000]}), 0, 1)]
        bridge.publish_parts("orders", parts, partial(told.append, "parts"))
        late = asyncio.create_task(bridge.publish("orders", batch(b"x" * 2_000, partition=0)))
        left = asyncio.create_task(bridge.publish("orders", batch(b"x", partition=0)))
        while end(broker) + end(broker, 1) < 3:
            await asyncio.sleep(0)
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


def test_a_numbered_client_that_waits_holds_neither_a_thread_nor_its_lock(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = site.open()
    broker.create_topic("orders", **SLOW)

    async def run() -> None:
        # No timer fires.
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
        bridge = Bridge(broker, threads=1)
        late = [asyncio.create_task(bridge.publish_numbered("orders", "till", b"x" * 2_000, None)) for _ in range(3)]
        while end(broker) < 3:
            await asyncio.sleep(0)
        # The thread that published them is free.
        assert await bridge.call(broker.registrations.clients.count, "till", ["orders"]) == 3
        assert not any(each.done() for each in late)
        bridge.draining.begin()
        await asyncio.gather(*late)
        # Nobody waits any more.
        await bridge.publish_numbered("orders", "till", b"x", None)
        bridge.close()

    asyncio.run(run())


def test_stages_are_dropped_before_their_publisher_waits(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", **SLOW)
    held = HeldWaits(broker, "orders")
    staged = broker.stage("orders", batch(b"x" * 2_000))
    waiting = Background(lambda: broker.publish_staged("orders", [staged]))
    eventually(lambda: bool(held.seconds))
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", [staged])
    assert end(broker) == 1 and not waiting.is_done
    broker.end_waits()
    assert waiting.result() == (1, 0)


def test_who_commits_to_several_topics_waits_once_and_holds_nothing_meanwhile(site: Site) -> None:
    broker, key = site.open(), CommitKey("w", 1)
    broker.create_topic("orders", **SLOW)
    broker.create_topic("others", partition_write_bytes_per_second=1_000)
    broker.create_topic("free")
    held, unheld = HeldWaits(broker, "orders"), HeldWaits(broker, "others")
    stages = {topic: [broker.stage(topic, batch(b"x" * 2_000))] for topic in ("others", "orders", "free")}
    waiting = Background(lambda: broker.commit_transaction(stages, commit_key=key))
    eventually(lambda: bool(held.seconds))
    assert broker.store.stages.expire(1 << 62) == 0
    # The turn of its writer is over, and a repeated commit writes nothing to pay for.
    repeated = Background(lambda: broker.commit_transaction(stages, commit_key=key)).result()
    assert (repeated.messages, repeated.last_number) == ({}, 1)
    assert not waiting.is_done and len(held.seconds) == 1 and not unheld.seconds
    broker.end_waits()
    assert waiting.result().messages == {"others": (1, 0), "orders": (1, 0), "free": (1, 0)}


def test_who_is_written_together_waits_until_one_moment_which_is_near(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders", **SLOW)
    held, intake = HeldWaits(broker, "orders"), broker.intake("orders")
    broker.end_waits()
    submissions = [Submission([check_batch(batch(b"x" * 100_000))]) for _ in range(2)]
    for submission in submissions:
        intake.put(submission, 60)
    assert all(isinstance(intake.result(submission), Receipts) for submission in submissions)
    # A stream of batches does not wait for each of them anew.
    assert submissions[0].answer_at == submissions[1].answer_at > 0
    assert all(seconds is not None and 0 <= seconds <= WRITE_WAIT_SECONDS_MAX for seconds in held.seconds)
    assert len(held.seconds) == 2
