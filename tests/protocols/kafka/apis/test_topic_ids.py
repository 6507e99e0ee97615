"""Topics that requests name: what a shared store is asked, and who leads what."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any
from uuid import UUID

import pytest

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, IdNotFound, TopicNotFound
from headrace.core.rights import ANYONE, Caller, check_grants
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.apis.topic_ids import NO_TOPIC, TopicLookup, seen_name, topic_uuid
from headrace.protocols.kafka.nodes import Node, Nodes


class SharedBroker:
    """A broker of which the store knows more topics than it, and that counts how often the store is asked."""

    def __init__(self, *names: str) -> None:
        self._stored = dict(enumerate(names))
        self._known: dict[int, str] = {}
        self.asked: list[str] = []

    def known_topic_name(self, topic_id: int) -> str | None:
        return self._known.get(topic_id)

    def topic_name(self, topic_id: int) -> str:
        self.asked.append("id")
        if topic_id not in self._stored:
            raise IdNotFound("topic", str(topic_id), "in other words")
        return self._stored[topic_id]

    def knows_topic(self, name: str) -> bool:
        return name in self._known.values()

    def list_topics(self) -> list[str]:
        self.asked.append("all")
        self._known = dict(self._stored)
        return list(self._known.values())

    def reader(self, name: str) -> Any:
        if name in self._known.values():
            return name
        self.asked.append("name")
        if name in self._stored.values():
            return name
        raise TopicNotFound(name)


def lookup_of(broker: SharedBroker, caller: Caller = ANYONE) -> TopicLookup:
    return TopicLookup(broker, caller)  # type: ignore[arg-type]


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except HeadraceError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["id", "name"])
def test_a_shared_store_is_asked_a_few_times_however_many_topics_are_unknown(kind: str) -> None:
    broker = SharedBroker(*(f"t{number}" for number in range(1000)))
    lookup = lookup_of(broker)
    for number in range(5000):
        exists = number % 3 == 0 and number < 1000
        wanted = number if exists else number + 10_000
        found = outcome(lookup.name, topic_uuid(wanted)) if kind == "id" else outcome(lookup.reader, f"t{wanted}")
        assert (found == f"t{wanted}") is exists
    assert broker.asked == [kind] * 15 + ["all"]


def test_an_id_that_the_caller_may_not_see_is_answered_as_an_unknown_one() -> None:
    broker = SharedBroker("secret", "public")
    lookup = lookup_of(broker, Caller("other", check_grants([("public", ["read"])])))
    answers = {outcome(lookup.name, each).replace(str(each), "") for each in (topic_uuid(0), topic_uuid(7))}
    answers |= {outcome(lookup.name, each).replace(str(each), "") for each in (NO_TOPIC, UUID(int=1))}
    assert len(answers) == 1
    assert lookup.name(topic_uuid(1)) == "public"
    assert seen_name(broker, ANYONE, topic_uuid(0)) == "secret"  # type: ignore[arg-type]
    assert seen_name(broker, ANYONE, "anything") == "anything"  # type: ignore[arg-type]


def test_topics_are_looked_up_at_once_if_they_are_few_and_known() -> None:
    broker = SharedBroker("a")
    lookup = lookup_of(broker)
    assert not lookup.is_quick(["a"])
    broker.list_topics()
    assert lookup.is_quick(["a", topic_uuid(0), UUID(int=7)])
    assert not lookup.is_quick(["a", topic_uuid(1)])
    assert not lookup.is_quick(["a"] * 101)
    assert broker.asked == ["all"]


def test_leaders_and_coordinators_are_those_of_rendezvous_hashing() -> None:
    """Servers of several versions agree: the node whose checksum with the key is largest."""

    async def chosen() -> tuple[list[int], list[Node], list[bool], list[int]]:
        with Broker.open("memory:") as broker:
            nodes = Nodes(Bridge(broker))
            alone = nodes.leaders(7, 3).tolist()
            nodes._others = (Node(5, "five", 1), Node(99, "ninety-nine", 2))
            own = ("own", 3)
            groups = [f"g{number}" for number in range(50)]
            coordinators = nodes.coordinators(groups, own)
            assert [each.id for each in coordinators] == [expected(f"group/{group}") for group in groups]
            leaders = nodes.leaders(7, 50).tolist()
            return leaders, coordinators, [nodes.is_coordinator(group) for group in groups], alone

    def expected(key: str) -> int:
        return max((0, 5, 99), key=lambda node_id: (zlib.crc32(f"{key}/{node_id}".encode()), node_id))

    leaders, coordinators, own, alone = asyncio.run(chosen())
    assert leaders == [expected(f"7/{number}") for number in range(50)]
    assert len(set(leaders)) > 1
    assert own == [each == Node(0, "own", 3) for each in coordinators]
    assert alone == [0, 0, 0]
