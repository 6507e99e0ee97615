"""More publishers than a topic can take: what waits has a bound, and who is told to try again was not written."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.broker import BrokerSettings
from headrace.protocols.http.settings import HttpSettings
from tests.broker.background import PATIENCE_SECONDS, Background, HeldWaits, eventually
from tests.broker.messages import batch, content, statuses
from tests.protocols.http.raw_client import parsed
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem, publish

PATH = path_of("topics", "t", "messages")
PUBLISHERS = 24
BODY = 100_000
LARGE_HEAD = (
    f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"content-length: {1 << 20}\r\n\r\n".encode()
)


@contextmanager
def held(site: Site, topic: str) -> Iterator[None]:
    """Commits to a topic wait as long as the block lasts."""
    stuck, release = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        stuck.set()
        release.wait(PATIENCE_SECONDS)

    found = site.broker.topics.find(topic).topic
    holder = threading.Thread(target=lambda: found.between_commits(hold))
    holder.start()
    try:
        assert stuck.wait(PATIENCE_SECONDS)
        yield
    finally:
        release.set()
        holder.join()


def value_of(number: int) -> str:
    return f"{number:03}" + "x" * BODY


def published(site: Site, number: int) -> httpx.Response:
    with httpx.Client(base_url=site.url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
        return client.post(PATH, json={"messages": [{"value": value_of(number)}]})


def test_what_is_to_be_retried_was_not_written(tmp_path: Path) -> None:
    rest = HttpSettings(request_bytes_max=2 * BODY, requests_bytes_max=8 * BODY, room_seconds_max=0.5)
    broker = BrokerSettings(queue_bytes=4 * BODY, publish_timeout_seconds=0.5)
    with Site(tmp_path, rest, broker_settings=broker) as site:
        create_topic(site.client, "t")
        queue = site.broker.topics.find("t").topic.intake
        with ThreadPoolExecutor(PUBLISHERS) as pool:
            with held(site, "t"):
                answers = [pool.submit(published, site, number) for number in range(PUBLISHERS)]
                eventually(lambda: sum(answer.done() for answer in answers) >= PUBLISHERS - 4)
                assert queue.depth <= 4
                assert queue.bytes <= 4 * BODY
            statuses = [answer.result().status_code for answer in answers]
        for answer in answers:
            if answer.result().status_code != 200:
                assert problem(answer.result(), 503, "overloaded")["retry"]
        accepted = Counter(value_of(number).encode() for number, status in enumerate(statuses) if status == 200)
        assert 1 <= sum(accepted.values()) <= 4
        assert Counter(content(site.broker, "t")[0]) == accepted
        publish(site.client, "t", "there is room again")


def test_bodies_are_not_read_before_there_is_room_for_them(tmp_path: Path) -> None:
    """Ten senders of large bodies that never end: the first have the room, the others are not read."""
    rest = HttpSettings(request_bytes_max=1 << 20, requests_bytes_max=2 << 20, room_seconds_max=0.3)
    with Site(tmp_path, rest) as site:
        create_topic(site.client, "t")
        senders = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(10)]
        try:
            for sender in senders:
                sender.sendall(LARGE_HEAD + b"{")
            refused = [parsed(read_all_of(sender)) for sender in senders[2:]]
            assert {answer.status for answer in refused} == {503}
            assert all(json.loads(answer.body)["code"] == "overloaded" for answer in refused)
        finally:
            for sender in senders:
                sender.close()
        eventually(lambda: site.client.post(PATH, json={"messages": [{"value": "a"}]}).status_code == 200)


def test_a_body_of_unknown_size_takes_room_as_it_comes(tmp_path: Path) -> None:
    rest = HttpSettings(request_bytes_max=1 << 20, requests_bytes_max=1 << 20, room_seconds_max=0.3)
    with Site(tmp_path, rest) as site:
        create_topic(site.client, "t")
        body = json.dumps({"messages": [{"value": "x" * 400_000}]}).encode()
        parts = (body[begin : begin + 50_000] for begin in range(0, len(body), 50_000))
        checked(site.client.post(PATH, content=parts, headers={"content-type": "application/json"}), 200)
        with socket.create_connection(("127.0.0.1", site.port)) as greedy:
            greedy.sendall(LARGE_HEAD + b"{")
            eventually(lambda: refuses(site, body))
        eventually(lambda: not refuses(site, body))


def refuses(site: Site, body: bytes) -> bool:
    answer = site.client.post(PATH, content=iter([body]), headers={"content-type": "application/json"})
    if answer.status_code == 200:
        return False
    problem(answer, 503, "overloaded")
    return True


def test_the_queue_api_says_in_its_own_form_that_there_is_no_room(tmp_path: Path) -> None:
    broker = BrokerSettings(queue_messages_per_partition=1, publish_timeout_seconds=0.2)
    with Site(tmp_path, broker_settings=broker) as site:
        checked(site.client.post("/topics", json={"name": "t"}), 200)
        producer = checked(site.client.post("/producer/register", json={"topic": "t"}), 200)["producer_id"]
        message = {"topic": "t", "producer_id": producer, "message": "hello"}
        with ThreadPoolExecutor(1) as pool, held(site, "t"):
            first = pool.submit(site.new_client().post, "/producer/produce", json=message)
            eventually(lambda: site.broker.topics.find("t").topic.intake.depth == 1)
            failed = site.client.post("/producer/produce", json=message)
            assert failed.status_code == 500
            assert failed.json()["status"] == "failure" and "nothing was accepted" in failed.json()["message"]
        assert first.result().status_code == 200
        assert content(site.broker, "t") == {0: [b"hello"]}


def test_the_queue_api_has_its_own_form_for_limits_of_time_and_number(tmp_path: Path) -> None:
    with Site(tmp_path / "time", HttpSettings(request_seconds_max=0.5)) as site, held_producer(site) as message:
        late = site.client.post("/producer/produce", json=message)
        assert (late.status_code, late.json()["status"]) == (504, "failure")
        assert "may or may not" in late.json()["message"]
    with Site(tmp_path / "number", HttpSettings(connections_max=1)) as site, ThreadPoolExecutor(1) as pool:
        with held_producer(site) as message:
            waiting = pool.submit(site.new_client().post, "/producer/produce", json=message)
            eventually(lambda: site.broker.topics.find("t").topic.intake.depth == 1)
            full = site.client.get("/topics")
            assert (full.status_code, full.json()["status"]) == (503, "failure")
        assert waiting.result().status_code == 200


@contextmanager
def held_producer(site: Site) -> Iterator[dict[str, Any]]:
    """A message to produce; commits to its topic wait as long as the block lasts."""
    site.broker.registrations.create_topic("t")
    producer = site.broker.registrations.register_producer("t")
    with held(site, "t"):
        yield {"topic": "t", "producer_id": producer, "message": "hello"}


def read_all_of(sender: socket.socket) -> bytes:
    """An answer with a length, on a connection that stays open."""
    sender.settimeout(PATIENCE_SECONDS)
    received = b""
    while b"}" not in received.partition(b"\r\n\r\n")[2]:
        received += sender.recv(1 << 16)
    return received


def test_what_waits_is_counted_by_caller(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "t")
        _, token = site.broker.access.create("ann", [("*", ["publish", "manage", "read"])])
        client = httpx.Client(base_url=site.url, headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE_SECONDS)
        producer = client.post("/producer/register", json={"topic": "t"}).json()["producer_id"]
        intake = site.broker.intake("t")
        produced = {"topic": "t", "producer_id": producer, "message": "a"}
        with ThreadPoolExecutor(3) as pool, closing(client):
            with held(site, "t"):
                answers = [
                    pool.submit(client.post, PATH, json={"messages": [{"value": "a"}, {"value": "b"}]}),
                    pool.submit(client.post, "/producer/produce", json=produced),
                    pool.submit(client.post, "/producer/produce", json=produced | {"partition": 0}),
                ]
                eventually(lambda: intake.depth == 4)
                assert {name: messages for name, (messages, _) in intake._held.items()} == {"ann": 4}
            assert [answer.result().status_code for answer in answers] == [200] * 3
        assert intake._held == {}


def test_a_stop_answers_publishers_at_once_that_write_too_fast(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.broker.create_topic("t", partition_write_bytes_per_second=1)
        held = HeldWaits(site.broker, "t")
        waiting = Background(lambda: site.broker.publish("t", batch(b"x" * 1_000)))
        eventually(lambda: bool(held.seconds))
        assert not waiting.is_done
        site.drain()
        assert statuses(waiting.result()) == ["written"]
