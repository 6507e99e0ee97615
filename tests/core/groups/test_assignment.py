"""Who reads which partition: the table of cursus, and that nobody is left out or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.groups.assignment import deal, owner_of, partitions_of, shares


@pytest.mark.parametrize(
    ("partition", "consumers", "target"), [(0, 3, 0), (1, 3, 1), (2, 3, 2), (3, 3, 0), (4, 3, 1), (5, 3, 2)]
)
def test_the_table_of_seed_002(partition: int, consumers: int, target: int) -> None:
    assert owner_of(partition, consumers) == target
    assert partition in partitions_of(target, consumers, partitions=6)


def test_consumers_beyond_the_partitions_have_nothing_to_read() -> None:
    assert [list(partitions_of(consumer, 4, partitions=2)) for consumer in range(4)] == [[0], [1], [], []]


@given(consumers=st.integers(1, 50), partitions=st.integers(1, 200))
def test_every_partition_has_exactly_one_reader_and_the_load_is_even(consumers: int, partitions: int) -> None:
    shares = [list(partitions_of(consumer, consumers, partitions)) for consumer in range(consumers)]
    assert sorted(partition for share in shares for partition in share) == list(range(partitions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for consumer, share in enumerate(shares):
        assert all(owner_of(partition, consumers) == consumer for partition in share)


@given(consumers=st.integers(1, 50), partitions=st.integers(1, 100), added=st.integers(0, 100))
def test_added_partitions_take_nothing_away(consumers: int, partitions: int, added: int) -> None:
    for consumer in range(consumers):
        before = list(partitions_of(consumer, consumers, partitions))
        assert list(partitions_of(consumer, consumers, partitions + added))[: len(before)] == before


def test_shares_are_even_and_the_larger_ones_go_to_those_who_own_most() -> None:
    assert shares({"ann": 0, "bob": 3, "cem": 2}, 5) == {"bob": 2, "cem": 2, "ann": 1}
    assert shares({"ann": 0, "bob": 0}, 3) == {"ann": 2, "bob": 1}


def test_free_partitions_go_to_those_with_the_fewest() -> None:
    assert deal([7, 3, 5], {"ann": 2, "bob": 0, "cem": 1}, {"ann": 2, "bob": 2, "cem": 2}) == {
        3: "bob",
        5: "bob",
        7: "cem",
    }


@given(members=st.integers(1, 9), partitions=st.integers(1, 12), topics=st.integers(1, 20))
def test_the_partitions_of_all_topics_of_the_members_are_divided_evenly(
    members: int, partitions: int, topics: int
) -> None:
    owned = {f"member-{number}": number for number in range(members)}
    totals = dict.fromkeys(owned, 0)
    for topic_index in range(topics):
        share = shares(owned, partitions, topic_index)
        assert sum(share.values()) == partitions and max(share.values()) - min(share.values()) <= 1
        for member, count in share.items():
            totals[member] += count
    assert max(totals.values()) - min(totals.values()) <= 1
