"""Transactions from asyncio, on every transport: what tests/client/test_transaction.py shows of threads, awaited."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest

from headrace.aio import AsyncClient
from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import Closed, HeadraceError
from tests.client.test_aio_taking import PATIENCE_SECONDS, run

TOPICS = ("in", "out", "more")


class Mistake(Exception):
    """What a program raises in its block."""


async def create(aio: AsyncClient) -> None:
    for topic in TOPICS:
        await aio.create_topic(topic)
    async with aio.producer("in") as producer:
        await producer.send_batch(pa.record_batch({"value": [b"1", b"2", b"3"]}))


async def values(aio: AsyncClient, topic: str) -> list[bytes]:
    return list((await aio.read(topic, 0, 0)).column("value").to_pylist())


def test_messages_and_offsets_are_committed_together_or_dropped(broker: Broker, client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await create(aio)
        async with aio.consumer("in", group="g") as consumer:
            batch = await consumer.poll(max_messages=2, timeout=PATIENCE_SECONDS)
            async with aio.transaction() as transaction:
                await asyncio.gather(*(transaction.send("out", value) for value in batch["value"].to_pylist()))
                await transaction.send_batch("more", batch.select(["value"]))
                await transaction.send_offsets(consumer)
                assert (await values(aio, "out"), await aio.committed("in", "g")) == ([], {})
            assert (await values(aio, "more"), await aio.committed("in", "g")) == ([b"1", b"2"], {0: 2})
            assert await consumer.uncommitted() == []
            await consumer.poll(timeout=PATIENCE_SECONDS)
            with pytest.raises(Mistake):
                async with aio.transaction() as transaction:
                    await transaction.send_batch("out", batch.select(["value"]))
                    await transaction.send_offsets(consumer)
                    raise Mistake
            assert [each.offsets for each in await consumer.uncommitted()] == [{0: 3}]
            with pytest.raises(Closed, match="the transaction"):
                await transaction.send("out", b"4")
        async with aio.consumer("in", group="g", partitions=[0]) as consumer:
            await consumer.poll(timeout=PATIENCE_SECONDS)
            transaction = aio.transaction()
            await transaction.send_offsets(consumer)
        # A consumer that is closed is told nothing; as it was no member, what it gave is committed all the same.
        await transaction.commit()
        with pytest.raises(Closed, match="the transaction"):
            await transaction.commit()
        await transaction.abort()
        assert (sorted(await values(aio, "out")), await aio.committed("in", "g")) == ([b"1", b"2"], {0: 3})
        assert broker.store.stages.expire(1 << 62) == 0

    run(client, main)


def test_what_was_moved_meanwhile_is_not_committed_and_nothing_else_either(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await create(aio)
        async with aio.consumer("in", group="g") as consumer:
            await consumer.poll(timeout=PATIENCE_SECONDS)
            with pytest.raises(HeadraceError):
                async with aio.transaction() as transaction:
                    await transaction.send("out", b"x")
                    await transaction.send_offsets(consumer)
                    await aio.seek("in", "g", {0: 0})
        assert (await values(aio, "out"), await aio.committed("in", "g")) == ([], {0: 0})

    run(client, main)


def test_a_cancelled_task_drops_its_transaction(broker: Broker, client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await create(aio)
        has_sent = asyncio.Event()

        async def work() -> None:
            async with aio.transaction() as transaction:
                await transaction.send_batch("out", pa.record_batch({"value": [b"1"]}))
                has_sent.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await has_sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await values(aio, "out"), broker.store.stages.expire(1 << 62)) == ([], 0)

    run(client, main)


def test_a_commit_that_has_begun_is_done_whoever_is_cancelled(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_go_on, is_done = threading.Event(), threading.Event(), threading.Event()
    commit = broker.commit_transaction

    def slow(*asked: Any) -> Any:
        has_begun.set()
        may_go_on.wait(PATIENCE_SECONDS)
        outcome = commit(*asked)
        is_done.set()
        return outcome

    monkeypatch.setattr(broker, "commit_transaction", slow)

    async def main(aio: AsyncClient) -> None:
        await create(aio)

        async def work() -> None:
            async with aio.transaction() as transaction:
                await transaction.send("out", b"1")
                await transaction.commit()

        task = asyncio.create_task(work())
        await asyncio.to_thread(has_begun.wait, PATIENCE_SECONDS)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(is_done.wait, PATIENCE_SECONDS)
        assert await values(aio, "out") == [b"1"]

    run(client, main)
