"""Values that do not fit their codec over HTTP: the server decodes nothing, and every reader gets them as stored.

tests/poison.py has the scenario. Only the queue API of text gives values decoded; it gives such a value as it is.
"""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.protocols.http.formats import ARROW
from tests import poison
from tests.protocols.http.event_client import subscribed
from tests.protocols.http.site import Site, checked, create_topic, path_of, publish_arrow
from tests.protocols.http.test_members import fetch, join

STORED = [row.value for row in poison.ROWS]
CODECS = [row.codec for row in poison.ROWS]


@pytest.fixture
def topic(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    create_topic(client, name)
    assert publish_arrow(client, name, poison.batch()).status_code == 200
    return name


def stored(messages: list[dict[str, Any]]) -> tuple[list[bytes], list[str | None]]:
    values = [base64.b64decode(message["value"]) for message in messages]
    return values, [message.get("codec") for message in messages]


def test_fetch(client: httpx.Client, topic: str) -> None:
    path = path_of("topics", topic, "partitions", 0, "messages")
    answer = checked(client.get(path, params={"offset": 0, "encoding": "base64"}), 200)
    assert stored(answer["messages"]) == (STORED, CODECS)
    assert checked(client.get(path, params={"offset": 0}), 200)["messages"]
    table = pa.ipc.open_stream(client.get(path, params={"offset": 0}, headers={"Accept": ARROW}).content).read_all()
    assert (table["value"].to_pylist(), table["codec"].to_pylist()) == (STORED, CODECS)


def test_events(shared_site: Site, topic: str) -> None:
    path = path_of("topics", topic, "events")
    query = {"from": "earliest", "encoding": "base64"}
    with shared_site.new_client() as other, subscribed(other, path, **query) as reader:
        assert stored(reader.messages(len(STORED))) == (STORED, CODECS)


def test_member(client: httpx.Client, topic: str) -> None:
    join(client, topic, "g", "a")
    assert stored(fetch(client, topic, "g", "a", encoding="base64")["messages"]) == (STORED, CODECS)


def test_queue_api(client: httpx.Client, topic: str) -> None:
    given = checked(client.post("/consumer/register", json={"topic": topic}), 200)
    asked = {"topic": topic, "consumer_id": given["consumer_id"]}
    expected = [value.decode(errors="replace") for value in poison.raw_values()]
    found = [checked(client.request("GET", "/consumer/consume", params=asked), 200)["message"] for _ in expected]
    assert found == expected
