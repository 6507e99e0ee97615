"""A FastAPI service: POST /orders publishes and answers when the order is on disk; GET /revenue reads along.

HEADRACE_URL=headrace://127.0.0.1:7071 uvicorn --app-dir examples fastapi_service:app
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from pydantic import BaseModel

import headrace.aio


class Order(BaseModel):
    """What is posted, and what is read back."""

    customer: str
    cents: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client and one producer for the whole process; they are closed when it stops."""
    async with headrace.aio.connect() as client:
        await client.create_topic("orders", partitions=4)
        async with client.producer("orders", serializer="pydantic", key_serializer="text") as producer:
            app.state.producer, app.state.revenue = producer, Counter()
            following = asyncio.create_task(follow(client, app.state.revenue))
            yield
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


async def follow(client: headrace.aio.AsyncClient, revenue: Counter[str]) -> None:
    """Add up all orders, those of other processes too. Without a group every process sees every message."""
    async with client.consumer("orders", serializer="pydantic", value_type=Order, on_undecodable="skip") as consumer:
        async for message in consumer:
            revenue[message.value.customer] += message.value.cents


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create_order(order: Order, request: Request) -> dict[str, int | str | None]:
    """Requests that come at the same time share a batch."""
    receipt = await request.app.state.producer.send(order, key=order.customer)
    return {"partition": receipt.partition, "offset": receipt.offset, "status": receipt.status}


@app.get("/revenue")
async def revenue(request: Request) -> dict[str, int]:
    """What was read so far."""
    return dict(request.app.state.revenue)
