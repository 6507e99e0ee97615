"""The socket of the native wire, with TLS and without: what it says of what has arrived, and once it was closed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import trustme

from headrace.client.transport.native_socket import NativeSocket
from headrace.client.transport.tls_socket import TlsSocket
from headrace.wire import native
from tests.broker.background import PATIENCE_SECONDS, eventually

Pair = tuple[NativeSocket, socket.socket]


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """One that is connected, and the other side."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = "127.0.0.1", listener.getsockname()[1], PATIENCE_SECONDS
        if request.param == "plain":
            near = NativeSocket(*address)
            far = stack.enter_context(listener.accept()[0])
        else:
            authority, served = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1").configure_cert(served)
            # So that nothing arrives that was not sent.
            served.num_tickets = 0
            trusted = ssl.create_default_context()
            authority.configure_trust(trusted)
            pool = stack.enter_context(ThreadPoolExecutor(1))
            accepted = pool.submit(lambda: served.wrap_socket(listener.accept()[0], server_side=True))
            near = TlsSocket(*address, trusted)
            far = stack.enter_context(accepted.result(PATIENCE_SECONDS))
        stack.callback(near.close)
        # As of any that was greeted.
        near.set_patience(None)
        yield near, far


def test_one_that_another_thread_has_closed_is_ready_and_then_says_so(pair: Pair) -> None:
    near, _ = pair
    assert near.is_silent()
    near.close()
    assert near.has_arrived(0.0)
    assert not near.is_silent()
    with pytest.raises(OSError, match="Bad file descriptor"):
        near.receive()


def test_whether_a_whole_frame_has_arrived(pair: Pair) -> None:
    near, far = pair
    assert not near.has_frame()
    first, second = native.frame(b"r", b"receipt"), native.frame(b"d")
    for part in (first[:2], first[2:9]):
        far.sendall(part)
        assert near.has_arrived(PATIENCE_SECONDS)
        assert not near.has_frame()
    far.sendall(first[9:] + second)
    eventually(near.has_frame)
    assert near.receive() == (b"r", b"receipt")
    eventually(near.has_frame)
    assert near.receive() == (b"d", b"")
    assert not near.has_frame()


@pytest.mark.parametrize("last", [b"", native.frame(b"r")[:3], native.SIZE.pack(-1), native.SIZE.pack(1 << 30) * 2])
def test_nothing_waits_at_the_end_of_a_connection(pair: Pair, last: bytes) -> None:
    near, far = pair
    far.sendall(last)
    far.shutdown(socket.SHUT_RDWR)
    eventually(near.has_frame)
    for _ in range(2):
        assert near.has_frame()
        with pytest.raises(EOFError):
            near.receive()
