"""Publishing and fetching over HTTP: JSON and Arrow, what is refused, and that all columns come back as they went."""

from __future__ import annotations

import base64
import itertools
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.messages import PUBLISH_SCHEMA, READ_SCHEMA
from headrace.protocols.http.formats import ARROW, stream_of
from tests.broker.background import PATIENCE_SECONDS, until_waiting
from tests.protocols.http.site import JSON_BODY, Site, checked, create_topic, path_of, problem, publish, publish_arrow

_numbers = itertools.count()


def new_topic(client: httpx.Client, partitions: int = 1, **settings: Any) -> str:
    name = f"messages-{next(_numbers)}"
    create_topic(client, name, partitions, **settings)
    return name


def fetch(client: httpx.Client, topic: str, partition: int = 0, **query: Any) -> httpx.Response:
    return client.get(path_of("topics", topic, "partitions", partition, "messages"), params={"offset": 0, **query})


def fetch_arrow(client: httpx.Client, topic: str, partition: int = 0) -> pa.Table:
    path = path_of("topics", topic, "partitions", partition, "messages")
    response = client.get(path, params={"offset": 0}, headers={"accept": ARROW})
    assert (response.status_code, response.headers["content-type"]) == (200, ARROW)
    return pa.ipc.open_stream(response.content).read_all()


def post(client: httpx.Client, topic: str, body: object) -> httpx.Response:
    return client.post(path_of("topics", topic, "messages"), json=body)


def test_receipts_come_in_the_order_sent(client: httpx.Client) -> None:
    topic = new_topic(client, 2)
    messages = [
        {"value": "a", "partition": 1},
        {"value": "b", "partition": 0},
        {"value": "c", "partition": 1, "producer_id": "p", "seqno": 5},
        {"value": "c", "partition": 1, "producer_id": "p", "seqno": 5},
        {"value": "d", "partition": 1, "producer_id": "p", "seqno": 5},
    ]
    receipts = checked(post(client, topic, {"messages": messages}), 200)["receipts"]
    assert receipts == [
        {"partition": 1, "offset": 0, "status": "written"},
        {"partition": 0, "offset": 0, "status": "written"},
        {"partition": 1, "offset": 1, "status": "written"},
        {"partition": None, "offset": None, "status": "duplicate"},
        {"partition": None, "offset": None, "status": "conflict"},
    ]
    assert checked(client.get(path_of("topics", topic, "sources", "p")), 200)["last_seqno"] == 5


def test_a_commit_key_makes_a_publish_idempotent(client: httpx.Client) -> None:
    topic = new_topic(client)
    body = {"messages": [{"value": "a"}], "commit_key": {"writer": "nightly", "number": 3}}
    assert checked(post(client, topic, body), 200)["receipts"][0]["status"] == "written"
    assert checked(post(client, topic, body), 200)["receipts"][0]["status"] == "duplicate"
    assert checked(client.get(path_of("topics", topic, "writers", "nightly")), 200)["last_commit"] == 3
    assert checked(client.get(path_of("topics", topic, "writers", "other")), 200)["last_commit"] is None


def test_the_last_seqno_is_that_of_the_source(client: httpx.Client) -> None:
    topic = new_topic(client)
    publish(client, topic, "a", producer_id="p", message_group_id="g", seqno=9)
    path = path_of("topics", topic, "sources", "p")
    assert checked(client.get(path, params={"message_group_id": "g"}), 200) == {
        "producer_id": "p",
        "message_group_id": "g",
        "last_seqno": 9,
    }
    assert checked(client.get(path), 200)["last_seqno"] is None
    problem(client.get(path_of("topics", "nowhere", "sources", "p")), 404, "topic_not_found")
    problem(client.get(path_of("topics", "nowhere", "writers", "p")), 404, "topic_not_found")


def test_sources_are_listed_and_reset(client: httpx.Client) -> None:
    topic = new_topic(client)
    publish(client, topic, "a", producer_id="p/1", message_group_id="g", seqno=9)
    publish(client, topic, "b", producer_id="q", seqno=3)
    path = path_of("topics", topic, "sources")
    listed = checked(client.get(path), 200)["sources"]
    assert [(each["producer_id"], each["message_group_id"], each["last_seqno"]) for each in listed] == [
        ("q", "", 3),
        ("p/1", "g", 9),
    ]
    assert set(listed[0]) == {"producer_id", "message_group_id", "last_seqno", "partition", "last_seen_us"}
    assert checked(client.get(path, params={"producer_id": "q"}), 200)["sources"] == listed[:1]
    assert checked(client.get(path, params={"max_sources": 1}), 200)["sources"] == listed[:1]
    problem(client.get(path, params={"max_sources": 0}), 422, "invalid_request")
    one = path_of("topics", topic, "sources", "p/1")
    reset = {"producer_id": "p/1", "message_group_id": "g", "forgotten_seqno": 9}
    assert checked(client.delete(one, params={"message_group_id": "g"}), 200) == reset
    assert publish(client, topic, "a", producer_id="p/1", message_group_id="g", seqno=1)[0]["status"] == "written"
    found = problem(client.delete(one), 404, "source_not_found")
    assert found["fields"] == {"topic": topic, "producer_id": "p/1", "message_group_id": ""}
    problem(client.delete(path_of("topics", "nowhere", "sources", "p")), 404, "topic_not_found")
    problem(client.delete(path_of("topics", topic, "sources", "p" * 3000)), 422, "invalid_input")


def test_receipts_as_arrow(client: httpx.Client) -> None:
    topic = new_topic(client)
    path = path_of("topics", topic, "messages")
    response = client.post(path, json={"messages": [{"value": "a"}]}, headers={"accept": ARROW})
    assert response.headers["content-type"] == ARROW
    assert pa.ipc.open_stream(response.content).read_all().to_pylist() == [
        {"partition": 0, "offset": 0, "status": "written"}
    ]


def test_fetching_by_offset_time_and_limits(client: httpx.Client) -> None:
    topic = new_topic(client)
    publish(client, topic, "a", "b")
    time.sleep(0.01)
    between_us = time.time_ns() // 1000
    publish(client, topic, "c")
    path = path_of("topics", topic, "partitions", 0, "messages")
    answer = checked(client.get(path, params={"offset": 1}), 200)
    assert [message["value"] for message in answer["messages"]] == ["b", "c"] and answer["next_offset"] == 3
    answer = checked(client.get(path, params={"time_us": between_us}), 200)
    assert [message["offset"] for message in answer["messages"]] == [2]
    assert len(checked(client.get(path, params={"offset": 0, "max_messages": 1}), 200)["messages"]) == 1
    assert len(checked(client.get(path, params={"offset": 0, "max_bytes": 1}), 200)["messages"]) == 1
    assert checked(client.get(path, params={"offset": 3}), 200) == {"messages": [], "next_offset": 3}


def test_a_long_poll_ends_with_the_first_message_and_not_before_its_time(site: Site) -> None:
    create_topic(site.client, "poll")
    begin = time.monotonic()
    assert checked(fetch(site.client, "poll", wait_seconds=0.3), 200)["messages"] == []
    assert time.monotonic() - begin >= 0.3
    answers: list[httpx.Response] = []

    def poll() -> None:
        with site.new_client() as other:
            answers.append(fetch(other, "poll", wait_seconds=60))

    thread = threading.Thread(target=poll)
    thread.start()
    until_waiting(site.broker, "poll")
    publish(site.client, "poll", "hello")
    thread.join(PATIENCE_SECONDS)
    assert [message["value"] for message in checked(answers[0], 200)["messages"]] == ["hello"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({}, 422, "invalid_input"),
        ({"offset": 0, "time_us": 0}, 422, "invalid_input"),
        ({"offset": -1}, 422, "invalid_request"),
        ({"offset": "one"}, 422, "invalid_request"),
        ({"offset": 1}, 422, "offset_out_of_range"),
        ({"offset": 2**64}, 422, "invalid_request"),
        ({"time_us": 2**63}, 422, "invalid_request"),
        ({"offset": 0, "max_messages": 0}, 422, "invalid_request"),
        ({"offset": 0, "max_bytes": 2**40}, 422, "invalid_request"),
        ({"offset": 0, "wait_seconds": -1}, 422, "invalid_request"),
        ({"offset": 0, "wait_seconds": "nan"}, 422, "invalid_request"),
        ({"offset": 0, "wait_seconds": "inf"}, 422, "invalid_request"),
        ({"offset": 0, "encoding": "hex"}, 422, "invalid_request"),
        ({"offset": 0, "offset_": 0}, 422, "invalid_input"),
        ({"offset": [0, 1]}, 422, "invalid_input"),
    ],
)
def test_fetches_that_cannot_be_are_refused(
    client: httpx.Client, query: dict[str, Any], status: int, code: str
) -> None:
    topic = new_topic(client)
    problem(client.get(path_of("topics", topic, "partitions", 0, "messages"), params=query), status, code)


def test_what_is_not_there_cannot_be_fetched(client: httpx.Client) -> None:
    topic = new_topic(client)
    problem(fetch(client, topic, 1), 404, "partition_not_found")
    problem(fetch(client, topic, 2**70), 404, "partition_not_found")
    problem(fetch(client, "nowhere"), 404, "topic_not_found")
    problem(client.get(path_of("topics", topic, "partitions", "first", "messages")), 404, "route_not_found")


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ({}, 422, "invalid_input"),
        ({"value": 7}, 422, "invalid_input"),
        ({"value": "a", "walue": "b"}, 422, "invalid_input"),
        ({"value": "a", "seqno": 1}, 422, "invalid_message"),
        ({"value": "a", "seqno": -1, "producer_id": "p"}, 422, "invalid_message"),
        ({"value": "a", "seqno": 2**63, "producer_id": "p"}, 422, "invalid_input"),
        ({"value": "a", "partition": 1}, 422, "invalid_message"),
        ({"value": "a", "partition": 2**40}, 422, "invalid_input"),
        ({"value": "a", "codec": "rar"}, 422, "codec_not_allowed"),
        ({"value": "a", "created_at": "yesterday"}, 422, "invalid_input"),
        ({"value": "x" * 2_000}, 413, "message_too_large"),
    ],
)
def test_messages_that_break_a_rule_are_refused(
    client: httpx.Client, message: dict[str, Any], status: int, code: str
) -> None:
    topic = new_topic(client, message_bytes_max=1_000)
    problem(post(client, topic, {"messages": [{"value": "good"}, message]}), status, code)
    assert checked(fetch(client, topic), 200)["messages"] == [], "nothing of it was written"


def test_bodies_that_are_none_are_refused(client: httpx.Client) -> None:
    topic = new_topic(client)
    path = path_of("topics", topic, "messages")
    problem(client.post(path, content=b"{", headers=JSON_BODY), 422, "invalid_input")
    problem(client.post(path, content=b"\xff", headers=JSON_BODY), 422, "invalid_input")
    problem(client.post(path), 422, "invalid_input")
    problem(client.post(path, json={"messages": [{"value": "?"}], "encoding": "base64"}), 422, "invalid_message")
    problem(client.post(path, content=b"junk", headers={"content-type": ARROW}), 422, "invalid_input")
    cut = stream_of(pa.record_batch({"value": [b"a" * 100]}))[:-50]
    problem(client.post(path, content=cut, headers={"content-type": ARROW}), 422, "invalid_input")
    problem(publish_arrow(client, topic, pa.record_batch({"valeu": ["a"]})), 422, "invalid_input")
    problem(publish_arrow(client, topic, pa.record_batch({"value": [1]})), 422, "invalid_input")
    problem(client.post(path, content=b"a=b", headers={"content-type": "text/csv"}), 415, "unsupported_media_type")
    problem(
        client.post(path_of("topics", "nowhere", "messages"), json={"messages": [{"value": "a"}]}),
        404,
        "topic_not_found",
    )
    assert checked(post(client, topic, {"messages": []}), 200) == {"receipts": []}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        (ARROW, ARROW),
        (f"{ARROW}, application/json;q=0.5", ARROW),
        (f"{ARROW};q=0.5, application/json", "application/json"),
        (f"application/json;q=0, {ARROW.upper()}", ARROW),
        ("application/json;q=0, */*", ARROW),
        ("text/html", None),
        ("application/json;q=0", None),
        ("application/json;q=junk", None),
    ],
)
def test_the_answer_is_what_is_accepted(client: httpx.Client, accept: str | None, expected: str | None) -> None:
    topic = new_topic(client)
    publish(client, topic, "a")
    with httpx.Client(base_url=client.base_url, timeout=60.0, trust_env=False) as plain:
        del plain.headers["accept"]
        headers = {} if accept is None else {"accept": accept}
        path = path_of("topics", topic, "partitions", 0, "messages")
        for response in (
            plain.get(path, params={"offset": 0}, headers=headers),
            plain.post(path_of("topics", topic, "messages"), json={"messages": []}, headers=headers),
        ):
            if expected is None:
                problem(response, 406, "not_acceptable")
            else:
                assert (response.status_code, response.headers["content-type"]) == (200, expected)
    assert len(checked(fetch(client, topic), 200)["messages"]) == 1, "what cannot be answered is not done"


def test_a_json_body_may_name_its_charset(client: httpx.Client) -> None:
    topic = new_topic(client)
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    path = path_of("topics", topic, "messages")
    assert client.post(path, content=b'{"messages":[]}', headers=headers).status_code == 200


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))
MESSAGES = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=50),
        "key": st.none() | st.binary(max_size=10),
        "attributes": st.none() | st.dictionaries(TEXTS, st.binary(max_size=10), max_size=3),
        "codec": st.none() | st.sampled_from(["raw", "gzip", "zstd", "lzop"]),
        "created_at": st.none() | TIMES,
        "producer_id": st.none() | TEXTS.filter(bool),
    }
)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages with every column; seqnos rise within a source, so that none is a duplicate."""
    messages: list[dict[str, Any]] = draw(st.lists(MESSAGES, min_size=1, max_size=6))
    for number, message in enumerate(messages):
        has_source = message["producer_id"] is not None
        message["message_group_id"] = draw(st.none() | TEXTS.filter(bool)) if has_source else None
        message["seqno"] = draw(st.none() | st.just(number)) if has_source else None
        message["partition"] = 0
    return messages


def as_json(message: dict[str, Any]) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    attributes, created_at = message["attributes"], message["created_at"]
    return {
        **message,
        "value": text(message["value"]),
        "key": text(message["key"]),
        "attributes": None if attributes is None else {name: text(item) for name, item in attributes.items()},
        "created_at": None if created_at is None else created_at.isoformat(),
    }


def of_json(message: dict[str, Any]) -> dict[str, Any]:
    def data(value: str | None) -> bytes | None:
        if value is None:
            return None
        return base64.b64decode(value) if message.get("encoding") == "base64" else value.encode()

    attributes, created_at = message.get("attributes"), message.get("created_at")
    return {
        **{name: message.get(name) for name in PUBLISH_SCHEMA.names},
        "value": data(message["value"]),
        "key": data(message.get("key")),
        "attributes": None if attributes is None else {name: data(item) for name, item in attributes.items()},
        "created_at": None if created_at is None else datetime.fromisoformat(created_at),
    }


def of_arrow(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row[name] for name in PUBLISH_SCHEMA.names}
    return found | {"attributes": None if row["attributes"] is None else dict(row["attributes"])}


ROUND_TRIP = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ROUND_TRIP
@given(messages=batches(), encoding=st.sampled_from(["text", "base64"]))
def test_what_goes_in_as_json_comes_out_the_same(
    client: httpx.Client, messages: list[dict[str, Any]], encoding: str
) -> None:
    topic = new_topic(client)
    body = {"messages": [as_json(message) for message in messages], "encoding": "base64"}
    receipts = checked(post(client, topic, body), 200)["receipts"]
    assert [receipt["offset"] for receipt in receipts] == list(range(len(messages)))
    answer = checked(fetch(client, topic, encoding=encoding), 200)
    assert [of_json(message) for message in answer["messages"]] == messages
    assert [of_arrow(row) for row in fetch_arrow(client, topic).to_pylist()] == messages
    assert all(
        timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(message["timestamp"]) < timedelta(minutes=5)
        for message in answer["messages"]
    )


@ROUND_TRIP
@given(messages=batches())
def test_what_goes_in_as_arrow_comes_out_the_same(client: httpx.Client, messages: list[dict[str, Any]]) -> None:
    topic = new_topic(client)
    rows = [
        {**message, "attributes": None if message["attributes"] is None else list(message["attributes"].items())}
        for message in messages
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=PUBLISH_SCHEMA)
    assert publish_arrow(client, topic, batch).status_code == 200
    table = fetch_arrow(client, topic)
    assert table.schema.equals(READ_SCHEMA)
    assert [of_arrow(row) for row in table.to_pylist()] == messages
    answer = checked(fetch(client, topic), 200)
    assert [of_json(message) for message in answer["messages"]] == messages
