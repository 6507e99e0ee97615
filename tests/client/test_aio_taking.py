"""Following, scanning and polling from asyncio, on every transport: complete, and nothing is lost by cancelling."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from headrace.aio import AsyncClient, AsyncConsumer, AsyncProducer
from headrace.client import Client, Consumer, Producer
from headrace.core.errors import Closed, InvalidInput, TopicDeleted

PATIENCE_SECONDS = 60.0


async def publish(aio: AsyncClient, *values: bytes) -> None:
    async with await aio.producer("orders") as producer:
        await producer.send_batch(pa.record_batch({"value": pa.array(values, pa.binary())}))


def run(client: Client, main: object) -> None:
    async def within_time() -> None:
        await asyncio.wait_for(main(AsyncClient(client)), PATIENCE_SECONDS)  # type: ignore[operator]

    asyncio.run(within_time())


def test_batches_are_followed_as_they_come_until_the_end(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        await publish(aio, b"1", b"2")
        seen: list[bytes] = []
        async with await aio.follow("orders", start="earliest") as batches:
            async for batch in batches:
                seen += batch.column("value").to_pylist()
                if len(seen) == 2:
                    await publish(aio, b"3")
                elif len(seen) == 3:
                    await batches.close()
        assert seen == [b"1", b"2", b"3"]
        with pytest.raises(StopAsyncIteration):
            await anext(batches)

    run(client, main)


def test_a_cancelled_step_of_a_following_is_given_to_the_next(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.follow("orders", start="earliest") as batches:
            for number in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(batches), 0.01)
                await publish(aio, b"%d" % number)
                assert (await anext(batches)).column("value").to_pylist() == [b"%d" % number]

    run(client, main)


def test_a_topic_that_is_deleted_ends_a_following_with_its_error(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        await publish(aio, b"1")
        async with await aio.follow("orders", start="earliest") as batches:
            assert (await anext(batches)).num_rows == 1, "the server follows"
            waiting = asyncio.ensure_future(anext(batches))
            await aio.delete_topic("orders")
            with pytest.raises(TopicDeleted):
                await waiting

    run(client, main)


def test_a_cancelled_poll_loses_nothing(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.consumer("orders", group="billing") as consumer:
            for number in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(timeout=None), 0.01)
                await publish(aio, b"%d" % number)
                assert await consumer.positions() == {0: number}, "what nobody got is not given out"
                assert (await consumer.poll(timeout=None)).column("value").to_pylist() == [b"%d" % number]
            await consumer.commit()
        assert await aio.committed("orders", "billing") == {0: 5}

    run(client, main)


def test_a_loop_over_messages_ends_when_another_task_closes(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        await publish(aio, b"1")
        consumer = await aio.consumer("orders")
        seen = []
        async for message in consumer:
            seen.append(message.value)
            closing = asyncio.ensure_future(consumer.close())
        await closing
        await consumer.close()
        assert seen == [b"1"]
        with pytest.raises(Closed):
            await consumer.poll()

    run(client, main)


def test_a_consumer_is_closed_while_a_cancelled_poll_continues(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.consumer("orders") as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout=None), 0.01)

    run(client, main)


@pytest.mark.parametrize("kind", ["poll", "step"])
def test_tasks_that_share_get_each_batch_once(client: Client, kind: str) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.consumer("orders") as consumer, await aio.follow("orders", start="earliest") as batches:
            # Both wait for the same call of the thread when the first batch comes.
            waiting = {
                asyncio.ensure_future(consumer.poll(timeout=None) if kind == "poll" else anext(batches))
                for _ in range(2)
            }
            await asyncio.sleep(0)
            await publish(aio, b"1")
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await publish(aio, b"2")
            got = [value for task in [*done, *waiting] for value in (await task).column("value").to_pylist()]
            assert got == [b"1", b"2"]

    run(client, main)


def test_a_seek_leaves_what_a_cancelled_poll_would_have_given(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.consumer("orders") as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout=None), 0.01)
            await publish(aio, b"0", b"1", b"2")
            await consumer.seek(1)
            assert (await consumer.poll(timeout=None)).column("value").to_pylist() == [b"1", b"2"]
            assert await consumer.positions() == {0: 3}

    run(client, main)


@pytest.mark.parametrize("several", [False, True])
def test_pause_and_resume_neither_lose_nor_repeat_what_a_cancelled_poll_took(client: Client, several: bool) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders", partitions=2)
        named = [("orders", 1)] if several else [1]
        async with await aio.consumer(["orders"] if several else "orders", group="g") as consumer:
            seen: list[bytes] = []
            # Paused, paused again, which changes nothing, resumed, and resumed again.
            for number, change in enumerate([consumer.pause, consumer.pause, consumer.resume, consumer.resume]):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(timeout=None), 0.01)
                async with await aio.producer("orders") as producer:
                    await producer.send(b"%d" % number, partition=0)
                await change(named)
                seen += (await consumer.poll(timeout=None)).column("value").to_pylist()
            seen += (await consumer.poll(timeout=0.2)).column("value").to_pylist()
            assert seen == [b"0", b"1", b"2", b"3"]

    run(client, main)


def test_a_seek_that_is_refused_leaves_everything(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        async with await aio.consumer("orders") as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout=None), 0.01)
            await publish(aio, b"0")
            with pytest.raises(InvalidInput):
                await consumer.seek({7: 1})
            assert (await consumer.poll(timeout=None)).column("value").to_pylist() == [b"0"]

    run(client, main)


def test_a_range_is_scanned(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        await aio.create_topic("orders")
        await publish(aio, *(b"%d" % number for number in range(100)))
        notifications = await aio.await_offsets("orders", {0: 0}, wait_seconds=PATIENCE_SECONDS)
        assert notifications == {0: (0, 100)}
        batches = [batch async for batch in aio.scan("orders", 0, 10, 90, columns=["offset"], max_messages=30)]
        assert [batch.num_rows for batch in batches] == [30, 30, 20]
        assert pa.concat_batches(batches).column("offset").to_pylist() == list(range(10, 90))

    run(client, main)


@pytest.mark.parametrize(
    ("plain", "asynchronous", "inside"),
    [
        (Client, AsyncClient, set()),
        (
            Consumer,
            AsyncConsumer,
            {"take", "is_next", "give", "one_by_one", "is_closed", "polled", "keep_up", "has_changed", "was_committed"},
        ),
        (Producer, AsyncProducer, {"submit_batch"}),
    ],
)
def test_asyncio_has_every_method(plain: type, asynchronous: type, inside: set[str]) -> None:
    wanted = {name for name in vars(plain) if not name.startswith("_")} - inside
    assert {name for name in wanted if not hasattr(asynchronous, name)} == set()
