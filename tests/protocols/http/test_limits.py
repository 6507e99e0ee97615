"""Limits: too large, too slow, stuck; and that nobody else notices."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.types import Message, Receive, Scope, Send

from headrace.protocols.http.middleware.limits import PART_BYTES, with_limits
from headrace.protocols.http.settings import HttpSettings
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.protocols.http.event_client import subscribed
from tests.protocols.http.site import JSON_BODY, Site, checked, create_topic, path_of, problem, publish

JSON_HEAD = b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
SMALL = HttpSettings(request_bytes_max=10_000)
QUICK = HttpSettings(request_seconds_max=2.0)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that takes small bodies only."""
    with Site(tmp_path_factory.mktemp("small"), SMALL) as site:
        site.broker.create_topic("t")
        yield site


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server of little patience: on a busy machine it may give up any request."""
    with Site(tmp_path_factory.mktemp("quick"), QUICK) as site:
        site.broker.create_topic("t")
        yield site


def test_a_body_that_is_too_large_is_refused(small: Site) -> None:
    path = path_of("topics", "t", "messages")
    large = json.dumps({"messages": [{"value": "x" * 20_000}]}).encode()
    problem(small.client.post(path, content=large, headers=JSON_BODY), 413, "body_too_large")
    parts = iter([large[:9_000], large[9_000:]])
    problem(small.client.post(path, content=parts, headers=JSON_BODY), 413, "body_too_large")
    problem(small.client.post("/v1/topics", json={"name": "x" * 20_000}), 413, "body_too_large")
    assert publish(small.client, "t", "small")


def test_a_body_without_end_is_not_read_after_its_refusal(small: Site) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", small.port)) as endless:
        endless.sendall(b"POST /v1/topics" + JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        # What the server reads at most, and what both sockets hold.
        with pytest.raises(OSError):
            for _ in range(1_000):
                endless.sendall(chunk)


def test_a_body_that_ends_after_its_refusal_costs_no_connection(small: Site) -> None:
    with socket.create_connection(("127.0.0.1", small.port)) as slow:
        slow.settimeout(PATIENCE_SECONDS)
        slow.sendall(b"POST /v1/topics" + JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        slow.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
        slow.sendall(b"0\r\n\r\nGET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        rest = b"".join(iter(lambda: slow.recv(1 << 16), b""))
    assert b"HTTP/1.1 200 " in rest


def test_a_body_that_does_not_come_is_given_up(quick: Site) -> None:
    with socket.create_connection(("127.0.0.1", quick.port)) as slow:
        slow.sendall(b"POST /v1/topics" + JSON_HEAD + b"content-length: 100\r\n\r\n{")
        eventually(lambda: quick.client.get("/v1/topics").status_code == 200)
        slow.settimeout(PATIENCE_SECONDS)
        answer = b""
        while part := slow.recv(4096):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408") and b"connection: close" in head.lower()
    assert json.loads(body)["code"] == "body_too_slow"


def test_a_long_poll_may_take_longer_than_other_requests(quick: Site) -> None:
    path = path_of("topics", "t", "partitions", 0, "messages")
    end = quick.broker.offsets("t")[0][1]

    def is_answered() -> bool:
        begin = time.monotonic()
        answer = quick.client.get(path, params={"offset": end, "wait_seconds": 2.5})
        return answer.status_code == 200 and time.monotonic() - begin >= 2.5

    eventually(is_answered)


def test_an_answer_that_does_not_come_is_given_up(quick: Site) -> None:
    """Commits are held up: what waits for them is given up, and what does not goes on."""
    stuck, release = threading.Event(), threading.Event()
    topic = quick.broker.topics.find("t").topic

    def hold(_: Any) -> None:
        stuck.set()
        release.wait(PATIENCE_SECONDS)

    holder = threading.Thread(target=lambda: topic.between_commits(hold))
    holder.start()
    try:
        assert stuck.wait(PATIENCE_SECONDS)
        body = {"messages": [{"value": "late"}]}
        late = quick.client.post(path_of("topics", "t", "messages"), json=body)
        assert not problem(late, 504, "request_timeout")["retry"], "it is written later: nobody may send it again"
        assert "retry-after" not in late.headers
        eventually(lambda: quick.client.get("/v1/topics").status_code == 200)
    finally:
        release.set()
        holder.join()


def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = HttpSettings(send_seconds_max=0.5)
    with (
        Site(tmp_path, settings) as site,
        caplog.at_level(logging.INFO, logger="headrace.protocols.http.middleware.limits"),
    ):
        create_topic(site.client, "big")
        for _ in range(20):
            publish(site.client, "big", *["x" * 100_000] * 8)
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", site.port))
            path = path_of("topics", "big", "partitions", 0, "messages")
            stuck.sendall(f"GET {path}?offset=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert stuck.recv(12) == b"HTTP/1.1 200"
            eventually(lambda: "did not read the answer" in caplog.text)
            stuck.settimeout(PATIENCE_SECONDS)
            read = 0
            try:
                while part := stuck.recv(1 << 20):
                    read += len(part)
            except ConnectionResetError:
                pass
            assert read < 12_000_000, "the rest was never sent"
        answer = checked(site.client.get(path, params={"offset": 0}), 200)
        assert len(answer["messages"]) == 160


def test_large_answers_go_out_in_parts_and_whole() -> None:
    body = bytes(range(256)) * 5_000
    sent: list[Message] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope: Any = {"type": "http"}

    async def run() -> None:
        await with_limits(answer, QUICK)(scope, receive, send)

    asyncio.run(run())
    parts = [message for message in sent if message["type"] == "http.response.body"]
    assert b"".join(part["body"] for part in parts) == body
    assert max(len(part["body"]) for part in parts) == PART_BYTES
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]


def test_a_hundred_stuck_clients_hold_nobody(small: Site) -> None:
    stuck = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(100)]
    try:
        for each in stuck:
            each.sendall(b"POST /v1/topics/t/messages" + JSON_HEAD + b"content-length: 10\r\n\r\n")
        for _ in range(20):
            assert publish(small.client, "t", "quick"), "none of them takes as long as those who are stuck"
    finally:
        for each in stuck:
            each.close()


def test_a_client_may_leave_at_any_time(small: Site) -> None:
    requests = [
        b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/topics/t/partitions/0/messages?offset=0&wait_seconds=9 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/topics/t/messages" + JSON_HEAD + b"content-length: 50\r\n\r\n{",
    ]
    for request in requests * 5:
        with socket.create_connection(("127.0.0.1", small.port)) as leaving:
            leaving.sendall(request)
    assert isinstance(small.client.get("/v1/topics"), httpx.Response)
    assert publish(small.client, "t", "still here")


def test_more_requests_than_allowed_are_refused_with_a_time_to_retry(tmp_path: Path) -> None:
    with Site(tmp_path, HttpSettings(connections_max=2)) as site:
        site.broker.create_topic("t")
        path = path_of("topics", "t", "events")
        first, second = site.new_client(), site.new_client()
        with subscribed(first, path), subscribed(second, path):
            assert problem(site.client.get("/v1/topics"), 503, "overloaded")["retry"]
        eventually(lambda: site.client.get("/v1/topics").status_code == 200)
