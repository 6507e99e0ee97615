"""The client for asyncio, the same on every transport."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from headrace.aio import AsyncClient
from headrace.client import Client
from headrace.core.errors import TopicNotFound


def test_topics_messages_and_groups_are_awaited(client: Client) -> None:
    async def main() -> None:
        aio = AsyncClient(client)
        await aio.create_topic("orders", partitions=2)
        async with await aio.producer("orders", producer_id="p") as producer:
            receipts = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(50)))
            assert {receipt.status for receipt in receipts} == {"written"}
            assert (await producer.send_batch(pa.record_batch({"value": [b"50"]}))).num_rows == 1
        async with await aio.consumer("orders", group="billing") as consumer:
            assert consumer.assignment == [0, 1]
            seen = []
            async for message in consumer:
                seen.append(message.value)
                if len(seen) == 30:
                    break
            await consumer.commit()
            assert sum((await aio.committed("orders", "billing")).values()) == 30
            unreached: list[bytes] = []
            while len(unreached) < 21:
                batch = await consumer.poll(timeout=60)
                assert batch.num_rows, "what the loop took and did not reach comes next"
                unreached += batch.column("value").to_pylist()
        async with await aio.consumer("orders", group="billing") as consumer:
            rest = []
            async for message in consumer.messages(idle_seconds=60):
                rest.append(message.value)
                if len(rest) == 21:
                    break
        assert sorted(seen + rest) == sorted(b"%d" % number for number in range(51))
        assert sorted(unreached) == sorted(rest)
        with pytest.raises(TopicNotFound):
            await aio.describe_topic("nothing")

    asyncio.run(main())


def test_full_buffer_does_not_stop_the_loop(client: Client) -> None:
    async def main() -> None:
        aio = AsyncClient(client)
        await aio.create_topic("orders")
        async with await aio.producer("orders", buffer_bytes_max=2_000, linger_seconds=0.01) as producer:
            receipts = await asyncio.gather(*(producer.send(b"x" * 100) for _ in range(200)))
        assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(200))

    asyncio.run(main())
