"""Connections of strangers end once they bring too much, or are too many; those that somebody was admitted on stay."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.edge.envelope import stranger_sockets
from headrace.edge.envelope.stranger_sockets import StrangerSockets

PIECE = 64 << 10


class Port:
    """A port whose connections are accepted by this process, as a library does."""

    def __init__(self, host: str) -> None:
        self._stack = ExitStack()
        self._accepted: dict[socket.socket, socket.socket] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = self._stack.enter_context(socket.create_server((host, 0), family=family))
        self._host = host
        self.number = int(self._listener.getsockname()[1])

    def connect(self, sent: int = 0) -> tuple[socket.socket, str]:
        """A client that has sent so many bytes, and its name; the other end has read them."""
        client = self._stack.enter_context(socket.create_connection((self._host, self.number), 10))
        accepted = self._stack.enter_context(self._listener.accept()[0])
        self._accepted[client] = accepted
        for _ in range(0, sent, PIECE):
            client.sendall(bytes(PIECE))
            left = PIECE
            while left:
                left -= len(accepted.recv(left))
        address, port = client.getsockname()[:2]
        return client, f"ipv6:%5B{address}%5D:{port}" if ":" in address else f"ipv4:{address}:{port}"

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
    monkeypatch.setattr(stranger_sockets, "STRANGER_BYTES_MAX", 2 * PIECE)
    monkeypatch.setattr(stranger_sockets, "STRANGERS_BYTES_MAX", 5 * PIECE)
    monkeypatch.setattr(stranger_sockets, "STRANGERS_MAX", 3)


def test_a_stranger_that_brings_too_much(port: Port) -> None:
    watch = StrangerSockets(port.number, "flight")
    (small, _), (large, _), (known, name) = port.connect(PIECE), port.connect(3 * PIECE), port.connect(9 * PIECE)
    watch.know(name.encode())
    watch.look()
    assert [is_ended(each) for each in (small, large, known)] == [False, True, False]


def test_strangers_that_bring_too_much_together(port: Port) -> None:
    watch = StrangerSockets(port.number, "flight")
    clients = [port.connect(size * PIECE)[0] for size in (1, 2, 2, 1)]
    watch.look()
    assert [is_ended(each) for each in clients] == [False, True, False, False]


def test_too_many_strangers(port: Port) -> None:
    watch = StrangerSockets(port.number, "flight")
    clients = [port.connect() for _ in range(5)]
    watch.know(clients[0][1])
    watch.look()
    assert [is_ended(each) for each, _ in clients] == [False, True, False, False, False]
    late, _ = port.connect()
    watch.look()
    assert [is_ended(each) for each in (clients[2][0], clients[3][0], late)] == [True, False, False]


def test_other_ports_and_files_stay_as_they_are(port: Port) -> None:
    files = set(os.listdir("/proc/self/fd"))
    watch = StrangerSockets(1, "flight")
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
        StrangerSockets(port.number, "flight").look()
        tried = subprocess.run([sys.executable, "-c", other], stderr=subprocess.PIPE, check=False)
        assert b"BlockingIOError" in tried.stderr, "closing any descriptor of the file would have released its locks"


def test_a_known_peer_is_remembered_before_its_connection_is_found(port: Port) -> None:
    watch = StrangerSockets(port.number, "flight")
    watch.look()
    client, name = port.connect(9 * PIECE)
    watch.know(name)
    watch.know("unix:/a/socket")
    watch.look()
    assert not is_ended(client)


def test_a_connection_that_has_the_number_of_another_one(port: Port) -> None:
    watch = StrangerSockets(port.number, "flight")
    first, name = port.connect()
    watch.know(name)
    watch.look()
    port.end(first)
    second, _ = port.connect(9 * PIECE)
    watch.look()
    assert is_ended(second)
