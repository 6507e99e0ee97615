"""The state machine of a consumer group: no clock, no sockets."""

from __future__ import annotations

import pytest

from headrace.protocols.kafka.coordinator.group import ClassicGroup, State
from headrace.protocols.kafka.coordinator.requests import (
    REBALANCE_SECONDS_MAX,
    SESSION_SECONDS_MAX,
    Effect,
    GroupError,
    Join,
    JoinAnswer,
    SyncAnswer,
)


class Room:
    """A group with a clock and ids that count."""

    def __init__(self, delay: float = 0.0, members_max: int = 10) -> None:
        self.group = ClassicGroup("g", delay, members_max)
        self.now = 100.0
        self.ids = 0
        self.effects: list[Effect] = []

    def join(
        self,
        member_id: str = "",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        needs_id: bool = False,
        kind: str = "consumer",
        session: float = 10.0,
    ) -> str:
        self.ids += 1
        offered = {"range": b"r", "sticky": b"s"} if protocols is None else protocols
        request = Join(member_id, instance, "client", "host", session, 30.0, kind, offered)
        joined, effects = self.group.join(request, f"m{self.ids}", needs_id, self.now)
        self.effects += effects
        return joined

    def leave(self, *leavers: str | tuple[str, str | None]) -> list[str]:
        named = [(each, None) if isinstance(each, str) else each for each in leavers]
        errors, effects = self.group.leave(named, self.now)
        self.effects += effects
        return errors

    def sync(self, member_id: str, generation: int | None = None, given: dict[str, bytes] | None = None) -> None:
        now = self.group.generation if generation is None else generation
        self.effects += self.group.sync(member_id, None, now, given or {}, self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.effects += self.group.tick(self.now)

    def state(self) -> State:
        return self.group.state

    def answers(self) -> dict[str, Effect]:
        found = {effect.member_id: effect for effect in self.effects}
        self.effects = []
        return found


def stable(members: int = 2) -> tuple[Room, list[str]]:
    room = Room(delay=1.0)
    ids = [room.join() for _ in range(members)]
    room.tick(1.0)
    for member_id in ids[1:]:
        room.sync(member_id)
    room.sync(ids[0], given={member_id: member_id.encode() for member_id in ids})
    room.effects = []
    assert room.state() == State.STABLE
    return room, ids


def refused(error: str) -> pytest.RaisesExc[GroupError]:
    return pytest.RaisesExc(GroupError, match=f"^{error}$")


def test_members_join_and_the_leader_assigns() -> None:
    room = Room(delay=1.0)
    first, second = room.join(), room.join()
    assert room.effects == [] and room.group.next_deadline() == 101.0
    room.tick(1.0)
    answers = room.answers()
    leader, follower = answers[first], answers[second]
    assert isinstance(leader, JoinAnswer) and isinstance(follower, JoinAnswer)
    assert leader.members == [(first, None, b"r"), (second, None, b"r")] and follower.members == ()
    assert (leader.leader, leader.generation, leader.protocol) == (first, 1, "range")
    room.sync(second)
    assert room.effects == []
    room.sync(first, given={first: b"one", second: b"two"})
    assert room.answers() == {
        first: SyncAnswer(first, "none", "consumer", "range", b"one"),
        second: SyncAnswer(second, "none", "consumer", "range", b"two"),
    }
    room.sync(second)
    assert room.answers()[second] == SyncAnswer(second, "none", "consumer", "range", b"two")


def test_a_new_member_makes_the_others_join_again() -> None:
    room, (first, second) = stable()
    third = room.join()
    for member_id in (first, second):
        with refused("rebalance_in_progress"):
            room.group.heartbeat(member_id, None, 1, room.now)
    room.join(first)
    assert room.effects == []
    room.join(second)
    assert {member_id: answer.error for member_id, answer in room.answers().items()} == dict.fromkeys(
        (first, second, third), "none"
    )
    assert room.group.generation == 2 and room.state() == State.COMPLETING
    with refused("illegal_generation"):
        room.sync(first, generation=1)
    room.group.heartbeat(second, None, 2, room.now)


def test_who_does_not_join_again_in_time_is_out() -> None:
    room, (first, second) = stable()
    room.join()
    room.join(first)
    room.now += 5
    room.tick(5.0)
    assert second not in room.group.members
    with refused("unknown_member_id"):
        room.group.heartbeat(second, None, 1, room.now)


def test_a_slow_member_that_still_sends_heartbeats_is_waited_for() -> None:
    room, (first, second) = stable()
    room.join(first)
    for _ in range(5):
        room.now += 5.0
        with refused("rebalance_in_progress"):
            room.group.heartbeat(second, None, 1, room.now)
        room.tick(0.0)
    assert room.state() == State.PREPARING
    room.tick(5.0)
    assert room.state() == State.COMPLETING and second not in room.group.members


def test_a_round_waits_half_an_hour_at_most() -> None:
    room = Room(members_max=3)
    request = Join("", None, "client", "host", SESSION_SECONDS_MAX, 2_147_483.0, "consumer", {"range": b""})
    for name in ("slow", "other"):
        room.effects += room.group.join(request, name, False, room.now)[1]
    assert room.group.phase_deadline == room.now + REBALANCE_SECONDS_MAX
    room.tick(REBALANCE_SECONDS_MAX)
    assert list(room.group.members) == ["other"]


def test_a_silent_member_is_removed() -> None:
    room, (first, _) = stable()
    room.now += 9.0
    room.group.heartbeat(first, None, 1, room.now)
    room.tick(1.0)
    assert list(room.group.members) == [first] and room.state() == State.PREPARING
    room.join(first)
    assert room.answers()[first].error == "none"


def test_leaving_starts_a_round_and_the_last_leaves_an_empty_group() -> None:
    room, (first, second) = stable()
    assert room.leave(first) == ["none"]
    room.join(second)
    answer = room.answers()[second]
    assert isinstance(answer, JoinAnswer) and answer.leader == second
    assert room.leave(second, second) == ["none", "unknown_member_id"]
    assert room.state() == State.EMPTY and room.group.is_unused
    assert room.leave(second) == ["unknown_member_id"]


def test_a_follower_that_joins_again_without_a_change_disturbs_nobody() -> None:
    room, (first, second) = stable()
    room.join(second)
    answer = room.answers()[second]
    assert isinstance(answer, JoinAnswer) and answer.generation == 1 and room.state() == State.STABLE
    room.join(second, protocols={"range": b"other topics", "sticky": b"s"})
    assert room.state() == State.PREPARING
    assert first in room.group.members


def test_the_leader_that_joins_again_starts_a_round() -> None:
    room, (first, _) = stable()
    room.join(first)
    assert room.state() == State.PREPARING


def test_a_round_is_cut_short_for_those_who_wait_for_their_assignment() -> None:
    room, (first, second) = stable()
    room.join(first)
    room.join(second)
    room.effects = []
    room.sync(second)
    room.join()
    assert room.answers()[second] == SyncAnswer(second, "rebalance_in_progress")


def test_who_never_asks_for_its_assignment_is_out() -> None:
    room, (first, second) = stable()
    room.join(first)
    room.join(second)
    room.effects = []
    room.sync(second)
    for _ in range(6):
        room.now += 5.0
        if first in room.group.members and room.state() == State.COMPLETING:
            room.group.heartbeat(first, None, 2, room.now)
        room.tick(0.0)
    assert first not in room.group.members
    assert room.answers()[second] == SyncAnswer(second, "rebalance_in_progress")


def test_new_members_are_given_an_id_first() -> None:
    room = Room()
    with pytest.raises(GroupError) as caught:
        room.join(needs_id=True)
    assert caught.value.error == "member_id_required"
    assert room.join(caught.value.member_id) == caught.value.member_id
    with refused("unknown_member_id"):
        room.join("invented")
    with pytest.raises(GroupError):
        room.join(needs_id=True)
    room.tick(20.0)
    assert room.group.pending == {}


def test_a_round_waits_for_those_who_were_given_an_id() -> None:
    room, (first,) = stable(1)
    with pytest.raises(GroupError) as caught:
        room.join(needs_id=True)
    room.join(first)
    assert room.state() == State.PREPARING
    assert room.leave(caught.value.member_id) == ["none"]
    assert room.state() == State.COMPLETING


def test_static_members_come_back_under_their_name() -> None:
    room = Room()
    first = room.join(instance="one")
    room.sync(first, given={first: b"p"})
    again = room.join(instance="one")
    assert again != first and list(room.group.members) == [again]
    for call in (
        lambda: room.group.heartbeat(first, "one", room.group.generation, room.now),
        lambda: room.join(first, instance="one"),
    ):
        with refused("fenced_instance_id"):
            call()
    assert room.leave((first, "one"), ("", "one")) == ["fenced_instance_id", "none"]
    assert room.group.is_unused


def test_a_static_member_that_is_restarted_gets_its_assignment_back_without_a_rebalance() -> None:
    room = Room(delay=1.0)
    ids = [room.join(instance=name) for name in ("one", "two")]
    room.tick(1.0)
    for member_id in reversed(ids):
        room.sync(member_id, given={each: each.encode() for each in ids})
    room.effects = []
    former_leader = room.group.leader
    for name, before in zip(("one", "two"), ids, strict=True):
        again = room.join(instance=name)
        # The leader is not told that it is the leader: it would assign again.
        expected = JoinAnswer(
            again, "none", 1, "consumer", "range", room.group.leader if name == "two" else former_leader
        )
        assert room.answers() == {again: expected}
        assert again != expected.leader
        room.sync(again)
        assert room.answers()[again] == SyncAnswer(again, "none", "consumer", "range", before.encode())
    assert (room.state(), room.group.generation) == (State.STABLE, 1)
    # One that has changed what it supports makes everybody join again.
    room.join(instance="two", protocols={"range": b"other"})
    assert room.state() == State.PREPARING


def test_a_waiting_static_member_is_told_of_its_successor() -> None:
    room = Room(delay=5.0)
    first = room.join(instance="one")
    room.join(instance="one")
    assert room.answers()[first] == JoinAnswer(first, "fenced_instance_id")
    room.tick(5.0)
    second = room.group.leader
    other = room.join(instance="two")
    room.join(second, instance="one")
    room.effects = []
    room.effects += room.group.sync(other, "two", room.group.generation, {}, room.now)
    room.join(instance="two")
    assert room.answers()[other] == SyncAnswer(other, "fenced_instance_id")


def test_a_static_member_that_is_late_keeps_its_place_for_its_session() -> None:
    room = Room()
    first, second = room.join(instance="one", session=100.0), room.join(session=100.0)
    room.join(first, instance="one", session=100.0)
    room.effects = []
    room.join(second, protocols={"range": b"new"}, session=100.0)
    room.tick(30.0)
    assert set(room.group.members) == {first, second} and room.group.leader == second


def test_only_what_all_support_is_chosen() -> None:
    room = Room(delay=1.0)
    room.join(protocols={"range": b"", "sticky": b""})
    room.join(protocols={"sticky": b"", "range": b""})
    room.join(protocols={"sticky": b""})
    room.tick(1.0)
    assert room.group.protocol == "sticky"
    for wrong in ({"range": b""}, {}):
        with refused("inconsistent_group_protocol"):
            room.join(protocols=wrong)
    with refused("inconsistent_group_protocol"):
        room.join(kind="connect")
    with refused("invalid_session_timeout"):
        room.join(session=0.0)


def test_a_full_group_refuses_more() -> None:
    room = Room(members_max=1)
    room.join()
    with refused("group_max_size_reached"):
        room.join()


def test_only_present_members_commit() -> None:
    room, (first, second) = stable()
    room.group.check_commit(first, None, 1, room.now)
    for member_id, generation, error in (
        (first, 0, "illegal_generation"),
        ("nobody", 1, "unknown_member_id"),
        ("", -1, "unknown_member_id"),
    ):
        with refused(error):
            room.group.check_commit(member_id, None, generation, room.now)
    room.join(first)
    room.group.check_commit(second, None, 1, room.now)
    room.join(second)
    with refused("rebalance_in_progress"):
        room.group.check_commit(first, None, 2, room.now)
    Room().group.check_commit("", None, -1, 0.0)


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    room = Room(delay=5.0)
    first = room.join()
    room.leave(first)
    assert room.answers()[first] == JoinAnswer(first, "unknown_member_id")
    room.tick(5.0)
    assert room.state() == State.EMPTY
    room, (first, second) = stable()
    room.join(first)
    room.join(second)
    room.sync(second)
    room.effects = []
    room.leave(second)
    assert room.answers()[second] == SyncAnswer(second, "unknown_member_id")
