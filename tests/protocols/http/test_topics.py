"""Topics over HTTP: made, listed, described, altered, deleted; and names of every kind."""

from __future__ import annotations

import http.client

import httpx
import pytest

from tests.protocols.http.event_client import subscribed
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem, publish

HOSTILE = [
    "with/slash",
    "/",
    "//a//b/",
    "../../etc/passwd",
    "..",
    "a b\u00a0c",
    "quote'\"`;--",
    "<script>alert(1)</script>",
    "emoji 🦀👩‍👩‍👧",
    "percent%20%2F%",
    "100%",
    "q?a=b&c=d#e",
    "back\\slash",
    "ünïcödé Ω",
    "messages",
    "*",
    "a:b,c;d",
    "{topic}",
    "x" * 255,
    "🦀" * 255,
]
FORBIDDEN = ["", "new\nline", "nul\0", "tab\t", "\u2028", "x" * 256, "\x7f"]


def test_a_topic_is_made_listed_described_altered_and_deleted(client: httpx.Client) -> None:
    made = create_topic(client, "Orders", 2, retention_seconds=60)
    assert [part["partition"] for part in made["partitions"]] == [0, 1]
    assert made["settings"]["retention_seconds"] == 60
    assert "Orders" in checked(client.get("/v1/topics"), 200)["topics"]
    publish(client, "orders", "a", partition=1)
    found = checked(client.get("/v1/topics/ORDERS"), 200)
    assert found["name"] == "Orders"
    assert found["partitions"][1] == {"partition": 1, "start_offset": 0, "end_offset": 1}
    changed = checked(
        client.patch("/v1/topics/orders", json={"partitions": 3, "settings": {"retention_seconds": None}}), 200
    )
    assert len(changed["partitions"]) == 3 and changed["settings"]["retention_seconds"] is None
    assert client.delete("/v1/topics/orders").status_code == 204
    problem(client.get("/v1/topics/orders"), 404, "topic_not_found")
    problem(client.patch("/v1/topics/orders", json={}), 404, "topic_not_found")
    problem(client.delete("/v1/topics/orders"), 404, "topic_not_found")


def test_a_topic_is_made_by_the_name_in_its_address(client: httpx.Client) -> None:
    body = {"partitions": 2, "settings": {"retention_seconds": 60}}
    made = checked(client.put("/v1/topics/By%20Name", json=body), 200)
    assert (made["name"], len(made["partitions"]), made["settings"]["retention_seconds"]) == ("By Name", 2, 60)
    assert checked(client.put("/v1/topics/by%20name", json={}), 200) == made
    problem(client.put("/v1/topics/by%20name", json={"partitions": 1}), 422, "partitions_cannot_shrink")
    problem(client.put("/v1/topics/by%20name", json={"settings": {"retention_seconds": 9}}), 409, "settings_conflict")


def test_a_topic_that_exists_stays_as_it_is(client: httpx.Client) -> None:
    made = create_topic(client, "twice", 2)
    assert create_topic(client, "TWICE", 2) == made
    problem(client.post("/v1/topics", json={"name": "twice", "partitions": 1}), 422, "partitions_cannot_shrink")
    body = {"name": "twice", "settings": {"retention_seconds": 9}}
    conflict = problem(client.post("/v1/topics", json=body), 409, "settings_conflict")
    assert conflict["fields"]["setting"] == "retention_seconds"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 7},
        {"name": "t", "partitions": 0},
        {"name": "t", "partitions": 10_001},
        {"name": "t", "partitions": "two"},
        {"name": "t", "partitons": 2},
        {"name": "t", "settings": {"retention_seconds": -1}},
        {"name": "t", "settings": {"codecs": ["rar"]}},
        {"name": "t", "settings": {"codecs": []}},
        {"name": "t", "settings": {"deduplication": "maybe"}},
        {"name": "t", "settings": {"value_schema": {"type": "object", "properties": {"a": {"type": "decimal"}}}}},
        {"name": "t", "settings": {"unknown": 1}},
        [],
        "t",
        None,
    ],
)
def test_what_is_no_topic_is_refused(client: httpx.Client, body: object) -> None:
    response = client.post("/v1/topics", json=body)
    assert problem(response, 422, response.json()["code"])["code"] in ("invalid_input", "invalid_request")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_any_name_works_on_every_route(shared_site: Site, client: httpx.Client, name: str) -> None:
    create_topic(client, name)
    assert checked(client.get(path_of("topics", name)), 200)["name"] == name
    assert publish(client, name, "hello") == [{"partition": 0, "offset": 0, "status": "written"}]
    fetched = checked(client.get(path_of("topics", name, "partitions", 0, "messages"), params={"offset": 0}), 200)
    assert [message["value"] for message in fetched["messages"]] == ["hello"]
    group = path_of("topics", name, "groups", name)
    assert checked(client.put(group, json={}), 200)["name"] == name
    member = f"{group}/members/{path_of(name).removeprefix('/v1/')}"
    assert checked(client.put(member, json={}), 200)["member"] == name
    assert len(checked(client.get(f"{member}/messages"), 200)["messages"]) == 1
    assert checked(client.get(path_of("topics", name, "sources", name)), 200)["producer_id"] == name
    assert checked(client.get(path_of("topics", name, "writers", name)), 200)["writer"] == name
    with shared_site.new_client() as other, subscribed(other, path_of("topics", name, "events")):
        pass
    assert client.delete(member).status_code == 204
    assert client.delete(group).status_code == 204
    assert client.delete(path_of("topics", name)).status_code == 204


@pytest.mark.parametrize("name", FORBIDDEN, ids=ascii)
def test_names_that_are_none_are_refused(client: httpx.Client, name: str) -> None:
    problem(client.post("/v1/topics", json={"name": name}), 422, "invalid_input")
    if name:
        problem(client.get(path_of("topics", name)), 422, "invalid_input")
        problem(client.post(path_of("topics", name, "messages"), json={"messages": []}), 422, "invalid_input")
        create_topic(client, "good")
        problem(client.put(path_of("topics", "good", "groups", name), json={}), 422, "invalid_input")


@pytest.mark.parametrize("part", ["%ff", "%ed%a0%80", "a%c3"], ids=ascii)
def test_names_that_are_no_text_are_refused(shared_site: Site, part: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_site.port, timeout=60)
    # Past the checks of clients, as anyone can send it.
    connection.putrequest("GET", "/v1/topics/x", skip_host=False)
    connection._buffer[0] = f"GET /v1/topics/{part} HTTP/1.1".encode("latin-1")  # type: ignore[attr-defined]
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 422, response.read()
    assert response.headers["content-type"] == "application/problem+json"
    connection.close()
