"""Followers over the native wire: what is written, rights, credit, and what is no request."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import Forbidden, HeadraceError, InvalidInput, OffsetOutOfRange, TopicNotFound
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.http import server as sockets
from headrace.protocols.native.follow import LOOK_BYTES
from headrace.protocols.native.server import NativeServer
from headrace.protocols.native.settings import NativeSettings
from headrace.wire import native
from tests.broker.background import eventually
from tests.protocols.native.raw import RawNative


class FollowSite:
    def __init__(self, broker: Broker, limits: Limits, port: int) -> None:
        self.broker = broker
        self.limits = limits
        self.port = port

    def publish(self, *values: bytes) -> None:
        self.broker.publish("orders", pa.record_batch({"value": pa.array(values, pa.binary())}))


@pytest.fixture
def site() -> Iterator[FollowSite]:
    listeners, limits = sockets.bind("127.0.0.1", 0), Limits(LimitSettings(streams_max=4))
    with (
        Broker.open("memory:") as broker,
        NativeServer(broker, broker.access, NativeSettings(), listeners, limits=limits),
    ):
        broker.create_topic("orders")
        yield FollowSite(broker, limits, sockets.port_of(listeners))


def test_what_was_written_and_what_is_written(site: FollowSite) -> None:
    site.publish(b"0", b"1")
    with RawNative(site.port) as one, RawNative(site.port) as two:
        one.follow("orders")
        assert one.rows() == [b"0", b"1"]
        two.follow("orders", positions={0: 1}, growing=True)
        assert two.rows() == [b"1"]
        for number in range(2, 6):
            site.publish(b"%d" % number)
            assert one.rows() == two.rows() == [b"%d" % number]


def test_nothing_is_sent_beyond_the_credit_and_one_batch(site: FollowSite) -> None:
    traffic = site.limits.traffic["native"]
    with RawNative(site.port) as client, RawNative(site.port) as other:
        client.follow("orders", credit=1)
        other.follow("orders")
        site.publish(b"0")
        assert client.rows() == other.rows() == [b"0"]
        sent = traffic.bytes_out
        site.publish(b"1")
        # Both are handed it at once: when one has it, the other was not sent it.
        assert other.rows() == [b"1"]
        frame_bytes = traffic.bytes_out - sent
        assert 0 < frame_bytes < 2_000
        client.send(native.MORE, native.CREDIT.pack(frame_bytes))
        assert client.rows() == [b"1"]
        assert traffic.bytes_out == sent + 2 * frame_bytes


def test_who_is_far_behind_is_told_so(site: FollowSite) -> None:
    site.publish(*[b"x" * 1_000] * (LOOK_BYTES // 1_000))
    with RawNative(site.port) as client:
        client.follow("orders")
        assert client.receive() == (native.BEHIND, b"")


def test_a_follow_needs_the_right_and_ends_with_it(site: FollowSite) -> None:
    _, root = site.broker.access.create("root", [("*", ["read", "publish", "manage"])])
    record, text = site.broker.access.create("reader", [("orders", ["read"])])
    _, other = site.broker.access.create("other", [("other", ["read"])])
    with RawNative(site.port, other) as client:
        client.follow("orders")
        assert isinstance(client.rows(), Forbidden)
    with RawNative(site.port, text) as client:
        client.follow("orders")
        site.publish(b"1")
        assert client.rows() == [b"1"]
        site.broker.access.revoke(record.id)
        assert isinstance(client.rows(), HeadraceError)
    assert root


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"topic": "nothing"}, TopicNotFound),
        ({"topic": "orders", "positions": {0: 7}}, OffsetOutOfRange),
        ({"topic": "orders", "positions": {3: 0}}, HeadraceError),
        ({"topic": "orders", "credit": 0}, InvalidInput),
        ({"topic": "orders", "max_bytes": 0}, InvalidInput),
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_refused(site: FollowSite, given: dict[str, object], kind: type) -> None:
    with RawNative(site.port) as client:
        client.follow(**given)  # type: ignore[arg-type]
        assert isinstance(client.rows(), kind)
        # The client is waited for, which ends.
        client.send(native.MORE, native.CREDIT.pack(1))
    eventually(lambda: site.limits.traffic["native"].connections == 0)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (native.END, b""),
        (native.MESSAGE, native.encode_record(native.Record(b"v"))),
        (native.MORE, b""),
        (native.MORE, native.CREDIT.pack(-1)),
        (native.MORE, native.CREDIT.pack(1) + b"x"),
    ],
    ids=str,
)
def test_whatever_else_a_follower_sends_ends_its_connection(site: FollowSite, kind: bytes, content: bytes) -> None:
    with RawNative(site.port) as client:
        client.follow("orders")
        client.send(kind, content)
        assert client.is_ended()


def test_one_caller_follows_only_so_often(site: FollowSite) -> None:
    clients = [RawNative(site.port) for _ in range(5)]
    for client in clients:
        client.follow("orders")
    site.publish(b"1")
    answers = [client.rows() for client in clients]
    assert sorted(isinstance(answer, HeadraceError) for answer in answers) == [False] * 4 + [True]
    for client in clients:
        client.socket.close()
    # They leave nothing behind with those who publish.
    eventually(lambda: len(site.broker.reader("orders").watches) == 0)
