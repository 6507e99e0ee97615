"""Requests that name many groups, topics or members, or one many times: what the store is asked, and how often."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core.errors import GroupSizeConflict
from headrace.protocols.kafka.coordinator.requests import ASSIGNMENT_BYTES_MAX, PROTOCOLS_MAX
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
NONE, INVALID_REQUEST, NOT_FOUND, UNKNOWN_MEMBER = 0, 42, 69, 25
MANY = 1_200


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as connected:
        yield connected


class Counted:
    """How often methods of a broker, or of a part of it, are called."""

    def __init__(self, broker: object, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
        self.calls: Counter[str] = Counter()
        for name in methods:
            monkeypatch.setattr(broker, name, self._counting(name, getattr(broker, name)))

    def _counting(self, name: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **kwargs)

        return call

    def since(self) -> dict[str, int]:
        """The calls since the last time."""
        calls, self.calls = self.calls, Counter()
        return dict(calls)


def joining(group: str, topic: str, member: str = "", **more: Any) -> dict[str, Any]:
    metadata = struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic.encode(), -1)
    timeouts = {"session_timeout": 30_000, "rebalance_timeout": 30_000}
    protocols = [{"name": "range", "metadata": metadata}]
    return {
        "group_id": group,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": protocols,
        **timeouts,
        **more,
    }


def test_groups_that_are_named_many_times_are_looked_up_once(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("named-1", "named-2"):
        site.broker.create_topic(topic)
        for number in range(3):
            site.broker.register_group(topic, f"named-{number}")
            site.broker.commit_offsets(topic, f"named-{number}", {0: 0})
    # Without offsets there.
    site.broker.create_topic("named-3")
    site.broker.register_group("named-3", "named-0")
    counted = Counted(site.broker, monkeypatch, "topics_of_groups", "list_groups", "delete_group", "reader")
    names = [f"named-{number % MANY}" for number in range(5 * MANY)] + ["", "n\n"]
    described = client.call(DESCRIBE_GROUPS, 6, groups=names).groups
    assert [each.error_code for each in described] == [NONE] * 3 + [NOT_FOUND] * (MANY - 1)
    assert counted.since() == {"topics_of_groups": 1}
    groups = [{"group_id": name, "topics": None} for name in names]
    fetched = client.call(OFFSET_FETCH, 8, groups=groups, require_stable=False).groups
    assert [len(each.topics) for each in fetched] == [2] * 3 + [0] * (MANY - 1)
    assert counted.since() == {"topics_of_groups": 1, "reader": 7}
    assert {"named-0", "named-1", "named-2"} <= {each.group_id for each in client.call(LIST_GROUPS, 5).groups}
    assert counted.since() == {"topics_of_groups": 1}
    results = client.call(DELETE_GROUPS, 2, groups_names=names).results
    assert [each.error_code for each in results] == [NONE] * 3 + [NOT_FOUND] * (MANY - 1)
    assert counted.since() == {"topics_of_groups": 1, "delete_group": 7}
    assert len(client.call(CONSUMER_DESCRIBE, 1, group_ids=names).groups) == MANY + 2


def test_topics_that_are_named_many_times_are_looked_up_once(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.broker.create_topic("often", 2)
    counted = Counted(site.broker, monkeypatch, "offsets", "reader", "committed", "forget_offsets")
    partitions = [{"partition_index": partition, "committed_offset": 0} for partition in (0, 1, 7)]
    named = {"group_id": "often", "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": "often", "partitions": partitions}] * MANY + [{"name": "never", "partitions": partitions}]
    answer = client.call(OFFSET_COMMIT, 8, topics=topics, **named)
    told = [(topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics]
    assert told == [("often", [0, 0, 3]), ("never", [3, 3, 3])]
    assert counted.since() == {"offsets": 2, "committed": 1, "reader": 1}
    asked = [{"name": "often", "partition_indexes": [0, partition]} for partition in (1, 7) * MANY]
    (topic,) = client.call(OFFSET_FETCH, 7, group_id="often", topics=asked, require_stable=False).topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 0), (1, 0), (7, -1)]
    assert counted.since() == {"reader": 1}
    (topic,) = client.call(OFFSET_DELETE, 0, group_id="often", topics=topics[:MANY]).topics
    assert [each.error_code for each in topic.partitions] == [0, 0, 3]
    assert counted.since() == {"reader": 1, "forget_offsets": 1}


def test_an_expression_is_looked_up_when_topics_have_changed(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.broker.create_topic("seen-1")
    counted = Counted(site.broker, monkeypatch, "known_topics", "reader")
    claimed = Counted(site.broker.claims, monkeypatch, "claim")
    named = {"group_id": "seen", "member_id": "m", "rebalance_timeout": 1_000}
    asked = {"subscribed_topic_names": None, "subscribed_topic_regex": "seen-.*"}
    joined = client.call(CONSUMER_HEARTBEAT, 1, **named, member_epoch=0, topic_partitions=[], **asked)
    assert len(joined.assignment.topic_partitions) == 1
    assert counted.since() == {"known_topics": 1, "reader": 1}
    assert claimed.since() == {"claim": 1}
    epoch = joined.member_epoch
    for _ in range(5):
        answer = client.call(CONSUMER_HEARTBEAT, 1, **named, member_epoch=epoch, topic_partitions=None)
        assert answer.assignment is None
    # Said again, as after an answer that was lost.
    again = client.call(CONSUMER_HEARTBEAT, 1, **named, member_epoch=epoch, topic_partitions=None, **asked)
    assert len(again.assignment.topic_partitions) == 1
    assert (counted.since(), claimed.since()) == ({"known_topics": 1}, {})
    site.broker.create_topic("seen-2")
    answer = client.call(CONSUMER_HEARTBEAT, 1, **named, member_epoch=epoch, topic_partitions=None)
    assert len(answer.assignment.topic_partitions) == 2
    assert counted.since() == {"known_topics": 1, "reader": 2}
    assert claimed.since() == {"claim": 1}
    site.broker.alter_topic("seen-2", 3)
    answer = client.call(CONSUMER_HEARTBEAT, 1, **named, member_epoch=answer.member_epoch, topic_partitions=None)
    assert sum(len(each.partitions) for each in answer.assignment.topic_partitions) == 4


def test_native_members_are_looked_for_in_new_topics(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.broker.create_topic("rejoined")
    counted = Counted(site.broker.claims, monkeypatch, "claim")
    joined = client.call(JOIN_GROUP, 3, **joining("rejoined", "rejoined"))
    for _ in range(3):
        assert client.call(JOIN_GROUP, 3, **joining("rejoined", "rejoined", joined.member_id)).error_code == NONE
    assert counted.since() == {"claim": 1}


@pytest.mark.parametrize("version", ["classic", "newer"])
def test_no_native_member_joins_between_the_claim_of_a_group_and_its_first_member(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    topic, claim = f"between-{version}", site.broker.claims.claim
    site.broker.create_topic(topic)
    refused: list[GroupSizeConflict] = []

    def claim_and_join(*args: Any) -> None:
        claim(*args)
        try:
            site.broker.join_group(topic, topic, "native")
        except GroupSizeConflict as error:
            refused.append(error)

    monkeypatch.setattr(site.broker.claims, "claim", claim_and_join)
    if version == "classic":
        assert client.call(JOIN_GROUP, 3, **joining(topic, topic)).error_code == NONE
    else:
        named = {"group_id": topic, "member_id": "m", "rebalance_timeout": 1_000, "subscribed_topic_names": [topic]}
        joined = client.call(CONSUMER_HEARTBEAT, 0, **named, member_epoch=0, topic_partitions=[])
        assert joined.error_code == NONE
    assert len(refused) == 1
    with pytest.raises(GroupSizeConflict):
        site.broker.join_group(topic, topic, "native")


def test_many_members_leave_at_once(site: Site, client: RawClient) -> None:
    site.broker.create_topic("crowd")
    joined = client.call(JOIN_GROUP, 3, **joining("crowd", "crowd"))
    named = {"group_id": "crowd", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assert client.call(SYNC_GROUP, 2, **named, assignments=[]).error_code == NONE
    leavers = [{"member_id": f"m{number}"} for number in range(MANY)] + [{"member_id": joined.member_id}] * 2
    answer = client.call(LEAVE_GROUP, 3, group_id="crowd", members=leavers)
    assert [each.error_code for each in answer.members] == [UNKNOWN_MEMBER] * MANY + [NONE, UNKNOWN_MEMBER]
    assert client.call(HEARTBEAT, 2, **named).error_code == UNKNOWN_MEMBER


def test_what_members_bring_is_bounded(site: Site, client: RawClient) -> None:
    site.broker.create_topic("brought")
    many = [{"name": f"p{number}", "metadata": struct.pack(">hii", 0, 0, -1)} for number in range(PROTOCOLS_MAX + 1)]
    topics = b"".join(struct.pack(">h5s", 5, b"%05d" % number) for number in range(10_001))
    long = [{"name": "range", "metadata": struct.pack(">hi", 0, 10_001) + topics + struct.pack(">i", -1)}]
    for protocols in (many, long):
        refused = client.call(JOIN_GROUP, 3, **joining("brought", "brought", protocols=protocols))
        assert refused.error_code == INVALID_REQUEST
    joined = client.call(JOIN_GROUP, 3, **joining("brought", "brought"))
    named = {"group_id": "brought", "generation_id": joined.generation_id, "member_id": joined.member_id}
    for size, code in ((ASSIGNMENT_BYTES_MAX + 1, INVALID_REQUEST), (ASSIGNMENT_BYTES_MAX, NONE)):
        assignments = [{"member_id": joined.member_id, "assignment": bytes(size)}]
        answer = client.call(SYNC_GROUP, 2, **named, assignments=assignments)
        assert (answer.error_code, len(answer.assignment)) == (code, size if code == NONE else 0)
    (described,) = client.call(DESCRIBE_GROUPS, 5, groups=["brought"] * 20).groups
    assert len(described.members[0].member_assignment) == ASSIGNMENT_BYTES_MAX
    assert client.call(LEAVE_GROUP, 2, group_id="brought", member_id=joined.member_id).error_code == NONE


def test_a_large_group_is_divided_beside_the_event_loop(site: Site, client: RawClient) -> None:
    site.broker.create_topic("large", 3_000)
    named = {"group_id": "large", "rebalance_timeout": 1_000, "subscribed_topic_names": ["large"]}
    with RawClient(site.port) as other:
        for number, each in enumerate((client, other)):
            each.request(CONSUMER_HEARTBEAT, 1, **named, member_id=f"m{number}", member_epoch=0, topic_partitions=[])
        first, second = client.answer(), other.answer()
        assert (first.error_code, second.error_code) == (NONE, NONE)
        owned = {"m0": first.assignment.topic_partitions, "m1": second.assignment.topic_partitions}
        epochs = {"m0": first.member_epoch, "m1": second.member_epoch}
        for _ in range(3):
            for member in owned:
                told = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in owned[member]]
                beat = {"group_id": "large", "rebalance_timeout": 1_000, "topic_partitions": told}
                answer = client.call(CONSUMER_HEARTBEAT, 1, **beat, member_id=member, member_epoch=epochs[member])
                epochs[member] = answer.member_epoch
                if answer.assignment is not None:
                    owned[member] = answer.assignment.topic_partitions
    counts = [sum(len(each.partitions) for each in owned[member]) for member in owned]
    assert counts == [1_500, 1_500]
    (described,) = client.call(CONSUMER_DESCRIBE, 1, group_ids=["large"]).groups
    assert [len(each.assignment.topic_partitions[0].partitions) for each in described.members] == counts
