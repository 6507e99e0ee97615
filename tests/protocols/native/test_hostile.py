"""Frames that lie or are no frames, connections that stay silent or do not read: they end alone, and harm nobody."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.http import server as sockets
from headrace.protocols.native.server import NativeServer
from headrace.protocols.native.settings import NativeSettings
from headrace.wire import native
from tests.edge.mutations import mutated
from tests.edge.streams import bomb, false_rows, seeds, short_bitmap
from tests.protocols.native.raw import RawNative

FOREVER: dict[str, Any] = {"room_seconds_max": 3600.0, "request_seconds_max": 3600.0}


class Site:
    """A server with tokens: the victim's, and one of a caller with rights on another topic."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.port = port
        _, self.victim = broker.access.create("victim", [("orders", ["publish"])])
        _, self.other = broker.access.create("other", [("other", ["publish"])])
        self._count = 0

    def check_served(self, client: RawNative | None = None) -> None:
        """The victim is served: on a connection of its own, or on a new one."""
        if client is None:
            with RawNative(self.port, self.victim) as new:
                new.open("orders")
                self.check_served(new)
            return
        client.message(b"an order")
        answer = client.answer()
        assert isinstance(answer, pa.RecordBatch), answer
        assert answer.column("offset").to_pylist() == [self._count]
        self._count += 1


@contextmanager
def server(limits: LimitSettings | None = None, **settings: Any) -> Iterator[Site]:
    listeners = sockets.bind("127.0.0.1", 0)
    with (
        Broker.open("memory:") as broker,
        NativeServer(broker, broker.access, NativeSettings(**FOREVER | settings), listeners, limits=Limits(limits)),
    ):
        broker.create_topic("orders")
        broker.create_topic("other")
        yield Site(broker, sockets.port_of(listeners))


@pytest.mark.parametrize("length", [0, -1, -(1 << 31), (1 << 31) - 1, (1 << 28) + 1])
def test_lengths_that_no_frame_has_end_their_connection(length: int) -> None:
    with server() as site, RawNative(site.port, site.victim) as victim:
        victim.open("orders")
        for greets in (True, False):
            with RawNative(site.port, site.other if greets else None, greets) as client:
                client.socket.sendall(struct.pack(">i", length) + b"x")
                assert client.is_ended()
        site.check_served(victim)


def test_strangers_send_a_small_greeting_or_nothing() -> None:
    with server() as site:
        bad = [
            native.frame(native.UPLOAD, b"{}"),
            native.frame(native.HELLO, b"\xff"),
            native.frame(native.HELLO, b"[]"),
        ]
        bad += [
            native.frame(native.HELLO, b'{"version":1,"token":"\xff"}'),
            native.SIZE.pack(native.HELLO_BYTES_MAX + 1),
        ]
        for sent in bad:
            with RawNative(site.port, greets=False) as stranger:
                stranger.socket.sendall(sent)
                assert stranger.is_ended()
        site.check_served()


def test_frames_where_they_do_not_belong_end_their_connection() -> None:
    with server() as site:
        for is_open, kind in ((False, native.MESSAGE), (False, b"?"), (True, native.HELLO), (True, native.UPLOAD)):
            with RawNative(site.port, site.other) as client:
                if is_open:
                    client.open("other")
                client.send(kind, b"{}")
                assert client.is_ended()
        site.check_served()


@pytest.mark.parametrize("stream", [bomb(1 << 30), bomb(1 << 20, copies=300), false_rows(3, 1 << 40), short_bitmap(99)])
def test_batches_that_lie_are_refused_and_the_upload_goes_on(stream: bytes) -> None:
    with server() as site, RawNative(site.port, site.other) as client:
        client.open("other")
        client.send(native.BATCH, stream)
        client.message(b"1")
        assert isinstance(client.answer(), HeadraceError)
        assert isinstance(client.answer(), pa.RecordBatch)


def test_spoiled_frames_get_an_error_or_the_end() -> None:
    random = Random(11)
    record = native.encode_record(native.Record(b"v" * 9, b"k", 0, 5, 6, {"a": b"1"}))
    pool = [native.BATCH + stream for stream in seeds()] + [native.MESSAGE + record] * 4
    with server() as site:
        client: RawNative | None = None
        for _ in range(300):
            if client is None:
                client = RawNative(site.port, site.other)
                client.open("other")
            body = mutated(pool, random)
            client.socket.sendall(native.SIZE.pack(len(body)) + body)
            try:
                client.answer()
            except (EOFError, OSError):
                # The first byte said that it is something else.
                client.socket.close()
                client = None
        if client is not None:
            client.socket.close()
        site.check_served()


def test_half_open_and_silent_connections_harm_nobody() -> None:
    with server(connections_max=40) as site, RawNative(site.port, site.victim) as victim, ExitStack() as stack:
        victim.open("orders")
        for number in range(8):
            client = stack.enter_context(RawNative(site.port, site.other))
            if number % 2:
                client.open("other")
                client.socket.sendall(native.SIZE.pack(64 << 20))
        with pytest.raises(LimitExceeded):
            for _ in range(3):
                stack.enter_context(RawNative(site.port, site.other))
        for _ in range(50):
            # Strangers take each other's places.
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
            with suppress(OSError):
                stranger.sendall(native.SIZE.pack(1_000) + native.HELLO)
        site.check_served(victim)
        site.check_served()


def test_what_one_caller_has_sent_in_part_leaves_room_to_others() -> None:
    limits = LimitSettings(request_bytes_max=1 << 20, requests_bytes_max=2 << 20)
    with server(limits, requests_bytes_max=4 << 20, request_bytes_max=2 << 20) as site, ExitStack() as stack:
        victim = stack.enter_context(RawNative(site.port, site.victim))
        victim.open("orders")
        for _ in range(8):
            client = stack.enter_context(RawNative(site.port, site.other))
            client.open("other")
            client.socket.setblocking(False)
            with suppress(BlockingIOError):
                client.socket.send(native.SIZE.pack(2 << 20) + native.BATCH + bytes(1 << 20))
        site.check_served(victim)
        site.check_served()


def test_whoever_does_not_read_its_answers_is_not_read_on() -> None:
    with server(send_seconds_max=0.5) as site, RawNative(site.port, site.other) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.open("other")
        frames = native.frame(native.BATCH, b"no Arrow") * 1_000
        client.socket.settimeout(0.2)
        sent = 0
        with suppress(OSError):
            while sent < 64 << 20:
                sent += client.socket.send(frames)
        assert sent < 64 << 20
        site.check_served()


def test_a_caller_that_publishes_too_fast_is_read_later() -> None:
    with server(LimitSettings(publish_bytes_per_second=4_000_000)) as site, RawNative(site.port, site.victim) as victim:
        victim.open("orders")
        for _ in range(10):
            victim.message(bytes(1_000_000))
        assert sum(isinstance(victim.answer(), pa.RecordBatch) for _ in range(10)) == 10


def test_greetings_of_another_version_are_told_which_one_is_spoken() -> None:
    with server() as site, RawNative(site.port, greets=False) as client:
        client.send(native.HELLO, msgspec.json.encode(native.Hello(2, site.victim)))
        kind, content = client.receive()
        assert kind == native.REFUSED and b"speaks version 1" in content
        assert client.is_ended()
