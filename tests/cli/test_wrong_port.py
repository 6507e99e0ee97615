"""Commands that are given a port of another protocol, or with TLS where there is none, say what speaks there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import headrace
from headrace.core.errors import Unreachable
from tests.cli.processes import Server
from tests.cli.test_tls import Certificates, certificates, options

__all__ = ["certificates"]
FLIGHT_PORT = "clients call the Flight port, headrace://HOST:7071"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("plain") / "store", "--kafka", "127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("secured") / "store", *options(certificates)) as server:
        yield server


def port(server: Server, scheme: str) -> str:
    return next(word.rpartition(":")[2] for word in server.ready.split() if word.startswith(f"{scheme}://"))


@pytest.mark.parametrize(
    "given, listening, told",
    [
        ("headrace", "http", f"speaks HTTP without TLS: {FLIGHT_PORT}"),
        ("headrace", "kafka", f"speaks the protocol of Kafka: {FLIGHT_PORT}"),
        ("headrace+tls", "headrace", "speaks Arrow Flight without TLS: write it as headrace://127.0.0.1:"),
        ("headrace+tls", "http", f"speaks HTTP without TLS: {FLIGHT_PORT}"),
        ("http", "headrace", "speaks Arrow Flight without TLS: write it as headrace://127.0.0.1:"),
        ("https", "http", f"speaks HTTP without TLS: {FLIGHT_PORT}"),
    ],
)
def test_a_server_without_tls(plain: Server, given: str, listening: str, told: str) -> None:
    number = port(plain, listening)
    line = plain.run("topic", "list", "--url", f"{given}://127.0.0.1:{number}").refused(3)
    assert line.startswith(f"127.0.0.1:{number} {told}")


@pytest.mark.parametrize(
    "given, listening, told",
    [
        ("headrace", "headrace+tls", "speaks Arrow Flight over TLS: write it as headrace+tls://127.0.0.1:"),
        ("headrace", "https", f"speaks TLS, but not Arrow Flight: {FLIGHT_PORT}"),
        ("http", "https", f"speaks TLS, but not Arrow Flight: {FLIGHT_PORT}"),
    ],
)
def test_a_server_with_tls(secured: Server, given: str, listening: str, told: str) -> None:
    number = port(secured, listening)
    line = secured.run("topic", "list", "--url", f"{given}://127.0.0.1:{number}").refused(3)
    assert line.startswith(f"127.0.0.1:{number} {told}")


def test_a_port_that_is_silent_is_no_wrong_port(plain: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"no server at {url}" in plain.run("topic", "list", "--url", url).refused(3)


@pytest.mark.parametrize("listening, told", [("http", "HTTP without TLS"), ("kafka", "the protocol of Kafka")])
def test_a_program_learns_it_too(plain: Server, listening: str, told: str) -> None:
    address = f"127.0.0.1:{port(plain, listening)}"
    with (
        headrace.connect(f"headrace://{address}", timeout_seconds=0.1) as client,
        pytest.raises(Unreachable, match=f"{address} speaks {told}: {FLIGHT_PORT}"),
    ):
        client.list_topics()
