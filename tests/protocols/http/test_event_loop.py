"""What takes time in proportion to a body or an answer is not done on the event loop, unless it is small."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.edge.arrow import Stream
from headrace.protocols.http import formats
from headrace.protocols.http.formats import ARROW, PIECE_MESSAGES, publish_of_json
from headrace.protocols.http.requests import strict_json as bodies
from headrace.protocols.http.routes import queue_api
from tests.edge.streams import bomb, stream_of, values
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem

LOOP = "test-server"


class Watch:
    """In which threads some functions are called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.threads: dict[str, set[str]] = {}

    def on(self, module: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.threads.setdefault(name, set()).add(threading.current_thread().name)
            return function(*args, **kwargs)

        self._monkeypatch.setattr(module, name, watched)

    def off_loop(self, *names: str) -> bool:
        """Whether these were called, and only in other threads than that of the event loop."""
        return all(self.threads.get(name) and LOOP not in self.threads[name] for name in names)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch(monkeypatch)
    for name in ("batch_of_json", "_receipts", "messages_of", "decode"):
        watch.on(formats, name)
    watch.on(Stream, "batch")
    watch.on(bodies, "decode")
    watch.on(queue_api, "_text")
    return watch


def test_a_large_publish_and_a_large_answer_are_done_in_threads(site: Site, watch: Watch) -> None:
    create_topic(site.client, "orders")
    watch.threads.clear()
    count = 3 * PIECE_MESSAGES + 1
    body = {"messages": [{"value": f"{row:050}"} for row in range(count)]}
    answer = checked(site.client.post(path_of("topics", "orders", "messages"), json=body), 200)
    assert [receipt["offset"] for receipt in answer["receipts"]] == list(range(count))
    path = path_of("topics", "orders", "partitions", 0, "messages")
    found = checked(site.client.get(path, params={"offset": 0}), 200)
    assert [message["value"] for message in found["messages"]] == [f"{row:050}" for row in range(count)]
    assert found["next_offset"] == count
    assert watch.off_loop("decode", "batch_of_json", "_receipts", "messages_of")


def test_a_small_publish_needs_no_thread(site: Site, watch: Watch) -> None:
    create_topic(site.client, "orders")
    checked(site.client.post(path_of("topics", "orders", "messages"), json={"messages": [{"value": "a"}]}), 200)
    body = stream_of(pa.record_batch({"value": values(1)}))
    headers = {"content-type": ARROW}
    checked(site.client.post(path_of("topics", "orders", "messages"), content=body, headers=headers), 200)
    assert watch.threads["batch_of_json"] == watch.threads["batch"] == {LOOP}


def test_what_a_small_body_becomes_decides_where_it_is_decompressed(site: Site, watch: Watch) -> None:
    create_topic(site.client, "orders")
    for body in (bomb(LOOP_BYTES_MAX + 1), stream_of(pa.record_batch({"value": values(1, LOOP_BYTES_MAX)}))):
        watch.threads.clear()
        answer = site.client.post(
            path_of("topics", "orders", "messages"), content=body, headers={"content-type": ARROW}
        )
        checked(answer, 200)
        assert watch.off_loop("batch")
    assert len(bomb(LOOP_BYTES_MAX + 1)) < LOOP_BYTES_MAX


def test_other_large_bodies_are_decoded_in_threads(site: Site, watch: Watch) -> None:
    padded = json.dumps({"name": "orders"}) + " " * LOOP_BYTES_MAX
    checked(site.client.post("/v1/topics", content=padded, headers={"content-type": "application/json"}), 201)
    assert watch.off_loop("decode")


def test_large_messages_of_the_queue_api_are_done_in_threads(site: Site, watch: Watch) -> None:
    site.client.post("/topics", json={"name": "queue"})
    consumer = site.client.post("/consumer/register", json={"topic": "queue"}).json()["consumer_id"]
    producer = site.client.post("/producer/register", json={"topic": "queue"}).json()["producer_id"]
    text = "x" * (LOOP_BYTES_MAX + 1)
    sent = site.client.post("/producer/produce", json={"topic": "queue", "producer_id": producer, "message": text})
    assert sent.json()["status"] == "success"
    got = site.client.get("/consumer/consume", params={"topic": "queue", "consumer_id": consumer})
    assert got.json()["message"] == text
    assert watch.off_loop("_text")


def large(messages: str, more: str = "") -> bytes:
    """A body that is too large for the event loop, whatever is in it."""
    return b'{"messages": [' + messages.encode() + b"]" + more.encode() + b" " * LOOP_BYTES_MAX + b"}"


def test_a_large_body_is_read_as_a_small_one() -> None:
    messages = ", ".join(f'{{"value": "{row}"}}' for row in range(PIECE_MESSAGES))
    last = '{"value": "b64=", "key": "aGV5", "attributes": {"a": "aGV5"}, "seqno": 1, "producer_id": "p"}'
    more = ', "encoding": "base64", "commit_key": {"writer": "w", "number": 7}'
    batch, key = publish_of_json(large(last, more))
    assert batch.num_rows == 1 and batch.column("key").to_pylist() == [b"hey"]
    assert key is not None and (key.writer, key.number) == ("w", 7)
    batch, key = publish_of_json(large(f'{messages}, {{"value": "x", "key": "k"}}'))
    assert batch.num_rows == PIECE_MESSAGES + 1 and key is None
    assert batch.column("key").to_pylist() == [None] * PIECE_MESSAGES + [b"k"]
    assert publish_of_json(large(""))[0].num_rows == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('{"key": "no value"}', "message 1001"),
        ('{"value": 7}', "message 1001"),
        ('{"value": "a", "colour": "red"}', "message 1001"),
        ('{"value": "a"', "body"),
        ('{"value": "a", "seqno": 99999999999999999999999}', "seqno"),
    ],
)
def test_what_is_wrong_in_a_large_body_is_named(wrong: str, told: str) -> None:
    messages = ", ".join(['{"value": "a"}'] * (PIECE_MESSAGES + 1))
    with pytest.raises(InvalidInput) as caught:
        publish_of_json(large(f"{messages}, {wrong}"))
    assert told in str(caught.value)


def test_the_row_that_is_not_base64_is_named_in_a_large_body(site: Site) -> None:
    create_topic(site.client, "orders")
    messages = ", ".join(['{"value": "YQ=="}'] * (PIECE_MESSAGES + 1))
    body = large(f'{messages}, {{"value": "?"}}', ', "encoding": "base64"')
    headers = {"content-type": "application/json"}
    answer = site.client.post(path_of("topics", "orders", "messages"), content=body, headers=headers)
    assert problem(answer, 422, "invalid_message")["fields"]["row"] == PIECE_MESSAGES + 1
