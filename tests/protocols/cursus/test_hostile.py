"""Connections that do what no client does."""

from __future__ import annotations

import struct
from contextlib import ExitStack

import pytest

from headrace.broker import Broker
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.raw import RawCursus, batch, framed, records


@pytest.mark.parametrize("size", [(1 << 32) - 1, 1 << 31, (1 << 20) + 1, 0])
def test_a_frame_of_an_unacceptable_size_ends_the_connection(client: RawCursus, size: int) -> None:
    """1 MiB is accepted here; the rest is not read."""
    client.send(struct.pack(">I", size) + b"x" * 100)
    assert client.is_closed()


def test_half_a_batch_writes_nothing(client: RawCursus, topic: str) -> None:
    with RawCursus(client.port) as half:
        half.send(framed(batch(topic, records(10)))[:-1])
        half.shutdown()
        assert half.is_closed()
    assert client.ask(f"LIST_OFFSETS topic={topic} partition=0").endswith("latest=0:leo=0:hwm=0")


def test_a_request_that_does_not_arrive_and_a_connection_without_one_end() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = CursusSettings(request_seconds_max=0.3, idle_seconds_max=0.3)
    with Broker.open("memory:") as broker, CursusServer(broker, broker.access, settings, listeners):
        port = sockets.port_of(listeners)
        with RawCursus(port) as slow, RawCursus(port) as idle:
            slow.send(struct.pack(">I", 100) + b"x")
            assert slow.is_closed()
            assert idle.is_closed()


def test_connections_and_streams_of_a_caller_are_counted() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    limits = Limits(LimitSettings(streams_max=1))
    settings = CursusSettings(connections_max=3, keepalive_seconds=0.1)
    with (
        Broker.open("memory:") as broker,
        CursusServer(broker, broker.access, settings, listeners, limits=limits),
        ExitStack() as opened,
    ):
        broker.create_topic("t", 2)
        clients = []
        for _ in range(3):
            clients.append(opened.enter_context(RawCursus(sockets.port_of(listeners))))
            assert clients[-1].ask("PROTOCOL_INFO").startswith("OK")
        clients[0].stream("topic=t partition=0 group=g")
        assert clients[0].frame() == b""
        refused = clients[1].ask("STREAM topic=t partition=1 group=g")
        assert refused.startswith("ERROR: command_failed reason=")
        assert "limits.streams_max" in refused
        with RawCursus(sockets.port_of(listeners)) as fourth:
            assert fourth.is_closed()
