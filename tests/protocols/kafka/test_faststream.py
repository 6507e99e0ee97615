"""FastStream's Kafka broker with its hello-world: what comes in on one topic goes out on another."""

from __future__ import annotations

import asyncio

from faststream import FastStream
from faststream.kafka import KafkaBroker

from tests.protocols.kafka.conftest import Site

PATIENCE_SECONDS = 60.0


def test_messages_go_through_a_subscriber_to_a_publisher(site: Site) -> None:
    asyncio.run(_hello(site))


async def _hello(site: Site) -> None:
    for topic in ("faststream-in", "faststream-out"):
        site.broker.create_topic(topic)
    broker = KafkaBroker(site.bootstrap)
    app = FastStream(broker)

    @broker.subscriber("faststream-in", group_id="faststream", auto_offset_reset="earliest")
    @broker.publisher("faststream-out")
    async def greet(name: str) -> str:
        if name == "last":
            app.exit()
        return f"hello {name}"

    await broker.connect()
    for name in ("you", "last"):
        await broker.publish(name, "faststream-in")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await app.run()
    values = site.broker.fetch("faststream-out", 0, 0).column("value").to_pylist()
    assert values == [b"hello you", b"hello last"]
