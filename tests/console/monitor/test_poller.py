"""A poller and a server that answers nonsense: it says so, and goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from headrace.console.monitor.poller import Poller
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.core.health.findings import Health
from headrace.core.reports.descriptions import ServerDescription


class Broker:
    """A client of a broker with one server."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def list_servers(self) -> list[ServerDescription]:
        return [ServerDescription("one", "1.0", {"http": self._address}, 0, 0)]


async def poll(address: str, text: str) -> tuple[str | None, Poller]:
    settings = ConsoleSettings(url="headrace://127.0.0.1:7071")
    poller = Poller(settings, Sessions(settings, allow_anonymous=True))
    client: Any = Broker(address)
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, text=text))) as http:
        return await poller._poll(client, http), poller


@pytest.mark.parametrize(
    "text",
    ["hello world\n", "headrace_messages_in_total 5\n", 'headrace_publish_seconds_bucket{topic="a",le="x"} 1\n'],
)
def test_metrics_that_are_none_are_a_problem(text: str) -> None:
    problem, poller = asyncio.run(poll("http://127.0.0.1:7070", text))
    assert problem == "a server answered the request for its metrics with something else"
    assert poller.history.last is None


def test_an_address_that_is_none_is_a_problem() -> None:
    problem, _ = asyncio.run(poll("http://127.0.0.1:port", ""))
    assert problem == "the address of a server is not valid"


def test_metrics_are_a_sample() -> None:
    problem, poller = asyncio.run(poll("http://127.0.0.1:7070", 'headrace_messages_in_total{topic="a"} 5\n'))
    assert problem is None
    assert poller.history.last is not None and poller.history.last.topics["a"].messages_in == 5


def test_a_server_that_is_silent_counts_as_it_last_spoke() -> None:
    """Two servers; one does not answer to the second poll, and neither to the third."""
    settings = ConsoleSettings(url="headrace://127.0.0.1:7071")
    dead: set[str] = set()

    class Both:
        async def list_servers(self) -> list[ServerDescription]:
            return [ServerDescription(name, "1.0", {"http": f"http://{name}:7070"}, 0, 0) for name in ("one", "two")]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host in dead:
            raise httpx.ConnectError("refused")
        if request.url.path == "/v1/health":
            return httpx.Response(200, content=msgspec.json.encode(Health.of(request.url.host, 1, ())))
        return httpx.Response(200, text='headrace_messages_in_total{topic="a"} 5\n')

    async def run() -> None:
        poller = Poller(settings, Sessions(settings, allow_anonymous=True))
        client: Any = Both()

        async def counted() -> float:
            assert await poller._poll(client, http) is None
            assert poller.history.last is not None
            return poller.history.last.topics["a"].messages_in

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            assert await counted() == 10 and poller.silent == []
            assert [verdict.server for verdict in poller.verdicts] == ["one", "two"]
            dead.add("two")
            assert await counted() == 10 and poller.silent == ["http://two:7070"]
            assert [verdict.server for verdict in poller.verdicts] == ["one"]
            dead.add("one")
            assert "does not answer" in (await poller._poll(client, http) or "")

    asyncio.run(run())
