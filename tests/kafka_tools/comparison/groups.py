"""Probes of committed offsets and of groups of both protocols."""

from __future__ import annotations

from typing import Any

from tests.kafka_tools.comparison.side import FIND_COORDINATOR, JOIN_GROUP, OFFSET_FETCH, SYNC_GROUP, Side, named, probe

HEARTBEAT, LEAVE_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 12, 13, 15, 16, 42, 47
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69


# Committed offsets


@probe("OffsetCommit: within, at and beyond the end, and negative")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    side.fill(topic, 3)
    return [(side.commit(group, topic, offset), side.committed(group, topic)) for offset in (1, 3, 50, -1, -5)]


@probe("OffsetCommit: an epoch and a text")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    code = side.commit(group, topic, 0, committed_metadata="note", committed_leader_epoch=7)
    return code, side.committed(group, topic)


@probe("OffsetCommit: a text of 4,096 and of 4,097 bytes")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    return [side.commit(group, topic, 0, committed_metadata="x" * length) for length in (4096, 4097)]


@probe("OffsetCommit: a null text")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    return side.commit(group, topic, 0, committed_metadata=None), side.committed(group, topic)[3] == ""


@probe("OffsetCommit: no such topic, no such partition")
def _(side: Side) -> object:
    group = side.group()
    return side.commit(group, "absent", 0), side.commit(group, side.topic(), 0, partition=5)


@probe("OffsetCommit: a group without a name", differs="A group has a name")
def _(side: Side) -> object:
    return side.commit("", side.topic(), 0)


@probe(
    "OffsetCommit: a member and a generation of a group without members",
    differs="A commit of a member that is unknown",
)
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    return [
        side.commit(group, topic, 0, member_id="who", generation_id_or_member_epoch=3),
        side.commit(group, topic, 0, member_id="", generation_id_or_member_epoch=3),
        side.commit(group, topic, 0, member_id="who"),
    ]


@probe("OffsetCommit: beside members, and by one of an older generation")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    with side.client() as client:
        member_id, generation = side.member(client, group, topic)
        return [
            side.commit(group, topic, 0),
            side.commit(group, topic, 0, member_id=member_id, generation_id_or_member_epoch=generation),
            side.commit(group, topic, 0, member_id=member_id, generation_id_or_member_epoch=generation - 1),
            side.commit(group, topic, 0, member_id="who", generation_id_or_member_epoch=generation),
        ]


@probe("OffsetFetch: of an unknown group, topic and partition")
def _(side: Side) -> object:
    group, topic = side.group(), side.topic()
    return side.committed(group, topic), side.committed(group, "absent"), side.committed(group, topic, 9)


@probe("OffsetFetch: of all topics")
def _(side: Side) -> object:
    group, topics = side.group(), [side.topic(), side.topic()]
    for topic in topics:
        side.commit(group, topic, 0)
    (answer,) = side.call(OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": None}]).groups
    return len(answer.topics), [len(each.partitions) for each in answer.topics]


@probe("OffsetFetch: as a member that the group does not have")
def _(side: Side) -> object:
    asked = {"group_id": side.group(), "topics": None, "member_id": "who", "member_epoch": 3}
    (answer,) = side.call(OFFSET_FETCH, 9, groups=[asked]).groups
    return named(answer.error_code)


@probe("OffsetDelete: of a group without members, and of none")
def _(side: Side) -> object:
    topic, group = side.topic(), side.group()
    side.commit(group, topic, 0)
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    answer = side.call(OFFSET_DELETE, 0, group_id=group, topics=topics)
    unknown = side.call(OFFSET_DELETE, 0, group_id=side.group(), topics=topics)
    return named(answer.error_code), side.committed(group, topic)[1], named(unknown.error_code)


@probe("FindCoordinator: of a group, an empty one, of a transaction, of something else")
def _(side: Side) -> object:
    side.group()
    told = []
    for kind, key in ((0, "g"), (0, ""), (7, "g")):
        (found,) = side.call(FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key]).coordinators
        told.append((named(found.error_code), found.port == side.port))
    return told


# Groups of the first protocol


@probe("JoinGroup: a member has to come back with its id")
def _(side: Side) -> object:
    answer = side.call(JOIN_GROUP, 5, **side.joining(side.group()))
    return named(answer.error_code), bool(answer.member_id), answer.generation_id


@probe("JoinGroup: an unknown id")
def _(side: Side) -> object:
    return named(side.call(JOIN_GROUP, 5, **side.joining(side.group(), member_id="who")).error_code)


@probe("JoinGroup: an empty group, no protocols, no type")
def _(side: Side) -> object:
    group = side.group()
    given: list[dict[str, Any]] = [
        side.joining(""),
        side.joining(group, protocols=[]),
        side.joining(group, protocol_type=""),
    ]
    return [named(side.call(JOIN_GROUP, 3, **each).error_code) for each in given]


@probe("JoinGroup: a session that is too long")
def _(side: Side) -> object:
    return named(side.call(JOIN_GROUP, 5, **side.joining(side.group(), session_timeout=1_800_001)).error_code)


@probe("JoinGroup: a session of a second", differs="6 seconds as the lower one")
def _(side: Side) -> object:
    return named(side.call(JOIN_GROUP, 5, **side.joining(side.group(), session_timeout=1000)).error_code)


@probe("JoinGroup: beside members with another type, and another protocol")
def _(side: Side) -> object:
    group = side.group()
    with side.client() as client:
        side.member(client, group)
        other = [{"name": "another", "metadata": b""}]
        given = [side.joining(group, protocol_type="connect"), side.joining(group, protocols=other)]
        return [named(side.call(JOIN_GROUP, 5, **each).error_code) for each in given]


@probe("a group's answers to its only member")
def _(side: Side) -> object:
    group = side.group()
    with side.client() as client:
        member_id = client.call(JOIN_GROUP, 5, **side.joining(group)).member_id
        joined = client.call(JOIN_GROUP, 5, **side.joining(group, member_id=member_id))
        one = {"group_id": group, "member_id": member_id, "generation_id": joined.generation_id}
        before = client.call(HEARTBEAT, 3, **one)
        synced = client.call(SYNC_GROUP, 3, **one, assignments=[{"member_id": member_id, "assignment": b"a"}])
        after = [client.call(HEARTBEAT, 3, **one | more) for more in ({}, {"generation_id": 99}, {"member_id": "who"})]
        codes = [named(each.error_code) for each in (joined, before, synced, *after)]
        return joined.generation_id, joined.leader == member_id, len(joined.members), synced.assignment, codes


@probe("SyncGroup: another protocol than was chosen", differs="SyncGroup does not compare")
def _(side: Side) -> object:
    group = side.group()
    with side.client() as client:
        member_id = client.call(JOIN_GROUP, 5, **side.joining(group)).member_id
        joined = client.call(JOIN_GROUP, 5, **side.joining(group, member_id=member_id))
        one = {"group_id": group, "member_id": member_id, "generation_id": joined.generation_id, "assignments": []}
        return named(client.call(SYNC_GROUP, 5, **one, protocol_type="consumer", protocol_name="other").error_code)


@probe("Heartbeat, SyncGroup, LeaveGroup: no such group")
def _(side: Side) -> object:
    one = {"group_id": side.group(), "member_id": "who", "generation_id": 1}
    left = side.call(LEAVE_GROUP, 4, group_id=one["group_id"], members=[{"member_id": "who"}])
    codes = [side.call(HEARTBEAT, 3, **one).error_code, side.call(SYNC_GROUP, 3, **one, assignments=[]).error_code]
    return [named(each) for each in (*codes, left.error_code, *(each.error_code for each in left.members))]


def described(side: Side, group: str, version: int = 5) -> tuple[Any, ...]:
    """What DescribeGroups says."""
    (found,) = side.call(DESCRIBE_GROUPS, version, groups=[group]).groups
    states = found.group_state, found.protocol_type, found.protocol_data, len(found.members)
    return named(found.error_code), *(each if each != "" else "''" for each in states)


@probe("DescribeGroups: unknown, empty, with a member, after it left", differs="A group exists while")
def _(side: Side) -> object:
    group, other = side.group(), side.group()
    side.commit(other, side.topic(), 0)
    told = [described(side, "absent"), described(side, "absent", 6), described(side, other)]
    with side.client() as client:
        member_id, _ = side.member(client, group)
        told.append(described(side, group))
        client.call(LEAVE_GROUP, 4, group_id=group, members=[{"member_id": member_id}])
        return [*told, described(side, group)]


@probe("DescribeGroups: while members join")
def _(side: Side) -> object:
    group = side.group()
    with side.client() as client, side.client() as second:
        side.member(client, group)
        other_id = second.call(JOIN_GROUP, 5, **side.joining(group)).member_id
        second.request(JOIN_GROUP, 5, **side.joining(group, member_id=other_id))
        side.wait(lambda: described(side, group)[1] != "Stable")
        return described(side, group)


@probe("ListGroups: by state and type", differs="shown as `consumer`")
def _(side: Side) -> object:
    topic, told = side.topic(), []
    empty, group = side.group(), side.group()
    side.commit(empty, topic, 0)
    with side.client() as client:
        side.member(client, group)
        for states, types in (([], []), (["Empty"], []), (["Stable"], []), (["Nonsense"], []), ([], ["consumer"])):
            answer = side.call(LIST_GROUPS, 5, states_filter=states, types_filter=types)
            found = {each.group_id: (each.group_state, each.protocol_type, each.group_type) for each in answer.groups}
            told.append((named(answer.error_code), found.get(empty), found.get(group)))
    return told


@probe("DeleteGroups: unknown, empty, with a member")
def _(side: Side) -> object:
    empty, group = side.group(), side.group()
    side.commit(empty, side.topic(), 0)
    with side.client() as client:
        side.member(client, group)
        answer = side.call(DELETE_GROUPS, 2, groups_names=["absent", empty, group])
        found = {each.group_id: named(each.error_code) for each in answer.results}
        return [found[each] for each in ("absent", empty, group)]


# Groups of the newer protocol (KIP-848)


def heartbeat(side: Side, group: str, **more: Any) -> Any:
    """A heartbeat of a member."""
    fields = {"group_id": group, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000}
    return side.call(CONSUMER_HEARTBEAT, 0, **fields | {"subscribed_topic_names": [], "topic_partitions": []} | more)


@probe("ConsumerGroupHeartbeat: joins, beats, leaves")
def _(side: Side) -> object:
    group, topic, told = side.group(), side.topic(), list[tuple[str, bool]]()
    joined = heartbeat(side, group, subscribed_topic_names=[topic])
    told.append((named(joined.error_code), joined.member_epoch > 0))
    for epoch in (joined.member_epoch, joined.member_epoch + 5, -1, -1):
        more = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
        told.append((named(heartbeat(side, group, member_epoch=epoch, **more).error_code), epoch < 0))
    return told


@probe("ConsumerGroupHeartbeat: an unknown group", differs="The same holds for ConsumerGroupHeartbeat")
def _(side: Side) -> object:
    return named(heartbeat(side, side.group(), member_id="who", member_epoch=3).error_code)


@probe("ConsumerGroupHeartbeat: no timeout, no topics, an unknown assignor, a wrong epoch, no partitions")
def _(side: Side) -> object:
    group = side.group()
    given: list[dict[str, Any]] = [
        {"rebalance_timeout": -1},
        {"subscribed_topic_names": None},
        {"server_assignor": "nonsense"},
        {"member_epoch": -3},
        {"topic_partitions": None},
    ]
    return [named(heartbeat(side, group, **each).error_code) for each in given]


@probe("JoinGroup: in a group of the newer protocol", differs="Changing a group from one of Kafka's two protocols")
def _(side: Side) -> object:
    group = side.group()
    heartbeat(side, group, subscribed_topic_names=[side.topic()])
    return named(side.call(JOIN_GROUP, 5, **side.joining(group)).error_code), described(side, group, 6)[0]


@probe("ConsumerGroupDescribe: unknown, with a member")
def _(side: Side) -> object:
    group = side.group()
    heartbeat(side, group, subscribed_topic_names=[side.topic()])
    side.wait(lambda: side.call(CONSUMER_DESCRIBE, 0, group_ids=[group]).groups[0].group_state != "Assigning")
    groups = [side.call(CONSUMER_DESCRIBE, 0, group_ids=[name]).groups[0] for name in ("absent", group)]
    return [(named(each.error_code), each.group_state, each.assignor_name, len(each.members)) for each in groups]
