"""Groups in which the server assigns (KIP-848): members reconcile, and no partition has two owners."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headrace.protocols.kafka.coordinator.assignment import Owned, Plan, assign
from headrace.protocols.kafka.coordinator.consumer_group import (
    JOINING,
    LEAVING,
    PAUSING,
    SESSION_SECONDS,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
)
from headrace.protocols.kafka.coordinator.requests import REBALANCE_SECONDS_MAX, GroupError

TOPICS = frozenset({"t"})


class Site:
    """A group with a clock, and what its members own: they do what they are told at their next heartbeat."""

    def __init__(self, partitions: int = 6) -> None:
        self.group = ConsumerGroup("g", 10)
        self.now = 0.0
        self.sizes: dict[str, tuple[int, int] | None] = {"t": (1, partitions)}
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, frozenset[Owned]] = {}

    def beat(self, name: str, instance: str | None = None, topics: frozenset[str] | None = None) -> ConsumerMember:
        epoch = self.epochs.get(name, JOINING)
        if epoch == JOINING:
            topics, self.owned[name] = topics or TOPICS, frozenset()
        request = ConsumerHeartbeat(name, epoch, instance, "c", "h", 30.0, topics, self.owned[name])
        self.group.heartbeat(request, self.now)
        self.renew()
        member, is_told = self.group.reconcile(name, request, self.now)
        self.epochs[name] = member.epoch
        if is_told:
            self.owned[name] = member.assigned
        self.check()
        return member

    def renew(self) -> None:
        """Give members their targets, as the coordinator does before it answers."""
        plan = self.group.plan({topic: self.sizes.get(topic) for topic in self.group.roster.topics})
        if plan is not None:
            self.group.apply(plan, assign(plan))

    def check(self) -> None:
        places = [place for owned in self.owned.values() for place in owned]
        assert len(places) == len(set(places)), "two members own a partition"

    def leave(self, name: str, epoch: int = LEAVING, instance: str | None = None) -> None:
        self.group.leave(name, instance, epoch, self.now)
        del self.owned[name], self.epochs[name]

    def settle(self) -> None:
        for _ in range(6):
            for name in list(self.owned):
                self.beat(name)
        assert self.group.state == "Stable"

    def counts(self) -> list[int]:
        return sorted(len(owned) for owned in self.owned.values())


def refused(error: str) -> pytest.RaisesExc[GroupError]:
    return pytest.RaisesExc(GroupError, match=f"^{error}$")


def test_partitions_move_only_when_their_owner_has_let_them_go() -> None:
    site = Site()
    assert len(site.beat("ann").assigned) == 6
    assert site.beat("bob").assigned == frozenset()
    assert site.group.state == "Reconciling"
    # Ann is told, then reports; only then does Bob get anything.
    assert len(site.beat("ann").assigned) == 3
    assert site.beat("bob").assigned == frozenset()
    site.beat("ann")
    assert len(site.beat("bob").assigned) == 3
    site.settle()
    site.leave("ann")
    site.settle()
    assert site.counts() == [6]


def test_topics_and_partitions_may_change() -> None:
    site = Site()
    for name in ("ann", "bob"):
        site.beat(name)
    site.settle()
    site.sizes = {"t": (1, 8), "u": (2, 1)}
    site.settle()
    assert site.counts() == [4, 4]
    site.beat("bob", topics=frozenset({"u"}))
    site.settle()
    assert site.owned["bob"] == {Owned(2, 0)} and len(site.owned["ann"]) == 8
    site.sizes = {"t": None, "u": None}
    site.settle()
    assert site.counts() == [0, 0]


def test_former_members_and_epochs_are_refused() -> None:
    site = Site()
    site.beat("ann")
    for partitions in (7, 8, 6):
        site.sizes = {"t": (1, partitions)}
        site.beat("bob")
        site.settle()
    epoch = site.epochs["bob"]
    for wrong in (epoch + 1, epoch - 2):
        site.epochs["bob"] = wrong
        with refused("fenced_member_epoch"):
            site.beat("bob")
    site.epochs["bob"] = epoch
    site.settle()
    site.group.check_commit("bob", site.epochs["bob"])
    with refused("stale_member_epoch"):
        site.group.check_commit("bob", 0)
    with refused("unknown_member_id"):
        site.group.check_commit("", -1)
    site.leave("bob")
    site.epochs["bob"], site.owned["bob"] = epoch, frozenset()
    with refused("unknown_member_id"):
        site.beat("bob")
    site.group.leave("ann", None, LEAVING, site.now)
    site.group.check_commit("", -1)


def test_the_silent_and_those_who_keep_what_they_should_not_are_removed() -> None:
    site = Site()
    site.beat("ann")
    site.beat("bob")
    site.beat("ann")
    assert site.group.next_deadline() == 30.0
    # Ann goes on, but does not give up anything.
    keeps = ConsumerHeartbeat("ann", site.epochs["ann"], None, "c", "h", 30.0, None, None)
    site.now = 29.0
    site.group.heartbeat(keeps, site.now)
    site.beat("bob")
    assert site.group.tick(30.0) == ["ann"]
    del site.owned["ann"], site.epochs["ann"]
    site.settle()
    assert site.counts() == [6]
    assert site.group.tick(29.0 + SESSION_SECONDS) == ["bob"]
    assert (site.group.state, site.group.next_deadline()) == ("Empty", None)


def test_what_a_member_does_not_say_again_is_as_before() -> None:
    site = Site()
    site.beat("ann")
    site.beat("bob")
    silent = ConsumerHeartbeat("ann", site.epochs["ann"], None, "c", "h", -0.001, None, None)
    assert site.group.heartbeat(silent, site.now).rebalance_seconds == 30.0
    weeks = ConsumerHeartbeat("ann", site.epochs["ann"], None, "c", "h", 2_000_000.0, None, None)
    assert site.group.heartbeat(weeks, site.now).rebalance_seconds == REBALANCE_SECONDS_MAX
    new = ConsumerHeartbeat("new", JOINING, None, "c", "h", -0.001, TOPICS, None)
    assert site.group.heartbeat(new, site.now).rebalance_seconds == SESSION_SECONDS


def test_a_static_member_that_pauses_finds_its_partitions_again() -> None:
    site = Site()
    site.beat("one", "ann")
    site.beat("two", "bob")
    site.settle()
    mine = site.owned["one"]
    with refused("unreleased_instance_id"):
        site.beat("three", "ann")
    del site.owned["three"]
    site.leave("one", PAUSING, "ann")
    epoch = site.group.epoch
    assert len(site.beat("two").assigned) == 3
    assert site.beat("four", "ann").assigned == mine
    assert site.group.epoch == epoch
    with refused("fenced_instance_id"):
        site.group.leave("one", "ann", LEAVING, site.now)


def test_members_are_bounded() -> None:
    site = Site()
    for number in range(10):
        site.beat(f"m{number}")
    with refused("group_max_size_reached"):
        site.beat("one too many")


def test_a_member_that_joins_again_owns_nothing() -> None:
    site = Site()
    site.beat("ann")
    site.beat("bob")
    site.beat("ann")
    site.epochs["ann"] = JOINING
    site.beat("ann")
    site.settle()
    assert site.counts() == [3, 3]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_members_do_every_partition_gets_one_owner(seed: int) -> None:
    chance = random.Random(seed)
    site = Site(chance.randrange(1, 12))
    for step in range(120):
        action = chance.random()
        if action < 0.1 and len(site.owned) < 6:
            site.beat(f"m{step}")
        elif action < 0.15 and len(site.owned) > 1:
            site.leave(chance.choice(sorted(site.owned)))
        elif action < 0.2:
            site.sizes = {"t": (1, chance.randrange(1, 12))}
        elif site.owned:
            site.beat(chance.choice(sorted(site.owned)))
    site.beat("last")
    site.settle()
    places = sorted(place for owned in site.owned.values() for place in owned)
    count = (site.sizes["t"] or (0, 0))[1]
    assert places == [Owned(1, partition) for partition in range(count)]
    assert site.counts()[-1] - site.counts()[0] <= 1


Targets = dict[str, frozenset[Owned]]


def assigned(members: dict[str, frozenset[str]], sizes: dict[str, tuple[int, int]], present: Targets) -> Targets:
    return assign(Plan(1, members, sizes, {member: present.get(member, frozenset()) for member in members}))


def test_assignments_are_even_and_move_as_little_as_can_be() -> None:
    members = {f"m{number}": TOPICS for number in range(4)}
    sizes = {"t": (1, 10)}
    before = assigned(members, sizes, {})
    assert sorted(map(len, before.values())) == [2, 2, 3, 3]
    after = assigned(members | {"m5": TOPICS}, sizes, before)
    assert sorted(map(len, after.values())) == [2, 2, 2, 2, 2]
    assert all(after[member] <= before[member] for member in members)
    assert assigned({}, sizes, {}) == {}
    for smaller, larger in pairwise([before, assigned(members, {"t": (1, 13)}, before)]):
        assert all(smaller[member] <= larger[member] for member in members)
