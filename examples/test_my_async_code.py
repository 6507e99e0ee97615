"""Test asyncio code that uses Headrace: `headrace_async_client` comes with the package and needs no server.

pytest examples/test_my_async_code.py        (runs coroutines by anyio's plugin, which is installed with httpx)
"""

import pytest

from headrace.aio import AsyncClient

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def greet(client: AsyncClient, name: str) -> None:
    """The code under test."""
    async with client.producer("greetings", serializer="json") as producer:
        await producer.send({"text": f"hello {name}"})


async def test_a_greeting_is_sent(headrace_async_client: AsyncClient) -> None:
    await headrace_async_client.create_topic("greetings")
    await greet(headrace_async_client, "ann")
    table = await headrace_async_client.table("greetings")
    assert table["value"].to_pylist() == [b'{"text":"hello ann"}']
