"""Bodies that are messages as they stand, and JSON documents as values."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headrace.protocols.http.requests import plain_bodies
from tests.protocols.http.site import checked, path_of, problem
from tests.protocols.http.test_messages import fetch, fetch_arrow, new_topic, post

JSON_TYPE = {"content-type": "application/json"}


def post_plain(client: httpx.Client, topic: str, body: bytes, kind: str, **query: Any) -> httpx.Response:
    path = path_of("topics", topic, "messages")
    return client.post(path, content=body, headers={"content-type": kind}, params=query)


def stored(client: httpx.Client, topic: str) -> list[Any]:
    found: list[Any] = checked(fetch(client, topic), 200)["messages"]
    return [(message["value"], message.get("attributes")) for message in found]


def test_objects_and_lists_are_stored_as_json_and_say_so(client: httpx.Client) -> None:
    topic = new_topic(client)
    body = b"""{"messages": [{"value": {"a": 1.10, "b": [1, {"c":  null}]}}, {"value": [1, "x"]}, {"value": "{}"},
        {"value": {}, "attributes": {"kind": "sale"}}, {"value": [], "attributes": {"content-type": "a/b"}}]}"""
    checked(client.post(path_of("topics", topic, "messages"), content=body, headers=JSON_TYPE), 200)
    assert stored(client, topic) == [
        ('{"a":1.10,"b":[1, {"c":  null}]}', JSON_TYPE),
        ('[1,"x"]', JSON_TYPE),
        ("{}", None),
        ("{}", {**JSON_TYPE, "kind": "sale"}),
        ("[]", {"content-type": "a/b"}),
    ]


def test_objects_beside_base64(client: httpx.Client) -> None:
    topic = new_topic(client)
    messages = [{"value": {"a": 1}, "key": "aw==", "attributes": {"kind": "c2FsZQ=="}}, {"value": "/w=="}]
    checked(post(client, topic, {"messages": messages, "encoding": "base64"}), 200)
    table = fetch_arrow(client, topic)
    assert table["value"].to_pylist() == [b'{"a":1}', b"\xff"]
    assert table["key"].to_pylist() == [b"k", None]
    assert dict(table["attributes"][0].as_py()) == {"content-type": b"application/json", "kind": b"sale"}


@pytest.mark.parametrize("value", [b"1", b"true", b'{"a": }', b'{"a": "\xff"}', b'"\xff"'])
def test_other_values_are_refused(client: httpx.Client, value: bytes) -> None:
    body = b'{"messages": [{"value": %b}]}' % value
    path = path_of("topics", new_topic(client), "messages")
    refused = client.post(path, content=body, headers=JSON_TYPE)
    problem(refused, 422, "invalid_message" if b"{" in value and b"\xff" in value else "invalid_input")


def test_a_whole_body_is_a_message(client: httpx.Client) -> None:
    topic = new_topic(client, 2)
    query = {"key": "user-1", "producer_id": "till-7", "message_group_id": "g", "seqno": 3, "partition": 1}
    for status in ("written", "duplicate"):
        answer = checked(post_plain(client, topic, b"\x00\xff\n\n", "application/octet-stream", **query), 200)
        assert [receipt["status"] for receipt in answer["receipts"]] == [status]
    row = fetch_arrow(client, topic, 1).to_pylist()[0]
    assert (row["value"], row["key"], row["producer_id"]) == (b"\x00\xff\n\n", b"user-1", "till-7")
    assert (row["message_group_id"], row["seqno"], row["attributes"]) == ("g", 3, None)


@pytest.mark.parametrize(
    ("body", "values"),
    [(b"a\nb\n", ["a", "b"]), (b"a\n\nb", ["a", "", "b"]), (b"", []), (b"\n", [""]), (b"x", ["x"])],
)
def test_lines_are_messages(client: httpx.Client, body: bytes, values: list[str]) -> None:
    topic = new_topic(client)
    answer = checked(post_plain(client, topic, body, "text/plain; charset=utf-8", producer_id="p", seqno=1), 200)
    assert len(answer["receipts"]) == len(values)
    assert [value for value, _ in stored(client, topic)] == values


def test_json_lines_are_messages(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_bodies, "_PIECE_BYTES", 4)
    topic = new_topic(client)
    body = b'{"a": 1}\n\n[2]\r\n"x"\n'
    checked(post_plain(client, topic, body, "application/x-ndjson", producer_id="p", seqno=1), 200)
    assert stored(client, topic) == [('{"a": 1}', JSON_TYPE), ("[2]", JSON_TYPE), ('"x"', JSON_TYPE)]
    assert fetch_arrow(client, topic)["seqno"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("line", [b"nope", b'{"a": }', b'"\xff"'])
def test_a_line_that_is_no_json_is_named(client: httpx.Client, line: bytes) -> None:
    body = b'{"a": 1}\n' + line + b"\n"
    told = problem(post_plain(client, new_topic(client), body, "application/x-ndjson"), 422, "invalid_message")
    assert "line 2 is not JSON" in told["detail"]


def test_what_the_query_may_not_say_is_refused(client: httpx.Client) -> None:
    topic = new_topic(client)
    answer = client.post(path_of("topics", topic, "messages"), json={"messages": []}, params={"key": "k"})
    told = problem(answer, 422, "invalid_input")
    assert "a body of application/json has it in each message" in told["detail"]
    problem(post_plain(client, topic, b"x", "text/plain", partition=7), 422, "invalid_message")
    problem(post_plain(client, topic, b"x", "text/plain", seqno=1), 422, "invalid_message")
    problem(post_plain(client, topic, b"x", "text/csv"), 415, "unsupported_media_type")
