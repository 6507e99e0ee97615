"""Before there is a request: heads without end, heads that never end, and what is no HTTP at all."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.memory import resident_bytes
from headrace.edge.certificates import certificate_name
from headrace.protocols.http.connection import HEADERS_MAX, PIPELINED_MAX
from headrace.protocols.http.settings import HttpSettings
from tests.cli.processes import Server
from tests.protocols.http.raw_client import Answer, parsed, read_all, send
from tests.protocols.http.site import Site

HERE = {"host": "localhost"}
QUICK = HttpSettings(head_seconds_max=0.5)
CHUNKED = (
    b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)
LINE = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that does not wait long for heads: for those that never come whole."""
    with Site(tmp_path_factory.mktemp("quick"), QUICK) as site:
        yield site


def sent(port: int, *parts: bytes) -> Answer:
    """The answer to some bytes, after which the server hangs up."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                connection.sendall(part)
        return parsed(read_all(connection))


def refused(answer: Answer, status: int, code: str) -> None:
    problem = answer.json()
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["connection"] == "close"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Traceback" not in problem["detail"]


def test_two_connections_that_send_headers_without_end_take_no_memory(tmp_path: Path) -> None:
    """Against the real server: two connections took 1.4 GB."""
    chunk = b"\r\nfiller: " + b"a" * (1 << 20)
    with Server(tmp_path / "store") as server:
        before = resident_bytes(server.process.pid)
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address) as many, socket.create_connection(address) as one:
            many.sendall(LINE)
            one.sendall(LINE + b"x-one: ")
            for attacking, part in ((many, chunk), (one, chunk[10:])):
                with suppress(ConnectionResetError, BrokenPipeError):
                    for _ in range(300):
                        attacking.sendall(part)
                    pytest.fail("300 MB of headers were taken")
        assert resident_bytes(server.process.pid) - before < 20_000_000
        assert send(server.port, "GET", "/health/live", HERE).status == 200


@pytest.mark.parametrize(
    "head",
    [
        LINE + b"x-large: " + b"a" * 70_000 + b"\r\n\r\n",
        LINE + b"x-part: " + b"a" * 70_000,
        LINE + b"".join(b"x-%d: aaaa\r\n" % number for number in range(HEADERS_MAX)) + b"\r\n",
        LINE + b"a:b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000,
    ],
    ids=["one large", "one unfinished", "many", "very many", "line", "line unfinished"],
)
def test_a_head_that_is_too_large_is_refused(shared_site: Site, head: bytes) -> None:
    refused(sent(shared_site.port, head), 431, "head_too_large")
    assert shared_site.client.get("/v1/topics").status_code == 200


def test_a_large_head_in_small_parts_is_refused(shared_site: Site) -> None:
    refused(
        sent(shared_site.port, LINE, *[b"x-%d: " % number + b"a" * 9_000 + b"\r\n" for number in range(8)]),
        431,
        "head_too_large",
    )


def test_a_head_within_the_limit_is_served(shared_site: Site) -> None:
    large = {f"x-{number}": "a" * 6_000 for number in range(10)}
    assert send(shared_site.port, "GET", "/v1/topics", HERE | large).status == 200


@pytest.mark.parametrize("begin", [b"G", LINE, LINE + b"x-"])
def test_a_head_that_does_not_come_is_given_up(quick: Site, begin: bytes) -> None:
    refused(sent(quick.port, begin), 408, "head_too_slow")


def test_a_head_that_trickles_is_given_up(quick: Site) -> None:
    with socket.create_connection(("127.0.0.1", quick.port)) as slow:
        with suppress(ConnectionResetError, BrokenPipeError):
            for byte in LINE + b"x-long: " + b"a" * 1_000:
                slow.sendall(bytes([byte]))
                time.sleep(0.01)
        refused(parsed(read_all(slow)), 408, "head_too_slow")


def test_the_second_head_of_a_connection_has_a_limit_too(quick: Site) -> None:
    with socket.create_connection(("127.0.0.1", quick.port)) as twice:
        twice.sendall(LINE + b"\r\n")
        assert twice.recv(12) == b"HTTP/1.1 200"
        twice.sendall(LINE + b"x-")
        assert b"HTTP/1.1 408 Request Timeout" in read_all(twice)


@pytest.mark.parametrize(
    "rest",
    [
        b"0\r\n" + b"x-trailer: " + b"a" * 200_000,
        b"0\r\n" + b"x-trailer: a\r\n" * 20_000,
        b"1;" + b"a" * 200_000,
    ],
    ids=["one trailer", "many trailers", "chunk extension"],
)
def test_what_comes_after_a_body_has_a_limit_too(shared_site: Site, rest: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared_site.port)) as endless:
        with suppress(ConnectionResetError, BrokenPipeError):
            endless.sendall(CHUNKED + b"2\r\n{}\r\n")
            for _ in range(20):
                endless.sendall(rest if rest[:1] == b"0" else b"a" * 200_000)
                rest = rest[-100:]
        assert b"HTTP/1.1" not in read_all(endless), "it was cut off before there was a request"
    assert shared_site.client.get("/v1/topics").status_code == 200


def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    """Whoever reads headers after the body would otherwise find those of the trailer among them."""
    with Site(tmp_path) as site:
        body = json.dumps({"name": "made"}).encode()
        chunks = b"%x\r\n%s\r\n0\r\nhost: evil.example\r\norigin: https://evil.example\r\n\r\n" % (len(body), body)
        assert sent(site.port, CHUNKED + chunks).status == 201


def test_too_many_requests_at_once_end_the_connection(shared_site: Site) -> None:
    with socket.create_connection(("127.0.0.1", shared_site.port)) as hasty:
        with suppress(ConnectionResetError, BrokenPipeError):
            hasty.sendall((LINE + b"\r\n") * (PIPELINED_MAX * 4))
        received = read_all(hasty)
    assert received.count(b"HTTP/1.1 200") <= PIPELINED_MAX + 1


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"hello\r\n\r\n",
        b"GET /v1/topics\r\n\r\n",
        b"GET /v1/topics HTTP/9.9\r\n\r\n",
        LINE + b"content-length: -1\r\n\r\n",
        LINE + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        LINE + b"no colon here\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_as_a_problem(shared_site: Site, junk: bytes) -> None:
    refused(sent(shared_site.port, junk), 400, "bad_request")


def test_refusals_have_the_form_of_the_queue_api_on_its_paths(quick: Site) -> None:
    begin = b"POST /producer/produce?x=1 HTTP/1.1\r\nhost: localhost\r\n"
    for answer in (sent(quick.port, begin + b"x: " + b"a" * 70_000), sent(quick.port, begin)):
        assert answer.status in (408, 431)
        assert answer.json()["status"] == "failure"
        assert set(answer.json()) == {"status", "message"}


@pytest.mark.parametrize("wanted", ["websocket", "h2c"])
def test_an_upgrade_is_answered_as_a_plain_request(shared_site: Site, wanted: str) -> None:
    headers = HERE | {
        "connection": "upgrade",
        "upgrade": wanted,
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    lines = ["GET /v1/nowhere HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with socket.create_connection(("127.0.0.1", shared_site.port)) as upgrading:
        upgrading.sendall("\r\n".join(lines).encode())
        upgrading.settimeout(60)
        received = b""
        while b'"code"' not in received:
            received += upgrading.recv(4_096)
    assert parsed(received).status == 404
    assert b"Traceback" not in received


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("commonName", "till"),),)}, "till"),
        ({"subject": ((("countryName", "XX"),), (("commonName", "a"),), (("commonName", "b"),))}, "a"),
        ({"subject": ((("countryName", "XX"),),)}, None),
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("URI", "x://b"), ("DNS", "c"))}, "x://b"),
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("othername", "<no>"), ("email", "b@c"))}, "b@c"),
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("DirName", ((("commonName", "d"),),)),)}, "a"),
    ],
)
def test_the_name_of_a_certificate(certificate: dict[str, Any] | None, name: str | None) -> None:
    assert certificate_name(certificate) == name


def test_an_answer_is_not_written_to_a_connection_that_was_closed(
    quick: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Of requests that wait for each other only the newest was told of the end."""
    request = b"DELETE /v1/topics/none HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", quick.port)) as connection:
        connection.sendall(request + request + b"no request\r\n\r\n")
        with suppress(ConnectionResetError):
            read_all(connection)
    # The first one has been answered, as far as it can be, when later ones are.
    for _ in range(20):
        assert send(quick.port, "DELETE", "/v1/topics/none", HERE).status == 404
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
