"""Uploads over the native wire: answers in order, invalid messages, rights, commit keys, replaced producers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import (
    AccessDenied,
    Forbidden,
    HeadraceError,
    InvalidInput,
    ProducerFenced,
    TopicNotFound,
    Unauthenticated,
)
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.http import server as sockets
from headrace.protocols.native.server import NativeServer
from headrace.protocols.native.settings import NativeSettings
from headrace.wire import native
from tests.broker.background import eventually
from tests.protocols.native.raw import RawNative, error_of, stream_of


@dataclass
class Site:
    broker: Broker
    port: int

    def values(self, topic: str = "orders") -> list[bytes]:
        batch = self.broker.fetch(topic, 0, 0, 10_000)
        return list(batch.column("value").to_pylist())


@pytest.fixture
def site() -> Iterator[Site]:
    listeners = sockets.bind("127.0.0.1", 0)
    with (
        Broker.open("memory:") as broker,
        NativeServer(broker, broker.access, NativeSettings(), listeners, limits=Limits(LimitSettings())),
    ):
        broker.create_topic("orders")
        yield Site(broker, sockets.port_of(listeners))


def batch_of(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def places(answer: pa.RecordBatch | HeadraceError) -> list[tuple[int, str]]:
    assert isinstance(answer, pa.RecordBatch), answer
    return list(zip(answer.column("offset").to_pylist(), answer.column("status").to_pylist(), strict=True))


def test_everything_is_answered_in_its_order_and_the_connection_used_again(site: Site) -> None:
    with RawNative(site.port) as client:
        for number in range(2):
            client.open("orders")
            client.message(b"one", key=b"k", attributes={"a": b"1", "b": None}, created_us=1_000_000)
            client.batch(batch_of(b"two", b"three"))
            # Invalid: it gets its error, and the upload continues.
            client.message(b"no", partition=7)
            client.send(native.MESSAGE, b"\xff")
            client.send(native.BATCH, b"no Arrow")
            client.message(None, key=b"gone")
            client.send(native.END)
            first = number * 4
            assert places(client.answer()) == [(first, "written")]
            assert places(client.answer()) == [(first + 1, "written"), (first + 2, "written")]
            for _ in range(3):
                assert isinstance(client.answer(), InvalidInput)
            assert places(client.answer()) == [(first + 3, "written")]
            assert client.receive() == (native.DONE, b"")
    assert site.values() == [b"one", b"two", b"three", None] * 2
    written = site.broker.fetch("orders", 0, 0, 1)
    assert written.column("attributes").to_pylist() == [[("a", b"1"), ("b", None)]]
    assert written.column("created_at").cast(pa.int64()).to_pylist() == [1_000_000]


def test_a_source_writes_nothing_twice_and_a_newer_producer_ends_the_older_one(site: Site) -> None:
    epoch = site.broker.open_producer("orders", "till", "", None).epoch
    with RawNative(site.port) as client, RawNative(site.port) as late:
        client.open("orders", producer_id="till", epoch=epoch)
        for seqno in (1, 2, 2):
            client.message(b"%d" % seqno, seqno=seqno)
        client.batch(
            pa.record_batch(
                {
                    "value": pa.array([b"3"]),
                    "seqno": pa.array([3], pa.int64()),
                    "producer_id": ["till"],
                    "message_group_id": [""],
                }
            )
        )
        answers = [places(client.answer()) for _ in range(4)]
        assert answers == [[(0, "written")], [(1, "written")], [(None, "duplicate")], [(2, "written")]]
        late.open("orders", producer_id="till", epoch=epoch + 1)
        late.message(b"4", seqno=4)
        assert places(late.answer()) == [(3, "written")]
        client.message(b"5", seqno=5)
        client.message(b"6", seqno=6)
        client.send(native.END)
        assert isinstance(client.answer(), ProducerFenced)
        # Nothing behind a failure is written, nor answered in another way.
        kinds = [client.receive()[0]]
        while kinds[-1] == native.REFUSED:
            kinds.append(client.receive()[0])
        assert kinds[-1] == native.DONE
    assert site.values() == [b"1", b"2", b"3", b"4"]


def test_commit_keys_count_the_frames_of_an_upload(site: Site) -> None:
    with RawNative(site.port) as client:
        for first in (0, 1):
            client.open("orders", writer="w", first_number=first)
            for number in range(2):
                client.message(b"%d" % (first + number))
            client.send(native.END)
            for _ in range(2):
                client.answer()
            assert client.receive()[0] == native.DONE
    assert site.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("ticket", "error"),
    [
        (b'{"type":"publish","topic":"nothing"}', TopicNotFound),
        (b'{"type":"stage","topic":"orders","stage":"s"}', InvalidInput),
        (b'{"type":"publish"}', InvalidInput),
        (b"\xff", InvalidInput),
        (b"[" * 10_000, InvalidInput),
        (b'"' + b"x" * (1 << 20) + b'"', InvalidInput),
    ],
)
def test_an_upload_that_cannot_begin_is_refused_and_the_next_one_is_served(
    site: Site, ticket: bytes, error: type[HeadraceError]
) -> None:
    with RawNative(site.port) as client:
        client.send(native.UPLOAD, ticket)
        client.message(b"dropped")
        client.message(b"dropped too")
        client.send(native.END)
        assert isinstance(client.answer(), error)
        assert client.receive()[0] == native.DONE
        client.open("orders")
        client.message(b"kept")
        assert places(client.answer()) == [(0, "written")]
    assert site.values() == [b"kept"]


def test_tokens_are_asked_for_before_anything_else_and_rights_for_each_upload(site: Site) -> None:
    site.broker.create_topic("secret")
    _, reader = site.broker.access.create("reader", [("*", ["read"])])
    _, writer = site.broker.access.create("writer", [("orders", ["publish"])], producers=["till*"])
    for token in (None, "nonsense", reader[:-1] + "x"):
        with pytest.raises((AccessDenied, Unauthenticated)):
            RawNative(site.port, token)
    with RawNative(site.port, reader) as client:
        client.open("orders")
        assert isinstance(client.answer(), Forbidden)
    with RawNative(site.port, writer) as client:
        for topic, producer in (("secret", "till"), ("orders", "other")):
            client.open(topic, producer_id=producer)
            client.send(native.END)
            assert isinstance(client.answer(), Forbidden)
            assert client.receive()[0] == native.DONE
        client.open("orders", producer_id="till-1")
        client.message(b"1", seqno=1)
        assert places(client.answer()) == [(0, "written")]
        foreign = {"value": pa.array([b"2"]), "seqno": pa.array([2], pa.int64()), "producer_id": ["other"]}
        client.batch(pa.record_batch(foreign))
        assert isinstance(client.answer(), Forbidden)
    assert site.values() == [b"1"]
    assert site.values("secret") == []


def test_an_upload_ends_when_its_token_is_revoked(site: Site) -> None:
    record, token = site.broker.access.create("writer", [("orders", ["publish"])])
    site.broker.access.create("other", [("orders", ["publish"])])
    with RawNative(site.port, token) as client:
        client.open("orders")
        client.message(b"1")
        assert places(client.answer()) == [(0, "written")]
        site.broker.access.revoke(record.id)
        answers: list[pa.RecordBatch | HeadraceError] = []

        def is_refused() -> bool:
            client.message(b"again")
            answers.append(client.answer())
            return isinstance(answers[-1], HeadraceError)

        eventually(is_refused)
        assert isinstance(answers[-1], Unauthenticated | AccessDenied)


def test_what_was_put_in_line_is_written_even_if_its_client_leaves(site: Site) -> None:
    with RawNative(site.port) as client:
        client.open("orders")
        for number in range(100):
            client.message(b"%d" % number)
        # All of it has arrived once the first of the last ones is answered.
        for _ in range(100):
            client.answer()
        client.message(b"last")
        client.socket.shutdown(1)
        assert places(client.answer()) == [(100, "written")]
    assert len(site.values()) == 101


def test_callers_are_seen_with_what_they_write(site: Site) -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    limits = Limits()
    with NativeServer(site.broker, site.broker.access, NativeSettings(), listeners, limits=limits):
        identity = msgspec.json.encode({"client_id": "till", "host": "shop", "pid": 7, "library": "x", "version": "1"})
        with RawNative(sockets.port_of(listeners), greets=False) as client:
            client.send(native.HELLO, msgspec.json.encode(native.Hello(1, None, identity.decode())))
            assert client.receive()[0] == native.WELCOME
            client.open("orders", producer_id="p")
            client.message(b"1", seqno=1)
            client.answer()
            (seen,) = limits.clients.list("s")
            assert (seen.protocol, seen.identity.client_id, seen.identity.pid) == ("native", "till", 7)
            assert [(each.topic, each.producer_id) for each in seen.producers] == [("orders", "p")]
            assert limits.traffic["native"].connections == 1


def test_batches_that_claim_more_than_they_may_take_are_refused(site: Site) -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = NativeSettings(request_bytes_max=1 << 20)
    with (
        NativeServer(site.broker, site.broker.access, settings, listeners),
        RawNative(sockets.port_of(listeners)) as client,
    ):
        client.open("orders")
        client.send(native.BATCH, stream_of(batch_of(bytes(4 << 20)), compression="zstd"))
        client.send(native.BATCH, stream_of(batch_of(bytes(900_000)), compression="zstd"))
        refused = client.answer()
        assert isinstance(refused, InvalidInput) and "1048576" in str(refused)
        assert places(client.answer()) == [(0, "written")]


def test_a_stopping_server_says_so_behind_the_last_answer() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker:
        broker.create_topic("orders")
        server = NativeServer(broker, broker.access, NativeSettings(), listeners)
        server.start()
        with RawNative(sockets.port_of(listeners)) as client:
            client.open("orders")
            client.message(b"1")
            assert places(client.answer()) == [(0, "written")]
            assert server.stop()
            kind, content = client.receive()
            assert kind == native.REFUSED and str(error_of(content)) == "the server is closed"
            assert client.is_ended()
