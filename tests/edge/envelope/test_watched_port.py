"""Connections end once they bring too much that is no message yet, or are too many: of strangers, and of callers."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from headrace.core.rights import ANYONE
from headrace.edge.envelope import watched_port
from headrace.edge.envelope.watched_port import WatchedPort

PIECE = 64 << 10
SHARE = 10 * PIECE


class Port:
    """A port whose connections are accepted by this process, as a library does."""

    def __init__(self, host: str) -> None:
        self._stack = ExitStack()
        self._accepted: dict[socket.socket, socket.socket] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = self._stack.enter_context(socket.create_server((host, 0), family=family))
        self._host = host
        self.number = int(self._listener.getsockname()[1])

    def connect(self, sent: int = 0, source: tuple[str, int] | None = None) -> tuple[socket.socket, str]:
        """A client that has sent so many bytes, and its name; the other end has read them."""
        client = self._stack.enter_context(socket.create_connection((self._host, self.number), 10, source))
        self._accepted[client] = self._stack.enter_context(self._listener.accept()[0])
        self.send(client, sent)
        address, port = client.getsockname()[:2]
        return client, f"ipv6:%5B{address}%5D:{port}" if ":" in address else f"ipv4:{address}:{port}"

    def send(self, client: socket.socket, size: int) -> None:
        """Send more on a connection; the other end has read it."""
        for _ in range(0, size, PIECE):
            client.sendall(bytes(PIECE))
            left = PIECE
            while left:
                left -= len(self._accepted[client].recv(left))

    def end(self, client: socket.socket) -> None:
        """End a connection at both ends: others get the numbers of their files."""
        client.close()
        self._accepted.pop(client).close()

    def close(self) -> None:
        self._stack.close()


def is_ended(client: socket.socket) -> bool:
    return bool(select.select([client], [], [], 0)[0])


@pytest.fixture(params=["127.0.0.1", "::1"])
def port(request: pytest.FixtureRequest) -> Iterator[Port]:
    port = Port(request.param)
    yield port
    port.close()


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_port, "STRANGER_BYTES_MAX", 2 * PIECE)
    monkeypatch.setattr(watched_port, "STRANGERS_BYTES_MAX", 5 * PIECE)
    monkeypatch.setattr(watched_port, "STRANGERS_MAX", 3)
    monkeypatch.setattr(watched_port, "CALLER_CONNECTIONS_MAX", 2)


def test_a_stranger_that_brings_too_much(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    (small, _), (large, _), (known, name) = port.connect(PIECE), port.connect(3 * PIECE), port.connect(9 * PIECE)
    watch.know(name, "till")
    watch.look()
    assert [is_ended(each) for each in (small, large, known)] == [False, True, False]


def test_strangers_that_bring_too_much_together(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    clients = [port.connect(size * PIECE)[0] for size in (1, 2, 2, 1)]
    watch.look()
    assert [is_ended(each) for each in clients] == [False, True, False, False]


def test_too_many_strangers(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    clients = [port.connect() for _ in range(5)]
    watch.know(clients[0][1], "till")
    watch.look()
    assert [is_ended(each) for each, _ in clients] == [False, True, False, False, False]
    late, _ = port.connect()
    watch.look()
    assert [is_ended(each) for each in (clients[2][0], clients[3][0], late)] == [True, False, False]


def test_other_ports_and_files_stay_as_they_are(port: Port) -> None:
    files = set(os.listdir("/proc/self/fd"))
    watch = WatchedPort(1, "flight", SHARE)
    client, _ = port.connect(9 * PIECE)
    for _ in range(50):
        watch.look()
    assert not is_ended(client)
    # The two ends of the connection.
    assert len(set(os.listdir("/proc/self/fd")) - files) == 2


def test_locks_that_this_process_has_on_its_files_stay(port: Port, tmp_path: Path) -> None:
    file = tmp_path / "locked"
    other = f"import fcntl; fcntl.lockf(open({str(file)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    port.connect()
    with file.open("w+b") as locked:
        fcntl.lockf(locked, fcntl.LOCK_EX)
        WatchedPort(port.number, "flight", SHARE).look()
        tried = subprocess.run([sys.executable, "-c", other], stderr=subprocess.PIPE, check=False)
        assert b"BlockingIOError" in tried.stderr, "closing any descriptor of the file would have released its locks"


def test_a_known_peer_is_remembered_before_its_connection_is_found(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    watch.look()
    client, name = port.connect(9 * PIECE)
    watch.know(name, "till")
    watch.know("unix:/a/socket", "till")
    watch.look()
    assert not is_ended(client)


def test_a_connection_that_has_the_number_of_another_one(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    first, name = port.connect()
    watch.know(name, "till")
    watch.look()
    port.end(first)
    second, _ = port.connect(9 * PIECE)
    watch.look()
    assert is_ended(second)


# Callers


def test_what_arrived_and_was_not_delivered_is_bounded_for_each_caller(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    (small, one), (large, two), (other, three) = (
        port.connect(4 * PIECE),
        port.connect(7 * PIECE),
        port.connect(9 * PIECE),
    )
    for name, caller in ((one, "till"), (two, "till"), (three, "other")):
        watch.know(name, caller)
    watch.look()
    assert [is_ended(each) for each in (small, large, other)] == [False, True, False]


def test_what_was_delivered_does_not_count(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    client, name = port.connect()
    connection = watch.know(name, "till")
    for _ in range(5):
        port.send(client, 9 * PIECE)
        connection.deliver(9 * PIECE)
        watch.look()
    assert not is_ended(client)
    # Nor is any of it a credit for later.
    port.send(client, 11 * PIECE)
    watch.look()
    assert is_ended(client)


def test_what_all_callers_bring_is_bounded(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    found = [port.connect(size * PIECE) for size in (7, 8, 7)]
    for number, (_, name) in enumerate(found):
        watch.know(name, f"till-{number}")
    watch.look()
    assert [is_ended(client) for client, _ in found] == [False, True, False]


def test_callers_of_a_server_without_tokens_have_everything(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    found = [port.connect(size * PIECE) for size in (6, 1, 11)]
    for _, name in found:
        watch.know(name, ANYONE.name)
    watch.look()
    assert not any(is_ended(client) for client, _ in found)
    more, name = port.connect(4 * PIECE)
    watch.know(name, ANYONE.name)
    watch.look()
    assert [is_ended(client) for client in (*(each for each, _ in found), more)] == [False, False, True, False]


def test_what_the_process_does_not_hold_was_delivered(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    client, name = port.connect(11 * PIECE)
    watch.know(name, "till")
    held = 4 * PIECE
    monkeypatch.setattr(watched_port, "memory_bytes", lambda: held)
    watch.look()
    assert not is_ended(client)
    held = 1 << 40
    port.send(client, 6 * PIECE)
    watch.look()
    assert not is_ended(client)
    port.send(client, PIECE)
    watch.look()
    assert is_ended(client)


def test_a_caller_has_a_number_of_connections(port: Port) -> None:
    watch = WatchedPort(port.number, "flight", SHARE)
    found = [port.connect() for _ in range(4)]
    for (_, name), caller in zip(found, ("till", "till", "till", "other"), strict=True):
        watch.know(name, caller)
    watch.look()
    assert [is_ended(client) for client, _ in found] == [False, False, True, False]


def test_a_stream_waits_for_its_first_message_for_a_time(port: Port) -> None:
    late = 0.0
    watch = WatchedPort(port.number, "flight", 100 * SHARE, lambda: time.monotonic() + late)
    (silent, first), (slow, second), (begun, third) = (port.connect() for _ in range(3))
    for name in (first, second):
        watch.know(name, "till")
    with watch.know(first, "till").half_open(), watch.know(second, "till").half_open():
        with watch.know(third, "other").half_open():
            watch.look()
        late = watched_port.HALF_OPEN_SECONDS
        port.send(slow, PIECE)
        watch.look()
        assert [is_ended(each) for each in (silent, slow, begun)] == [True, False, False]
        late *= 2
        watch.look()
        assert [is_ended(each) for each in (slow, begun)] == [True, False]


def test_a_connection_with_the_name_of_another_that_lasts_is_ended() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        clients = [stack.enter_context(socket.socket()) for _ in range(2)]
        for number, client in enumerate(clients):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind(("127.0.0.2", clients[0].getsockname()[1]))
            client.connect((f"127.0.0.{3 + number}", listener.getsockname()[1]))
            stack.enter_context(listener.accept()[0])
        watch = WatchedPort(listener.getsockname()[1], "flight", SHARE)
        watch.know(f"ipv4:127.0.0.2:{clients[0].getsockname()[1]}", "till")
        watch.look()
        assert sorted(is_ended(each) for each in clients) == [False, True]
        watch.look()
        assert sorted(is_ended(each) for each in clients) == [False, True]


def test_a_stream_without_a_message_does_not_end_what_else_runs_on_its_connection(port: Port) -> None:
    late = 0.0
    watch = WatchedPort(port.number, "flight", SHARE, lambda: time.monotonic() + late)
    client, name = port.connect()
    connection = watch.know(name, "till")
    with connection.half_open():
        for _ in range(3):
            connection.deliver(1)
            watch.look()
            late += watched_port.HALF_OPEN_SECONDS
        assert not is_ended(client)
        watch.look()
        assert is_ended(client)


def test_a_connection_with_the_name_of_another_begins_anew() -> None:
    with closing(Port("127.0.0.1")) as port:
        watch = WatchedPort(port.number, "flight", SHARE)
        # Of an address that nobody else uses: its ports are free.
        first, name = port.connect(9 * PIECE, ("127.0.0.2", 0))
        watch.know(name, "till")
        watch.look()
        source = first.getsockname()
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        port.end(first)
        second, again = port.connect(9 * PIECE, source)
        assert again == name
        watch.look()
        assert not is_ended(second)
