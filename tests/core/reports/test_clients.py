"""What clients say of themselves, and who may know of them."""

from __future__ import annotations

from headrace.core.reports.clients import (
    ClientDescription,
    ClientIdentity,
    ClientMembership,
    ClientProducer,
    identity_of,
    visible_clients,
)
from headrace.core.rights import ANYONE, Caller, Grant, Right


def test_an_identity_is_read_as_sent_and_shortened() -> None:
    assert identity_of('{"client_id":"billing","host":"web-3","pid":7}') == ClientIdentity("billing", "web-3", 7)
    assert len(identity_of('{"client_id":"' + "x" * 500 + '"}').client_id) == 100


def test_what_is_none_says_nothing() -> None:
    for text in ("", "{", "[]", '{"pid":"seven"}', '{"client_id":"' + "x" * 5_000 + '"}', '"\udc00"'):
        assert identity_of(text) == ClientIdentity()


def test_the_place_of_a_client() -> None:
    assert ClientIdentity(host="web-3", pid=7).place == "web-3:7"
    assert ClientIdentity(host="web-3").place == "web-3"


def client(principal: str, reads: str = "", writes: str = "") -> ClientDescription:
    members = [ClientMembership(reads, "billing", "m", None)] if reads else []
    producers = [ClientProducer(writes, "till")] if writes else []
    return ClientDescription("s", "flight", principal, "10.0.0.1", ClientIdentity(), 1, 2, members, producers)


def test_a_caller_sees_itself_and_what_others_do_in_topics_it_may_read() -> None:
    clients = [client("rita", "secret"), client("paul", "orders", "secret"), client("eve", writes="secret")]
    rita = Caller("rita", (Grant("orders", frozenset({Right.READ}), ("*",), ("*",)),))
    assert visible_clients(clients, rita) == [client("rita"), client("paul", "orders")]
    assert visible_clients(clients, ANYONE) == clients
