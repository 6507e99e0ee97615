"""What one caller or stranger sends, or does not send, leaves room and places to all others.

The times that a wait may take are far beyond the patience of these tests: whoever had to wait for them would fail.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.edge.envelope.repeated_warnings import LINES_PER_PERIOD
from headrace.edge.event_loop.frame_connection import UNKNOWN_BYTES_MAX
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.raw import SASL_HANDSHAKE, RawClient, login
from tests.protocols.kafka.records.test_codec import NOW_MS, built

MIB = 1 << 20
PRODUCE, METADATA = 0, 3
FOREVER: dict[str, Any] = {"room_seconds_max": 3600.0, "request_seconds_max": 3600.0}


class Site:
    """A server with tokens: `victim`'s, and `other`'s, which has rights on one unimportant topic."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.port = port
        _, self.victim = broker.access.create("victim", [("*", ["publish", "read", "manage"])])
        _, self.other = broker.access.create("other", [("other", ["publish", "read"])])

    def client(self, token: str) -> RawClient:
        return RawClient(self.port, token=token)

    def check_served(self) -> None:
        """The victim is served, on a new connection too."""
        with self.client(self.victim) as client:
            check_served(client)


def check_served(client: RawClient) -> None:
    (topic,) = client.call(METADATA, 12, topics=[{"name": "orders", "topic_id": None}]).topics
    assert topic.error_code == 0


@contextmanager
def server(limits: LimitSettings | None = None, **settings: Any) -> Iterator[Site]:
    listeners = sockets.bind("127.0.0.1", 0)
    with (
        Broker.open("memory:") as broker,
        KafkaServer(broker, broker.access, KafkaSettings(**FOREVER | settings), listeners, limits=Limits(limits)),
    ):
        broker.create_topic("orders")
        broker.create_topic("other")
        yield Site(broker, sockets.port_of(listeners))


def publishing(client: RawClient, value_bytes: int) -> bytes:
    """A request with one record, with its length before it."""
    data = [
        {"name": "other", "partition_data": [{"index": 0, "records": built([(NOW_MS, None, bytes(value_bytes), [])])}]}
    ]
    return client.encoded(PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)


def test_announced_requests_take_no_room() -> None:
    with server() as site, site.client(site.victim) as victim, ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(site.client(site.other)).send(struct.pack(">i", 64 * MIB))
        check_served(victim)
        site.check_served()


def test_strangers_who_announce_requests_take_no_room() -> None:
    with server(requests_bytes_max=MIB, request_bytes_max=MIB) as site, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(RawClient(site.port)).send(struct.pack(">i", UNKNOWN_BYTES_MAX) + bytes(1000))
        site.check_served()


def test_halves_of_requests_hold_up_nobody_else_and_their_own_sender_not_for_long() -> None:
    limits = LimitSettings(request_bytes_max=MIB, requests_bytes_max=4 * MIB)
    bounds = {"requests_bytes_max": 8 * MIB, "request_bytes_max": MIB}
    with server(limits, **bounds) as site, site.client(site.victim) as victim, ExitStack() as stack:
        for _ in range(6):
            each = stack.enter_context(site.client(site.other))
            each.send(publishing(each, MIB - 1200)[: MIB // 2])
        check_served(victim)
        site.check_served()
        # Its own next request is served too, once those that bring nothing were closed for it.
        with site.client(site.other) as honest:
            honest.send(publishing(honest, MIB - 1200))
            assert honest.answer().responses[0].partition_responses[0].error_code == 0


def test_requests_beyond_a_callers_share_are_all_served(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitSettings(request_bytes_max=MIB, requests_bytes_max=4 * MIB)
    with server(limits, requests_bytes_max=8 * MIB, request_bytes_max=MIB) as site:
        with ExitStack() as stack:
            clients = [stack.enter_context(site.client(site.other)) for _ in range(8)]
            requests = [publishing(each, MIB - 1200) for each in clients]
            for start in range(0, MIB, MIB // 4):
                for each, request in zip(clients, requests, strict=True):
                    each.send(request[start : start + MIB // 4])
            for each in clients:
                assert each.answer().responses[0].partition_responses[0].error_code == 0
        assert not caplog.messages


def test_strangers_take_no_places_from_those_who_sign_in() -> None:
    with server(connections_max=40) as site, ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(RawClient(site.port))
        for _ in range(3):
            stack.enter_context(site.client(site.victim))
        site.check_served()


def test_one_caller_takes_a_part_of_the_places() -> None:
    with server(connections_max=40) as site, ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(site.client(site.other))
        with RawClient(site.port) as late:
            late.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
            late.send(login(site.other)[1])
            assert late.is_closed()
        site.check_served()


def test_without_tokens_one_address_may_have_all_places() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = KafkaSettings(connections_max=40)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners):
        broker.create_topic("orders")
        with ExitStack() as stack:
            for _ in range(40):
                check_served(stack.enter_context(RawClient(sockets.port_of(listeners))))


def test_bad_requests_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with server() as site:
        for _ in range(LINES_PER_PERIOD + 30):
            with RawClient(site.port) as client:
                client.send(struct.pack(">ihhi", 8, 999, 0, 0))
                assert client.is_closed()
    assert len(caplog.messages) == LINES_PER_PERIOD + 1
    assert caplog.messages[-1].startswith("30 more connections of kafka clients were closed; the last of them: ")
