"""Groups of callers with different rights: nobody joins, holds up, ends or occupies what reads topics of others."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.core.errors import GroupSizeConflict
from headrace.edge import audit
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.broker.messages import batch
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.test_access import logged_in

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
NONE, UNKNOWN_MEMBER, BAD_SESSION, REBALANCING, DENIED, NON_EMPTY, NOT_FOUND = 0, 25, 26, 27, 30, 68, 69
LONG_MS = 1_800_000


@dataclass
class Place:
    """A server with topics `orders`, `returns` and `own`, and a token for each kind of caller."""

    broker: Broker
    port: int
    callers: ExitStack
    tokens: dict[str, str]

    def caller(self, name: str) -> RawClient:
        return self.callers.enter_context(logged_in(self.port, self.tokens[name]))


@pytest.fixture
def place() -> Iterator[Place]:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = KafkaSettings(rebalance_delay_seconds=0.0)
    with (
        ExitStack() as callers,
        Broker.open("memory:") as broker,
        KafkaServer(broker, broker.access, settings, listeners),
        callers,
    ):
        tokens: dict[str, str] = {}
        for name, topics in {
            "owner": ["orders"],
            "both": ["orders", "returns"],
            "stranger": ["own"],
            "partner": ["returns", "own"],
            "admin": ["*"],
        }.items():
            tokens[name] = broker.access.create(name, [(topic, ["read", "manage"]) for topic in topics])[1]
        for topic in ("orders", "returns", "own"):
            broker.create_topic(topic)
            broker.publish(topic, batch(b"a", b"b", b"c"))
        yield Place(broker, sockets.port_of(listeners), callers, tokens)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(f">h{len(topic)}s", len(topic), topic.encode()) for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def joining(*topics: str, group: str = "billing", member: str = "", **more: Any) -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": subscription(*topics)}]
    timeouts = {"session_timeout": LONG_MS, "rebalance_timeout": LONG_MS}
    return (
        {"group_id": group, "member_id": member, "protocol_type": "consumer", "protocols": protocols} | timeouts | more
    )


def joined(client: RawClient, *topics: str, **more: Any) -> Any:
    """Join by the version in which a member is told no id before."""
    return client.call(JOIN_GROUP, 3, **joining(*topics, **more))


def settled(client: RawClient, *topics: str, group: str = "billing") -> dict[str, Any]:
    """Join a group alone, and give oneself everything; what names the member from then on."""
    answer = joined(client, *topics, group=group)
    assert (answer.error_code, len(answer.members)) == (NONE, 1)
    named = {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}
    mine = [{"member_id": answer.member_id, "assignment": b"all"}]
    assert client.call(SYNC_GROUP, 2, **named, assignments=mine).assignment == b"all"
    return named


def commit(client: RawClient, topic: str, offset: int, group: str = "billing", **member: Any) -> int:
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    named = {"generation_id_or_member_epoch": -1, "group_id": group, **member}
    answer = client.call(OFFSET_COMMIT, 7, topics=[{"name": topic, "partitions": partitions}], **named)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def members(client: RawClient, group: str = "billing") -> tuple[int, str, list[str]]:
    (described,) = client.call(DESCRIBE_GROUPS, 5, groups=[group]).groups
    return described.error_code, described.group_state, [each.member_id for each in described.members]


@pytest.mark.parametrize("topics", [(), ("own",)], ids=["that reads nothing", "of its own topic"])
def test_a_member_cannot_disturb_those_of_other_topics(place: Place, topics: tuple[str, ...]) -> None:
    owner, stranger = place.caller("owner"), place.caller("stranger")
    mine = settled(owner, "orders")
    # It is alone, in a group of its own, which waits for nobody.
    theirs = settled(stranger, *topics)
    for _ in range(3):
        assert owner.call(HEARTBEAT, 2, **mine).error_code == NONE
        assert stranger.call(HEARTBEAT, 2, **theirs).error_code == NONE
    assert members(owner) == (NONE, "Stable", [mine["member_id"]])
    assert members(stranger) == (NONE, "Stable", [theirs["member_id"]])
    # Who may read everything sees all of them, and none hides another.
    assert set(members(place.caller("admin"))[2]) == {mine["member_id"], theirs["member_id"]}
    # A member more, who waits for the others.
    waiting = place.caller("stranger")
    waiting.request(JOIN_GROUP, 3, **joining(*topics))
    stranger.call(HEARTBEAT, 2, **theirs)
    assert owner.call(HEARTBEAT, 2, **mine).error_code == NONE


@pytest.mark.parametrize("topics", [(), ("own",)], ids=["by who reads nothing", "by who reads its own topic"])
def test_a_name_cannot_be_occupied(place: Place, topics: tuple[str, ...]) -> None:
    stranger, owner = place.caller("stranger"), place.caller("owner")
    # Natively too, with offsets: they give no claim to the name.
    place.broker.register_group("own", "billing")
    place.broker.commit_offsets("own", "billing", {0: 1})
    settled(stranger, *topics)
    # Who was given an id and does not come back is not waited for either.
    pending = place.caller("stranger")
    assert pending.call(JOIN_GROUP, 5, **joining(*topics)).error_code == 79
    mine = settled(owner, "orders")
    assert owner.call(HEARTBEAT, 2, **mine).error_code == NONE
    member = {"generation_id_or_member_epoch": mine["generation_id"], "member_id": mine["member_id"]}
    assert commit(owner, "orders", 2, **member) == NONE
    assert owner.call(LEAVE_GROUP, 2, group_id="billing", member_id=mine["member_id"]).error_code == NONE
    # Without members it can be committed, shown and deleted, whatever others do under the name.
    assert commit(owner, "orders", 3) == NONE
    assert members(owner) == (NONE, "Empty", [])
    assert [each.group_id for each in owner.call(LIST_GROUPS, 4, states_filter=["Empty"]).groups] == ["billing"]
    forgotten = owner.call(
        OFFSET_DELETE, 0, group_id="billing", topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}]
    )
    assert forgotten.topics[0].partitions[0].error_code == NONE
    assert owner.call(DELETE_GROUPS, 2, groups_names=["billing"]).results[0].error_code == NONE
    assert (place.broker.list_groups("orders"), place.broker.list_groups("own")) == ([], ["billing"])


def test_who_may_read_some_topics_of_a_group_is_refused(place: Place) -> None:
    both, owner, partner = place.caller("both"), place.caller("owner"), place.caller("partner")
    mine = settled(both, "orders", "returns")
    for client, topic in ((owner, "orders"), (partner, "returns")):
        assert joined(client, topic).error_code == DENIED
        assert members(client)[:2] == (DENIED, "Dead")
    assert both.call(HEARTBEAT, 2, **mine).error_code == NONE
    assert members(both) == (NONE, "Stable", [mine["member_id"]])
    # Who was there before gives way to who may read all of it, and is not waited for.
    both.call(LEAVE_GROUP, 2, group_id="billing", member_id=mine["member_id"])
    first = settled(owner, "orders")
    answer = joined(both, "orders", "returns")
    assert (answer.error_code, len(answer.members)) == (NONE, 1)
    assert owner.call(HEARTBEAT, 2, **first).error_code == UNKNOWN_MEMBER
    assert joined(owner, "orders").error_code == DENIED


def test_a_member_that_takes_in_more_topics_takes_over(place: Place) -> None:
    """Two groups of a name become one once a caller who may read all of both reads topics of both."""
    owner, stranger, admin = place.caller("owner"), place.caller("stranger"), place.caller("admin")
    mine, theirs = settled(owner, "orders"), settled(stranger, "own")
    answer = joined(admin, "orders", "own")
    assert (answer.error_code, len(answer.members)) == (NONE, 1)
    for client, named in ((owner, mine), (stranger, theirs)):
        assert client.call(HEARTBEAT, 2, **named).error_code == UNKNOWN_MEMBER
        assert joined(client, "orders" if client is owner else "own").error_code == DENIED
    for topic in ("orders", "own"):
        with pytest.raises(GroupSizeConflict):
            place.broker.join_group(topic, "billing", "native")
    assert admin.call(LEAVE_GROUP, 2, group_id="billing", member_id=answer.member_id).error_code == NONE
    for topic in ("orders", "own"):
        place.broker.join_group(topic, "billing", "native")


def test_native_members_are_kept_from_topics_that_members_read_and_from_no_others(place: Place) -> None:
    owner, stranger = place.caller("owner"), place.caller("stranger")
    settled(stranger, "own")
    mine = settled(owner, "orders")
    place.broker.join_group("returns", "billing", "native")
    for topic in ("orders", "own"):
        with pytest.raises(GroupSizeConflict):
            place.broker.join_group(topic, "billing", "native")
    owner.call(LEAVE_GROUP, 2, group_id="billing", member_id=mine["member_id"])
    place.broker.join_group("orders", "billing", "native")
    with pytest.raises(GroupSizeConflict):
        place.broker.join_group("own", "billing", "native")
    assert joined(owner, "orders").error_code == 23


def test_nobody_acts_for_a_member_of_others(place: Place) -> None:
    owner, stranger = place.caller("owner"), place.caller("stranger")
    answer = owner.call(JOIN_GROUP, 5, **joining("orders", group_instance_id="till-1"))
    static = {"group_id": "billing", "generation_id": answer.generation_id, "member_id": answer.member_id}
    owner.call(SYNC_GROUP, 3, **static, assignments=[])
    assert stranger.call(HEARTBEAT, 2, **static).error_code == DENIED
    assert stranger.call(SYNC_GROUP, 2, **static, assignments=[]).error_code == DENIED
    assert joined(stranger, "own", member=answer.member_id).error_code == DENIED
    assert stranger.call(LEAVE_GROUP, 2, group_id="billing", member_id=answer.member_id).error_code == DENIED
    member = {"generation_id_or_member_epoch": answer.generation_id, "member_id": answer.member_id}
    assert commit(stranger, "own", 1, **member) == DENIED
    # An instance of the same name is another one for a caller who has nothing to do with the first.
    other = stranger.call(JOIN_GROUP, 5, **joining("own", group_instance_id="till-1"))
    assert (other.error_code, len(other.members)) == (NONE, 1)
    leaving = [{"member_id": "", "group_instance_id": "till-1"}]
    (left,) = stranger.call(LEAVE_GROUP, 3, group_id="billing", members=leaving).members
    assert left.error_code == NONE
    assert owner.call(HEARTBEAT, 2, **static).error_code == NONE
    # Who may read everything may remove it.
    (left,) = place.caller("admin").call(LEAVE_GROUP, 3, group_id="billing", members=leaving).members
    assert left.error_code == NONE
    assert owner.call(HEARTBEAT, 2, **static).error_code == UNKNOWN_MEMBER


def test_a_member_stays_in_with_a_new_token(place: Place) -> None:
    owner = place.caller("owner")
    mine = settled(owner, "orders")
    _, place.tokens["owner"], _ = place.broker.access.rotate("owner", keep_seconds=0)
    renewed = place.caller("owner")
    for _ in range(2):
        assert renewed.call(HEARTBEAT, 2, **mine).error_code == NONE


def beat(client: RawClient, member: str, *topics: str, epoch: int = 0, **more: Any) -> Any:
    named = {"group_id": "bonus", "member_id": member, "member_epoch": epoch, "rebalance_timeout": 2**31 - 1}
    told = {"subscribed_topic_names": list(topics) if topics else None, "topic_partitions": []} | more
    return client.call(CONSUMER_HEARTBEAT, 1, **(named | told))


def test_the_newer_protocol_keeps_callers_apart_too(place: Place) -> None:
    owner, stranger, both = place.caller("owner"), place.caller("stranger"), place.caller("both")
    theirs = beat(stranger, "s", "own")
    empty = beat(place.caller("stranger"), "e", subscribed_topic_names=[])
    mine = beat(owner, "o", "orders")
    for answer, topics in ((theirs, 1), (empty, 0), (mine, 1)):
        assert (answer.error_code, len(answer.assignment.topic_partitions)) == (NONE, topics)
    assert beat(owner, "o", epoch=mine.member_epoch).error_code == NONE
    assert beat(stranger, "o", epoch=mine.member_epoch).error_code == DENIED
    assert beat(stranger, "o", epoch=-1).error_code == DENIED
    assert beat(stranger, "o", "own").error_code == DENIED
    for client, member in ((owner, "o"), (stranger, "s")):
        (group,) = client.call(CONSUMER_DESCRIBE, 1, group_ids=["bonus"] * 3).groups
        assert {each.member_id for each in group.members} - {"e"} == {member}
    (group,) = place.caller("admin").call(CONSUMER_DESCRIBE, 1, group_ids=["bonus"]).groups
    read = {each.member_id: each.subscribed_topic_names for each in group.members}
    assert read == {"o": ["orders"], "s": ["own"], "e": []}
    assigned = [topic.topic_name for each in group.members for topic in each.assignment.topic_partitions]
    assert sorted(assigned) == ["orders", "own"]
    # Who may read more takes over, and what it reads is kept from who may not.
    more = beat(both, "b", "orders", "returns")
    assert (more.error_code, len(more.assignment.topic_partitions)) == (NONE, 2)
    assert beat(owner, "o", epoch=mine.member_epoch).error_code == UNKNOWN_MEMBER
    assert beat(owner, "o", "orders").error_code == DENIED
    assert beat(stranger, "s", epoch=theirs.member_epoch).error_code == NONE
    # The same under one name in the classic protocol.
    assert joined(owner, "orders", group="bonus").error_code == DENIED
    assert joined(both, "orders", group="bonus").error_code == 23


def test_sessions_and_waits_are_bounded(place: Place) -> None:
    owner = place.caller("owner")
    for milliseconds in (0, 1_800_001, 86_400_000):
        assert joined(owner, "orders", session_timeout=milliseconds).error_code == BAD_SESSION
    # A consumer that may take weeks between two polls is let in; nobody waits that long for it.
    assert joined(owner, "orders", rebalance_timeout=2**31 - 1).error_code == NONE


def commits_back() -> list[dict[str, Any]]:
    found = [each for each in audit.recent(100) if each["operation"] == "commit_back"]
    return [{name: value for name, value in each.items() if name != "time_us"} for each in found]


def test_a_commit_that_moves_a_group_back_is_recorded_and_can_be_forbidden(place: Place) -> None:
    place.broker.alter_topic("orders", 2)
    careful = place.broker.access.create("careful", [("orders", ["read"])], forward_only=True)[1]
    place.tokens["careful"] = careful
    owner, reader = place.caller("owner"), place.caller("careful")
    before = len(commits_back())
    assert commit(owner, "orders", 3) == commit(reader, "orders", 3) == NONE
    assert len(commits_back()) == before
    assert commit(reader, "orders", 1) == DENIED
    (refused,) = commits_back()[: len(commits_back()) - before]
    assert (refused["event"], refused["principal"], refused["right"]) == ("refused", "careful", "manage")
    assert place.broker.committed("orders", "billing") == {0: 3}
    assert commit(owner, "orders", 1) == NONE
    done = commits_back()[0]
    assert done == {
        "event": "done",
        "operation": "commit_back",
        "principal": "owner",
        "address": "127.0.0.1",
        "client": "raw",
        "topic": "orders",
        "group": "billing",
        "partitions": 1,
        "offsets": {0: [3, 1]},
    }
    # What moves forward beside it is committed all the same.
    place.broker.publish("orders", batch(b"d", partition=[1]))
    offsets = [{"partition_index": partition, "committed_offset": offset} for partition, offset in ((0, 0), (1, 1))]
    named = {"group_id": "billing", "generation_id_or_member_epoch": -1}
    answer = reader.call(OFFSET_COMMIT, 7, topics=[{"name": "orders", "partitions": offsets}], **named)
    assert [each.error_code for each in answer.topics[0].partitions] == [DENIED, NONE]
    assert place.broker.committed("orders", "billing") == {0: 1, 1: 1}


def test_what_was_not_done_is_not_recorded(place: Place) -> None:
    owner = place.caller("owner")
    place.broker.join_group("orders", "native", "ann")
    place.broker.register_group("orders", "old")
    before = audit.recent(1)
    answer = owner.call(DELETE_GROUPS, 2, groups_names=["native", "missing"])
    assert [each.error_code for each in answer.results] == [NON_EMPTY, NOT_FOUND]
    assert audit.recent(1) == before
    answer = owner.call(DELETE_GROUPS, 2, groups_names=["native", "old"])
    assert [each.error_code for each in answer.results] == [NON_EMPTY, NONE]
    told = list(takewhile(lambda each: each not in before, audit.recent(5)))
    assert [(each["operation"], each["group"]) for each in told] == [("delete_group", "old")]
