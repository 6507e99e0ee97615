"""Who may do what: tokens in AUTH and in requests, and what strangers may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.rights import Right
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.raw import RawCursus, batch, framed, records

REQUIRED = "ERROR: authentication_required"


@dataclass(frozen=True)
class Guarded:
    """A server with tokens, by name."""

    broker: Broker
    port: int
    tokens: dict[str, str]

    def client(self, name: str = "") -> RawCursus:
        """A connection, signed in if it has a name."""
        client = RawCursus(self.port)
        if name:
            assert client.ask(f"AUTH principal={name} token={self.tokens[name]}") == (
                f"OK principal={name} authenticated=true"
            )
        return client


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker:
        broker.create_topic("orders")
        broker.create_topic("secret")
        broker.publish("orders", pa.RecordBatch.from_pydict({"value": [b"one"]}))
        tokens = {
            name: broker.access.create(name, [grant])[1]
            for name, grant in {
                "admin": ("*", list(Right)),
                "writer": ("orders", [Right.PUBLISH]),
                "reader": ("orders", [Right.READ]),
            }.items()
        }
        with CursusServer(broker, broker.access, CursusSettings(), listeners):
            yield Guarded(broker, sockets.port_of(listeners), tokens)


def test_a_stranger_is_told_versions_and_nothing_else(guarded: Guarded) -> None:
    with guarded.client() as client:
        for request in ("PROTOCOL_INFO", "HELP", "NEGOTIATE version=1"):
            assert client.ask(request).startswith("OK")
        for request in ("LIST", "METADATA topic=orders", "CREATE topic=x", "LIST_GROUPS", "INIT_PRODUCER_ID", "EXIT"):
            assert client.ask(request).startswith(REQUIRED)
        assert client.publish(batch("orders", records(1))).startswith(REQUIRED)
        assert client.ask("AUTH principal=p token=wrong") == "ERROR: authentication_failed mechanism=PLAIN"
        client.send(framed(batch("orders", records(1, size=70_000))))
        assert client.is_closed()


def test_a_token_may_come_in_a_request(guarded: Guarded) -> None:
    with guarded.client() as client:
        asked = "LIST_OFFSETS topic=orders principal=r auth_token="
        assert client.ask(f"{asked}x").startswith("ERROR: authentication_failed")
        assert client.ask(asked + guarded.tokens["reader"]).startswith("OK topic=orders")
        assert client.ask("LIST_OFFSETS topic=orders").startswith("OK topic=orders")


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        (
            "writer",
            [
                "METADATA topic=orders",
                "PUBLISH topic=orders producerId=p message=x",
                "CREATE topic=orders partitions=1",
            ],
            ["CONSUME topic=orders partition=0 offset=0 member=m", "DESCRIBE topic=orders", "DELETE topic=orders"],
        ),
        (
            "reader",
            ["METADATA topic=orders", "JOIN_GROUP topic=orders group=g member=m", "LIST_OFFSETS topic=orders"],
            ["PUBLISH topic=orders producerId=p message=x", "CREATE topic=orders partitions=2", "CREATE topic=mine"],
        ),
    ],
)
def test_rights_are_those_of_the_token(guarded: Guarded, name: str, allowed: list[str], refused: list[str]) -> None:
    with guarded.client(name) as client:
        assert client.ask("LIST") == "OK count=1 topics=orders"
        for request in allowed:
            assert client.ask(request).startswith("OK") or '"OK"' in client.ask(request)
        for request in [*refused, "METADATA topic=secret", "GROUP_STATUS group=none topic=secret"]:
            assert client.ask(request).startswith(("ERROR: NOT_AUTHORIZED_FOR_TOPIC topic=", "ERROR: group_not_found"))


def test_a_revoked_token_ends_streams_and_requests(guarded: Guarded) -> None:
    token, secret = guarded.broker.access.create("leaving", [("orders", [Right.READ])])
    with RawCursus(guarded.port) as client, RawCursus(guarded.port) as stream:
        assert client.ask(f"LIST_OFFSETS topic=orders auth_token={secret}").startswith("OK")
        stream.stream(f"topic=orders partition=0 group=g auth_token={secret}")
        assert stream.messages()[0].payload == "one"
        guarded.broker.access.revoke(token.id)
        frame = stream.frame()
        while not frame or frame[:2] == b"\xba\x7c":
            frame = stream.frame()
        assert frame.startswith(b"STREAM_CONTROL type=CLOSE reason=removed")
        assert client.ask("LIST_OFFSETS topic=orders").startswith(REQUIRED)


def test_transactions_of_one_caller_are_nothing_to_another(guarded: Guarded) -> None:
    with guarded.client("writer") as one, guarded.client("admin") as other:
        assert one.ask("INIT_PRODUCER_ID transactional_id=x").endswith("epoch=0")
        assert other.ask("TXN_STATUS transactional_id=x") == "ERROR: transaction_not_found transactional_id=x"
        assert other.ask("INIT_PRODUCER_ID transactional_id=x").endswith("epoch=0")
