"""The broker for FastStream: handlers get every message, failures are handled as asked, and a stop loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, Context, FastStream
from faststream.exceptions import FeatureNotSupportedException, StopConsume
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from headrace.aio import AsyncClient
from headrace.client import Client
from headrace.faststream import HeadraceBroker, HeadraceMessage, HeadraceRouter
from headrace.testing import embedded

PATIENCE_SECONDS = 60.0
Incoming = Annotated[HeadraceMessage, Context("message")]


class Order(BaseModel):
    customer: str
    cents: int


@pytest.fixture
def client() -> Iterator[Client]:
    with embedded() as made:
        made.create_topic("orders", partitions=2)
        made.create_topic("invoices")
        yield made


def run(client: Client, main: Callable[[HeadraceBroker], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        await asyncio.wait_for(main(HeadraceBroker(client=AsyncClient(client), logger=None)), PATIENCE_SECONDS)

    asyncio.run(wrapped())


@asynccontextmanager
async def started(broker: HeadraceBroker) -> Any:
    await broker.start()
    try:
        yield
    finally:
        await broker.stop()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def values(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = client.table(topic)["value"].to_pylist()
    return found


def test_handlers_get_typed_messages_and_publish_what_they_return(client: Client) -> None:
    seen: list[tuple[Order, bytes | None, str]] = []

    async def main(broker: HeadraceBroker) -> None:
        @broker.subscriber("orders", group="billing")
        @broker.publisher("invoices")
        async def bill(order: Order, message: Incoming) -> dict[str, int]:
            seen.append((order, message.raw_message.message.key, message.headers["kind"]))
            return {"cents": order.cents * 2}

        async with started(broker):
            assert await broker.ping()
            for cents in (1, 2, 3):
                order = Order(customer="ann", cents=cents)
                receipt = await broker.publish(order, "orders", key=b"ann", headers={"kind": "sale"})
                assert receipt.status == "written"
            await until(lambda: len(values(client, "invoices")) == 3)
        assert not await broker.ping()

    run(client, main)
    assert [order.cents for order, _, _ in seen] == [1, 2, 3]
    assert {(key, kind) for _, key, kind in seen} == {(b"ann", "sale")}
    assert values(client, "invoices") == [b'{"cents":2}', b'{"cents":4}', b'{"cents":6}']
    assert client.describe_group("orders", "billing").lag_messages == 0
    assert client.table("invoices")["attributes"][0].as_py()[0] == ("content-type", b"application/json")


@pytest.mark.parametrize(("policy", "calls"), [(AckPolicy.REJECT_ON_ERROR, 2), (AckPolicy.NACK_ON_ERROR, 3)])
def test_a_message_that_fails_is_passed_over_or_handled_again(client: Client, policy: AckPolicy, calls: int) -> None:
    seen: list[str] = []

    async def main(broker: HeadraceBroker) -> None:
        @broker.subscriber("invoices", group="g", ack_policy=policy)
        async def handle(body: str) -> None:
            seen.append(body)
            if seen == ["bad"]:
                raise ValueError(body)

        async with started(broker):
            await broker.publish("bad", "invoices")
            await broker.publish("good", "invoices")
            await until(lambda: len(seen) == calls)

    run(client, main)
    assert seen == ["bad", "bad", "good"][-calls:]
    assert client.committed("invoices", "g") == {0: 2}


def test_what_was_not_handled_when_the_broker_stops_comes_again(client: Client) -> None:
    seen: list[int] = []

    async def main(broker: HeadraceBroker) -> None:
        is_busy = asyncio.Event()

        @broker.subscriber("invoices", group="g")
        async def handle(number: int) -> None:
            seen.append(number)
            if len(seen) == 2:
                is_busy.set()
                await asyncio.sleep(0.2)

        for number in range(5):
            async with AsyncClient(client).producer("invoices", serializer="json") as producer:
                await producer.send(number, attributes={"content-type": b"application/json"})
        async with started(broker):
            await is_busy.wait()
        assert client.committed("invoices", "g") == {0: 2}
        async with started(broker):
            await until(lambda: len(seen) == 5)

    run(client, main)
    assert seen == [0, 1, 2, 3, 4]


def test_a_handler_may_stop_its_subscriber(client: Client) -> None:
    seen: list[str] = []

    async def main(broker: HeadraceBroker) -> None:
        @broker.subscriber("invoices", group="g")
        async def handle(body: str) -> None:
            seen.append(body)
            raise StopConsume

        async with started(broker):
            await broker.publish("one", "invoices")
            await broker.publish("two", "invoices")
            await until(lambda: not client.describe_group("invoices", "g").members and seen)

    run(client, main)
    assert seen == ["one"]


def test_routers_and_manual_acknowledgement(client: Client) -> None:
    seen: list[str] = []
    router = HeadraceRouter(prefix="in")

    @router.subscriber("voices", group="g", ack_policy=AckPolicy.MANUAL)
    async def handle(body: str, message: Incoming) -> None:
        seen.append(body)
        await (message.nack() if len(seen) == 1 else message.ack())

    async def main(broker: HeadraceBroker) -> None:
        broker.include_router(router)
        async with started(broker):
            await broker.publish("one", "invoices")
            await until(lambda: len(seen) == 2)

    run(client, main)
    assert seen == ["one", "one"]
    assert client.committed("invoices", "g") == {0: 1}


def test_asyncapi_describes_the_topics(client: Client) -> None:
    async def main(broker: HeadraceBroker) -> None:
        @broker.subscriber("orders", group="billing")
        @broker.publisher("invoices")
        async def bill(order: Order) -> dict[str, int]:
            return {}

        app = FastStream(broker, specification=AsyncAPI())
        document = app.schema.to_specification().to_jsonable()
        assert {channel["address"] for channel in document["channels"].values()} == {"orders", "invoices"}

    run(client, main)


def test_what_is_not_there_says_so(client: Client) -> None:
    async def main(broker: HeadraceBroker) -> None:
        subscriber, publisher = broker.subscriber("orders"), broker.publisher("orders")
        refusals: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: broker.request("x", "orders"),
            lambda: publisher.request("x"),
            subscriber.get_one,
            lambda: broker.publish_batch("x", queue="orders"),
        )
        for refused in refusals:
            with pytest.raises(FeatureNotSupportedException):
                await refused()
        with pytest.raises(FeatureNotSupportedException):
            aiter(subscriber)
        with pytest.raises(RuntimeError, match="not connected"):
            await broker.publish("x", "orders")

    run(client, main)
