"""Groups: fixed and open, generations and sessions, offsets, lag."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from headrace.broker import Broker
from headrace.core.errors import (
    GroupNotFound,
    GroupSizeConflict,
    HeadraceError,
    InvalidInput,
    MemberNotFound,
    OffsetOutOfRange,
    PartitionNotFound,
    PartitionNotOwned,
    QuotaExceeded,
    StaleGeneration,
)
from headrace.core.groups.group import ReadFrom
from headrace.core.groups.notes import CommitNote
from headrace.core.limits import GROUP_CONSUMERS_MAX, MICROSECONDS
from headrace.core.reports.descriptions import PartitionProgress
from tests.broker.background import together
from tests.broker.clock import START_US, SettableClock
from tests.broker.messages import batch
from tests.broker.sites import Site


@pytest.fixture
def topic(broker: Broker, clock: SettableClock) -> str:
    """A topic of three partitions with ten, ten and no messages, one a second."""
    broker.create_topic("orders", partitions=3)
    for number in range(10):
        clock.step(1)
        broker.publish("orders", batch(b"%d" % number, b"%d" % number, partition=[0, 1]))
    return "orders"


def positions(broker: Broker, topic: str, group: str) -> list[int]:
    return [progress.position for progress in broker.describe_group(topic, group).progress.values()]


class Passed(list[int]):
    """Partitions that are passed through as a whole: to look for each of them costs the square of their number."""

    def __contains__(self, partition: object) -> bool:
        raise AssertionError(f"partition {partition} is looked for alone")


def test_a_heartbeat_looks_at_what_is_held_once(broker: Broker, topic: str) -> None:
    joined = broker.join_group(topic, "readers", "ann")
    present = broker.heartbeat(topic, "readers", "ann", joined.generation, Passed([0, 2]))
    assert (present.partitions, present.positions) == ([0, 1, 2], {1: 0})


# What clients of Kafka say


def test_what_is_said_with_a_commit_ends_with_the_next_one(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers")
    said = {0: CommitNote(50, 3, b"beyond"), 1: CommitNote(4, -1, b"within")}
    broker.reader(topic).commit_notes("readers", {0: 10, 1: 4}, said, is_back=False)
    assert broker.reader(topic).noted("readers") == said
    assert broker.committed(topic, "readers") == {0: 10, 1: 4}
    # Of the same offset something else may be said, by clients that say anything.
    broker.reader(topic).commit_notes("readers", {1: 4}, {1: CommitNote(4, 1, b"other")}, is_back=False)
    broker.commit_offsets(topic, "readers", {1: 4})
    assert broker.reader(topic).noted("readers")[1] == CommitNote(4, 1, b"other")
    broker.commit_offsets(topic, "readers", {1: 5})
    assert broker.reader(topic).noted("readers")[1] == CommitNote(5)
    generation = broker.describe_group(topic, "readers").generation
    broker.reader(topic).commit_notes("readers", {0: 0}, {0: CommitNote(-2)}, is_back=True)
    assert (broker.reader(topic).noted("readers")[0], positions(broker, topic, "readers")) == (
        CommitNote(-2),
        [0, 5, 0],
    )
    assert broker.describe_group(topic, "readers").generation == generation + 1
    broker.seek(topic, "readers", {0: 3})
    assert broker.reader(topic).noted("readers") == {0: CommitNote(3), 1: CommitNote(5)}
    with pytest.raises(GroupNotFound):
        broker.reader(topic).noted("nobody")


# Fixed groups


def test_a_fixed_group_is_assigned_by_modulo(broker: Broker) -> None:
    broker.create_topic("orders", partitions=6)
    described = broker.register_group("orders", "readers", consumers=3)
    assert described.members == {"0": [0, 3], "1": [1, 4], "2": [2, 5]}
    assert (described.topic, described.name, described.consumers, described.generation) == ("orders", "readers", 3, 0)
    assert [progress.consumer for progress in described.progress.values()] == ["0", "1", "2", "0", "1", "2"]


def test_registering_again_returns_the_group_as_it_is(broker: Broker, topic: str) -> None:
    first = broker.register_group(topic, "readers", consumers=2, important=True)
    broker.commit_offsets(topic, "readers", {0: 4}, member=0)
    again = broker.register_group(topic, "readers", consumers=2, read_from="latest")
    assert (again.generation, again.important, again.read_from) == (0, True, "earliest")
    assert broker.register_group(topic, "readers").consumers == 2
    assert again.members == first.members
    assert broker.committed(topic, "readers") == {0: 4}


def test_another_size_takes_effect_at_once_and_keeps_the_offsets(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=2)
    broker.commit_offsets(topic, "readers", {1: 3}, member="1", generation=0)
    resized = broker.register_group(topic, "readers", consumers=3)
    assert (resized.generation, resized.members) == (1, {"0": [0], "1": [1], "2": [2]})
    assert resized.progress[1].committed == 3
    with pytest.raises(StaleGeneration):
        broker.commit_offsets(topic, "readers", {1: 4}, member="1", generation=0)
    broker.commit_offsets(topic, "readers", {1: 4}, member="1", generation=1)
    assert broker.register_group(topic, "readers", consumers=1).members == {"0": [0, 1, 2]}


def test_a_consumer_commits_only_to_its_own_partitions(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=2)
    with pytest.raises(PartitionNotOwned) as caught:
        broker.commit_offsets(topic, "readers", {0: 1, 1: 1}, member=0)
    assert (caught.value.group, caught.value.member, caught.value.partition) == ("readers", "0", 1)
    with pytest.raises(MemberNotFound):
        broker.commit_offsets(topic, "readers", {0: 1}, member=2)
    assert broker.committed(topic, "readers") == {}


def test_nobody_joins_a_fixed_group(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=2)
    with pytest.raises(GroupSizeConflict, match="fixed size of 2"):
        broker.join_group(topic, "readers", "ann")


def test_the_largest_group_can_be_described(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    described = broker.register_group("orders", "combiner", consumers=GROUP_CONSUMERS_MAX)
    assert len(described.members) == GROUP_CONSUMERS_MAX
    assert sum(map(len, described.members.values())) == 4


# Open groups


def test_a_partition_is_given_to_a_newcomer_once_its_owner_acknowledged(broker: Broker, topic: str) -> None:
    bob = broker.join_group(topic, "readers", "bob")
    assert (bob.group, bob.member, bob.generation, bob.partitions) == ("readers", "bob", 1, [0, 1, 2])
    ann = broker.join_group(topic, "readers", "ann")
    assert (ann.generation, ann.partitions) == (2, [])
    bob = broker.heartbeat(topic, "readers", "bob")
    assert (bob.partitions, bob.revoking) == ([0, 1], [2])
    assert broker.describe_group(topic, "readers").members == {"ann": [], "bob": [0, 1, 2]}
    assert broker.heartbeat(topic, "readers", "ann").partitions == []
    bob = broker.heartbeat(topic, "readers", "bob", bob.generation, bob.partitions)
    assert (bob.generation, bob.partitions, bob.revoking) == (3, [0, 1], [])
    assert broker.heartbeat(topic, "readers", "ann").partitions == [2]
    assert broker.describe_group(topic, "readers").members == {"ann": [2], "bob": [0, 1]}


def test_an_acknowledgement_is_checked(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    with pytest.raises(InvalidInput, match="needs generation and partitions"):
        broker.heartbeat(topic, "readers", "ann", partitions=[0])
    with pytest.raises(InvalidInput, match="needs generation and partitions"):
        broker.heartbeat(topic, "readers", "ann", 1)
    with pytest.raises(InvalidInput, match="generation"):
        broker.heartbeat(topic, "readers", "ann", -1, [0])
    with pytest.raises(InvalidInput, match="partitions"):
        broker.heartbeat(topic, "readers", "ann", 1, ["0"])  # type: ignore[list-item]


def test_a_member_that_does_not_acknowledge_gives_up_at_once(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "bob", max_poll_seconds=0)
    assert broker.join_group(topic, "readers", "ann", max_poll_seconds=0).partitions == [2]
    with pytest.raises(PartitionNotOwned):
        broker.commit_offsets(topic, "readers", {2: 0}, "bob", 1)


def test_what_is_not_let_go_in_time_is_taken(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.join_group(topic, "readers", "bob", session_timeout_seconds=600, max_poll_seconds=60)
    broker.join_group(topic, "readers", "ann", session_timeout_seconds=600)
    clock.step(59)
    broker.maintenance.run_all()
    assert broker.describe_group(topic, "readers").members == {"ann": [], "bob": [0, 1, 2]}
    clock.step(1)
    broker.maintenance.run_all()
    assert broker.describe_group(topic, "readers").members == {"ann": [2], "bob": [0, 1]}
    assert broker.counters["members_expired"] == 0
    assert broker.commit_offsets(topic, "readers", {0: 1, 2: 0}, "bob", 1, partial=True).refused == [2]
    assert broker.committed(topic, "readers") == {0: 1}


def test_joining_makes_the_group_from_the_beginning(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    described = broker.describe_group(topic, "readers")
    assert (described.consumers, described.read_from, described.important) == (None, "earliest", False)
    assert positions(broker, topic, "readers") == [0, 0, 0]


def test_a_member_that_is_refused_makes_no_group(broker: Broker, topic: str) -> None:
    with pytest.raises(InvalidInput, match="session_timeout_seconds"):
        broker.join_group(topic, "readers", "ann", session_timeout_seconds=0)
    assert broker.list_groups(topic) == []


def test_a_member_that_leaves_gives_its_partitions_up_at_once(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    broker.join_group(topic, "readers", "bob")
    broker.leave_group(topic, "readers", "ann")
    bob = broker.heartbeat(topic, "readers", "bob")
    assert (bob.generation, bob.partitions) == (3, [0, 1, 2])
    with pytest.raises(MemberNotFound, match="join again"):
        broker.heartbeat(topic, "readers", "ann")
    with pytest.raises(MemberNotFound):
        broker.leave_group(topic, "readers", "ann")


def test_a_member_that_dies_gives_its_partitions_up_after_its_timeout(
    broker: Broker, topic: str, clock: SettableClock
) -> None:
    broker.join_group(topic, "readers", "ann", session_timeout_seconds=10)
    broker.join_group(topic, "readers", "bob", session_timeout_seconds=60)
    clock.step(9)
    broker.maintenance.run_all()
    assert broker.describe_group(topic, "readers").members == {"ann": [0, 1, 2], "bob": []}
    clock.step(1)
    broker.maintenance.run_all()
    assert broker.describe_group(topic, "readers").members == {"bob": [0, 1, 2]}
    assert broker.counters["members_expired"] == 1
    assert broker.heartbeat(topic, "readers", "bob").generation == 3


def test_heartbeats_keep_a_member_in(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.join_group(topic, "readers", "ann", session_timeout_seconds=10)
    for _ in range(5):
        clock.step(9)
        broker.maintenance.run_all()
        assert broker.heartbeat(topic, "readers", "ann").generation == 1
    assert broker.counters["members_expired"] == 0


def test_joining_again_renews_without_a_generation(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.join_group(topic, "readers", "ann", session_timeout_seconds=10)
    clock.step(9)
    assert broker.join_group(topic, "readers", "ann", session_timeout_seconds=10).generation == 1
    clock.step(9)
    assert broker.heartbeat(topic, "readers", "ann").generation == 1


def test_a_member_commits_what_it_still_owns_in_any_generation(broker: Broker, topic: str) -> None:
    ann = broker.join_group(topic, "readers", "ann")
    broker.commit_offsets(topic, "readers", {0: 2}, "ann", ann.generation)
    broker.join_group(topic, "readers", "bob")
    assert broker.commit_offsets(topic, "readers", {0: 3, 2: 0}, "ann", ann.generation).refused == []
    broker.heartbeat(topic, "readers", "ann", 2, [0, 1])
    with pytest.raises(PartitionNotOwned):
        broker.commit_offsets(topic, "readers", {0: 4, 2: 0}, "ann", ann.generation)
    assert broker.committed(topic, "readers") == {0: 3, 2: 0}
    assert broker.commit_offsets(topic, "readers", {0: 4, 2: 0}, "ann", ann.generation, partial=True).refused == [2]
    assert broker.committed(topic, "readers") == {0: 4, 2: 0}
    broker.leave_group(topic, "readers", "bob")
    with pytest.raises(StaleGeneration):
        broker.commit_offsets(topic, "readers", {2: 0}, "ann", ann.generation)
    assert broker.commit_offsets(topic, "readers", {0: 5}, "eve", partial=True).refused == [0]


def test_a_dead_member_cannot_commit_even_before_upkeep_noticed(
    broker: Broker, topic: str, clock: SettableClock
) -> None:
    ann = broker.join_group(topic, "readers", "ann", session_timeout_seconds=10)
    clock.step(10)
    with pytest.raises(MemberNotFound):
        broker.commit_offsets(topic, "readers", {0: 1}, "ann", ann.generation)


def test_while_members_are_in_it_only_they_commit(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    with pytest.raises(GroupSizeConflict, match="commit as one of them"):
        broker.commit_offsets(topic, "readers", {0: 1})
    broker.leave_group(topic, "readers", "ann")
    broker.commit_offsets(topic, "readers", {0: 1})


def test_an_open_group_gets_a_fixed_size_only_once_it_is_empty(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    with pytest.raises(GroupSizeConflict):
        broker.register_group(topic, "readers", consumers=2)
    broker.leave_group(topic, "readers", "ann")
    assert broker.register_group(topic, "readers", consumers=2).members == {"0": [0, 2], "1": [1]}


def test_names_in_composed_or_decomposed_letters_are_the_same(broker: Broker, topic: str) -> None:
    composed, decomposed = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    assert broker.register_group(topic, decomposed).name == composed
    joined = broker.join_group(topic, decomposed, decomposed)
    assert broker.heartbeat(topic, composed, decomposed) == joined
    broker.commit_offsets(topic, decomposed, {0: 1}, decomposed, joined.generation)
    assert broker.committed(topic, decomposed) == {0: 1}
    broker.leave_group(topic, decomposed, decomposed)
    broker.seek(topic, decomposed, {0: 0})
    broker.delete_group(topic, decomposed)
    assert broker.list_groups(topic) == []


def test_names_of_groups_keep_their_case(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers")
    broker.register_group(topic, "Readers")
    assert broker.list_groups(topic) == ["Readers", "readers"]


# Offsets


def test_commits_are_kept_and_never_move_back(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers")
    assert broker.committed(topic, "readers") == {}
    broker.commit_offsets(topic, "readers", {0: 5, 1: 2})
    broker.commit_offsets(topic, "readers", {0: 3, 1: 10})
    broker.commit_offsets(topic, "readers", {})
    assert broker.committed(topic, "readers") == {0: 5, 1: 10}
    assert positions(broker, topic, "readers") == [5, 10, 0]


def test_numbers_of_numpy_can_be_committed(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers")
    broker.commit_offsets(topic, "readers", {np.int32(0): np.int64(5)})  # type: ignore[dict-item]
    assert broker.committed(topic, "readers") == {0: 5}
    broker.seek(topic, "readers", {np.int64(0): np.uint8(2)})  # type: ignore[dict-item]
    assert positions(broker, topic, "readers") == [2, 0, 0]


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({0: 11}, OffsetOutOfRange),
        ({1: -1}, OffsetOutOfRange),
        ({3: 0}, PartitionNotFound),
        ({-1: 0}, PartitionNotFound),
    ],
)
def test_offsets_that_are_not_there_are_refused_whole(
    broker: Broker, topic: str, offsets: dict[int, int], error: type[HeadraceError]
) -> None:
    broker.register_group(topic, "readers")
    for move in (broker.commit_offsets, broker.seek):
        with pytest.raises(error):
            move(topic, "readers", {0: 1, **offsets})
    assert broker.committed(topic, "readers") == {}
    assert broker.describe_group(topic, "readers").generation == 0


def test_seeking_moves_a_group_anywhere_and_ends_its_generation(broker: Broker, topic: str) -> None:
    ann = broker.join_group(topic, "readers", "ann")
    broker.commit_offsets(topic, "readers", {0: 8}, "ann", ann.generation)
    broker.seek(topic, "readers", {0: 2, 1: 10})
    assert broker.committed(topic, "readers") == {0: 2, 1: 10}
    with pytest.raises(StaleGeneration):
        broker.commit_offsets(topic, "readers", {0: 9}, "ann", ann.generation)
    assert broker.heartbeat(topic, "readers", "ann").generation == ann.generation + 1


def test_offsets_of_a_group_without_members_are_forgotten(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "g")
    broker.commit_offsets(topic, "g", {0: 1, 1: 1})
    broker.join_group(topic, "g", "member")
    with pytest.raises(GroupSizeConflict, match="stop them first"):
        broker.forget_offsets(topic, "g", [0])
    broker.leave_group(topic, "g", "member")
    broker.forget_offsets(topic, "g", [0])
    assert broker.committed(topic, "g") == {1: 1}
    with pytest.raises(GroupNotFound):
        broker.forget_offsets(topic, "h", [0])


def test_a_seek_is_remembered_over_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", b"b", b"c"))
    before = broker.join_group("orders", "readers", "ann")
    broker.seek("orders", "readers", {0: 1})
    broker = durable_site.reopen(broker)
    after = broker.join_group("orders", "readers", "ann")
    assert after.generation >= after.seek_generation > before.generation
    assert broker.describe_group("orders", "readers").seek_generation == after.seek_generation
    with pytest.raises(StaleGeneration):
        broker.commit_offsets("orders", "readers", {0: 3}, "ann", before.generation)
    assert broker.committed("orders", "readers") == {0: 1}


@pytest.mark.parametrize(
    ("read_from", "expected"),
    [
        ("earliest", [0, 0, 0]),
        ("latest", [10, 10, 0]),
        (0, [0, 0, 0]),
        (START_US + 4 * MICROSECONDS, [3, 3, 0]),
        (START_US + 4 * MICROSECONDS + 1, [4, 4, 0]),
        (2**63 - 1, [10, 10, 0]),
    ],
)
def test_a_new_group_starts_at_the_given_position(
    broker: Broker, topic: str, read_from: ReadFrom, expected: list[int]
) -> None:
    described = broker.register_group(topic, "readers", read_from=read_from)
    assert [progress.position for progress in described.progress.values()] == expected
    assert described.read_from == read_from


def test_a_group_reads_partitions_that_come_later_from_their_beginning(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", read_from="latest")
    broker.alter_topic(topic, partitions=4)
    broker.publish(topic, batch(b"a", partition=3))
    assert positions(broker, topic, "readers") == [10, 10, 0, 0]


def test_the_topics_of_a_group_are_found_by_its_name(broker: Broker, topic: str) -> None:
    broker.create_topic("Returns")
    for name, group in (("Returns", "billing"), (topic, "billing"), (topic, "caf\N{LATIN SMALL LETTER E WITH ACUTE}")):
        broker.register_group(name, group)
    assert broker.topics_of_groups(["billing", "missing"]) == {"billing": [topic, "Returns"]}
    assert broker.topics_of_groups() == {
        "billing": [topic, "Returns"],
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}": [topic],
    }
    assert broker.topics_of_groups([]) == {}


def test_native_members_are_refused_where_a_protocol_has_members_of_its_own(broker: Broker, topic: str) -> None:
    broker.create_topic("returns")
    outside = broker.claims.outside
    outside.hold("billing", ["Orders"], "Kafka")
    outside.hold("billing", ["returns"], "Kafka")
    for name in (topic, "returns"):
        with pytest.raises(GroupSizeConflict, match="Kafka members"):
            broker.join_group(name, "billing", "ann")
    outside.release("billing", ["RETURNS", "another"])
    broker.join_group("returns", "billing", "ann")
    with pytest.raises(GroupSizeConflict):
        broker.join_group(topic, "billing", "ann")
    outside.release("billing", ["orders"])
    broker.join_group(topic, "billing", "ann")
    outside.release("nobody", ["orders"])


def test_groups_do_not_disturb_each_other(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "a", consumers=2)
    broker.join_group(topic, "b", "ann")
    broker.commit_offsets(topic, "a", {0: 4}, member=0, generation=0)
    broker.seek(topic, "b", {0: 1})
    broker.join_group(topic, "b", "bob")
    assert positions(broker, topic, "a") == [4, 0, 0]
    assert positions(broker, topic, "b") == [1, 0, 0]
    assert broker.describe_group(topic, "a").generation == 0
    broker.create_topic("others", partitions=3)
    broker.register_group("others", "a")
    assert broker.committed("others", "a") == {}
    broker.delete_group(topic, "b")
    assert positions(broker, topic, "a") == [4, 0, 0]


def test_a_deleted_group_is_forgotten(broker: Broker, topic: str) -> None:
    broker.join_group(topic, "readers", "ann")
    broker.commit_offsets(topic, "readers", {0: 4}, "ann")
    broker.delete_group(topic, "readers")
    assert broker.list_groups(topic) == []
    uses: list[Callable[[], object]] = [
        partial(broker.describe_group, topic, "readers"),
        partial(broker.committed, topic, "readers"),
        partial(broker.commit_offsets, topic, "readers", {0: 1}),
        partial(broker.seek, topic, "readers", {0: 1}),
        partial(broker.heartbeat, topic, "readers", "ann"),
        partial(broker.leave_group, topic, "readers", "ann"),
        partial(broker.delete_group, topic, "readers"),
        partial(broker.reader(topic).member_place, "readers", "0"),
    ]
    for use in uses:
        with pytest.raises(GroupNotFound, match="'readers' of topic 'orders' does not exist"):
            use()
    assert broker.register_group(topic, "readers").progress[0].committed is None


# Lag


def test_lag_is_reported_in_messages_and_in_seconds(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.register_group(topic, "readers", consumers=1)
    broker.commit_offsets(topic, "readers", {0: 10, 1: 4})
    clock.step(5)
    described = broker.describe_group(topic, "readers")
    # The message with offset 4 came in the fifth second, and it is the fifteenth now.
    assert described.progress == {
        0: PartitionProgress(10, 10, 10, 0, 0.0, "0"),
        1: PartitionProgress(4, 4, 10, 6, 10.0, "0"),
        2: PartitionProgress(None, 0, 0, 0, 0.0, "0"),
    }
    assert (described.lag_messages, described.lag_seconds) == (6, 10.0)


def test_a_clock_that_went_back_gives_no_negative_lag(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.register_group(topic, "readers")
    clock.step(-1000)
    assert broker.describe_group(topic, "readers").lag_seconds == 0.0
    assert broker.describe_group(topic, "readers").progress[0].consumer is None


def test_what_retention_dropped_is_no_lag(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.register_group(topic, "readers")
    broker.alter_topic(topic, retention_seconds=3)
    clock.step(100)
    broker.publish(topic, batch(b"new", partition=0))
    broker.maintenance.run_all()
    start, end = broker.offsets(topic)[0]
    assert 0 < start < end == 11
    progress = broker.describe_group(topic, "readers").progress[0]
    assert (progress.committed, progress.position, progress.lag_messages) == (None, start, end - start)


# Important groups hold retention


def test_retention_waits_for_an_important_group_and_for_no_other(
    broker: Broker, topic: str, clock: SettableClock
) -> None:
    broker.alter_topic(topic, retention_seconds=1)
    broker.register_group(topic, "audit", important=True)
    broker.register_group(topic, "casual")
    clock.step(100)
    broker.maintenance.run_all()
    assert broker.offsets(topic)[0] == (0, 10)
    broker.commit_offsets(topic, "audit", {0: 10, 1: 5})
    broker.maintenance.run_all()
    held = broker.offsets(topic)[1][0]
    assert 0 < held <= 5
    broker.commit_offsets(topic, "audit", {1: 10})
    broker.maintenance.run_all()
    assert broker.offsets(topic) == {0: (10, 10), 1: (10, 10), 2: (0, 0)}


def test_a_group_that_is_important_no_more_holds_nothing(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.alter_topic(topic, retention_seconds=1)
    broker.register_group(topic, "audit", important=True)
    clock.step(100)
    broker.maintenance.run_all()
    assert not broker.register_group(topic, "audit", important=False).important
    broker.maintenance.run_all()
    assert broker.offsets(topic)[0] == (10, 10)


def test_an_important_group_that_moved_back_holds_again(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.register_group(topic, "audit", important=True, read_from="latest")
    broker.seek(topic, "audit", {0: 0})
    broker.alter_topic(topic, retention_seconds=1)
    clock.step(100)
    broker.maintenance.run_all()
    assert broker.offsets(topic)[0] == (0, 10)
    broker.delete_group(topic, "audit")
    broker.maintenance.run_all()
    assert broker.offsets(topic)[0] == (10, 10)


# Restarts


def test_groups_offsets_and_members_survive_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(b"a", b"b", b"c"))
    broker.register_group("orders", "fixed", consumers=2, important=True, read_from=START_US)
    broker.commit_offsets("orders", "fixed", {0: 2}, member=0)
    ann = broker.join_group("orders", "open", "ann")
    broker.commit_offsets("orders", "open", {1: 1}, "ann", ann.generation)
    before = broker.describe_group("orders", "fixed")
    broker = durable_site.reopen(broker)
    assert broker.list_groups("orders") == ["fixed", "open"]
    assert broker.describe_group("orders", "fixed") == before
    assert broker.committed("orders", "open") == {1: 1}
    broker.commit_offsets("orders", "open", {1: 1}, "ann", ann.generation)
    assert broker.heartbeat("orders", "open", "ann") == broker.join_group("orders", "open", "ann") == ann


def test_offsets_survive_a_crash(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(b"a", b"b", b"c"))
    broker.register_group("orders", "readers")
    broker.commit_offsets("orders", "readers", {0: 2, 1: 1})
    after = durable_site.crashed(tmp_path / "after")
    assert after.open().committed("orders", "readers") == {0: 2, 1: 1}
    after.close()


# Threads


def test_members_that_come_and_go_in_threads_leave_a_group_in_order(broker: Broker, topic: str) -> None:
    def live(name: str) -> None:
        for _ in range(15):
            membership = broker.join_group(topic, "readers", name)
            assert broker.heartbeat(topic, "readers", name).generation >= membership.generation
            broker.leave_group(topic, "readers", name)

    together([partial(live, f"member-{number}") for number in range(6)])
    described = broker.describe_group(topic, "readers")
    assert described.members == {}
    assert described.generation == 2 * 15 * 6


def test_commits_of_threads_keep_the_highest(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers")

    def commit(start: int) -> None:
        for offset in range(start, 11, 3):
            broker.commit_offsets(topic, "readers", {0: offset, 1: 10 - offset})

    together([partial(commit, start) for start in range(3)])
    assert broker.committed(topic, "readers") == {0: 10, 1: 10}


def test_a_topic_has_a_bounded_number_of_groups(site: Site) -> None:
    broker = site.open(groups_per_topic_max=2)
    broker.create_topic("orders")
    broker.register_group("orders", "a")
    broker.join_group("orders", "b", "one")
    for make in (partial(broker.register_group, "orders", "c"), partial(broker.join_group, "orders", "c", "one")):
        with pytest.raises(QuotaExceeded, match="there are 2 groups of topic 'orders'"):
            make()
    assert broker.list_groups("orders") == ["a", "b"]
    # Those that exist go on.
    broker.register_group("orders", "a", important=True)
    broker.join_group("orders", "b", "two")
    broker.delete_group("orders", "a")
    broker.register_group("orders", "c")


def test_a_group_has_a_bounded_number_of_members(site: Site) -> None:
    broker = site.open(members_per_group_max=2)
    broker.create_topic("orders", partitions=4)
    for member in ("one", "two"):
        broker.join_group("orders", "a", member)
    with pytest.raises(QuotaExceeded, match="there are 2 members in group 'a'"):
        broker.join_group("orders", "a", "three")
    assert broker.join_group("orders", "a", "two").generation == 2
    broker.leave_group("orders", "a", "one")
    assert list(broker.describe_group("orders", "a").members) == ["two"]
    broker.join_group("orders", "a", "three")
