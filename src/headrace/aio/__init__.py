"""The client for asyncio: the same methods, awaited.

    async with headrace.aio.connect("headrace://127.0.0.1:7071") as client:
        async with client.producer("orders") as producer:
            receipt = await producer.send(b"one loaf")
        async with client.consumer("orders", group="billing") as consumer:
            async for message in consumer: ...
        async with client.follow("orders") as batches:
            async for batch in batches: ...

What is opened may be awaited too, as in `producer = await client.producer("orders")`; then `await producer.close()`.

Nothing is written twice: each method is the client's own, run in a thread, with its own types.
"""

from headrace.aio.client import AsyncClient, connect
from headrace.aio.consumer import AsyncConsumer
from headrace.aio.follow import AsyncFollowing
from headrace.aio.producer import AsyncProducer
from headrace.aio.transaction import AsyncTransaction

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncFollowing", "AsyncProducer", "AsyncTransaction", "connect"]
