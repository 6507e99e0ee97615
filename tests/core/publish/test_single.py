"""One row planned without columns: the same commit, receipts and state as whole columns give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.core.hashes.columns import fnv1a64
from headrace.core.limits import LINK_IDLE_SECONDS, MICROSECONDS
from headrace.core.lists import binaries
from headrace.core.messages import accept
from headrace.core.publish.plan import plan, plan_columns
from headrace.core.publish.receipts import DUPLICATE_BY_SOURCE
from headrace.core.publish.single import place_of
from headrace.core.publish.sources import SourceTable, SourceUpdates
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.topics.settings import TopicSettings
from tests.core.builders import NOW_US, Row, batch_of, new_state, row_strategy
from tests.core.publish.test_plan import assert_same_state

PARTITIONS = 3
TOPICS = [
    TopicSettings.make(deduplication=mode, key_hash=key_hash)
    for mode in ("producer", "off", "payload")
    for key_hash in ("fnv1a", "murmur2")
]
LATER = st.sampled_from([0, 1, LINK_IDLE_SECONDS * MICROSECONDS - 1, LINK_IDLE_SECONDS * MICROSECONDS])
LONG_KEY = Row(b"v", b"k" * 300)
AGAIN = Row(b"v", None, "p", None, 3)
TAKEN_AGAIN = [(AGAIN, 0), (AGAIN, 0), (Row(b"w", None, "p", None, 3), 0)]


class ColumnTable(SourceTable):
    """A table that changes by whole columns only."""

    def apply(self, updates: SourceUpdates, now_us: int) -> None:
        if len(updates.sources) == 1:
            # A source that is not there twice in the same update is changed as one of two would be.
            twice = SourceUpdates(
                [*updates.sources] * 2, updates.seqno.repeat(2), updates.link.repeat(2), updates.digest.repeat(2)
            )
            super().apply(twice, now_us)
        else:
            super().apply(updates, now_us)


def by_columns(state: TopicState, row: Row, topic: TopicSettings, now_us: int, keys: tuple[CommitKey, ...]) -> Commit:
    """What whole columns make of a row, which is taken in."""
    batch = accept(batch_of([row]), topic, PARTITIONS)
    time_us = max(now_us, state.last_time_us + 1)
    commit, receipts = plan_columns(batch, state, topic, now_us, time_us, keys)
    assert_same_receipts(receipts, plan(batch, state, topic, now_us, keys)[1])
    state.apply(commit)
    return commit


def assert_same_receipts(one: object, other: object) -> None:
    for name in ("partition", "offset", "outcome"):
        mine, its = getattr(one, name), getattr(other, name)
        assert (mine.dtype, mine.tolist()) == (its.dtype, its.tolist())


def assert_same_commit(one: Commit, other: Commit) -> None:
    assert replace(one, rows=other.rows, directory=other.directory, sources=other.sources, payloads=other.payloads) == (
        other
    )
    assert one.rows.equals(other.rows)
    assert one.rows.serialize() == other.rows.serialize()
    assert one.rows.schema.equals(other.rows.schema)
    for name in ("partition", "first_offset", "rows"):
        mine, its = getattr(one.directory, name), getattr(other.directory, name)
        assert (mine.dtype, mine.tolist()) == (its.dtype, its.tolist())
    assert list(one.sources.sources) == list(other.sources.sources)
    for name in ("seqno", "link", "digest"):
        assert getattr(one.sources, name).tolist() == getattr(other.sources, name).tolist()
    assert one.payloads.first.tolist() == other.payloads.first.tolist()


@given(st.sampled_from(TOPICS), st.lists(st.tuples(row_strategy(PARTITIONS), LATER), min_size=1, max_size=6))
@example(TOPICS[0], [(LONG_KEY, 0), *TAKEN_AGAIN])
@example(TOPICS[1], [(LONG_KEY, 0), *TAKEN_AGAIN])
@settings(deadline=None, max_examples=300)
def test_one_row_gives_what_whole_columns_give(topic: TopicSettings, steps: list[tuple[Row, int]]) -> None:
    quick, slow = new_state(PARTITIONS), new_state(PARTITIONS)
    slow.sources = ColumnTable()
    now_us = NOW_US
    for number, (row, later_us) in enumerate(steps):
        now_us += later_us
        keys = (CommitKey("writer", number),)
        batch = accept(batch_of([row]), topic, PARTITIONS)
        before = quick.copy()
        commit, _ = plan(batch, quick, topic, now_us, keys)
        assert_same_state(quick, before)
        assert_same_commit(commit, by_columns(slow, row, topic, now_us, keys))
        quick.apply(commit)
        assert_same_state(quick, slow)


@pytest.mark.parametrize("topic", TOPICS[:2], ids=["fnv1a", "murmur2"])
def test_what_is_rare_is_left_to_whole_columns(topic: TopicSettings) -> None:
    state = new_state(PARTITIONS)
    assert place_of(accept(batch_of([LONG_KEY]), topic, PARTITIONS), state, topic, NOW_US) is None
    row = accept(batch_of([TAKEN_AGAIN[0][0]]), topic, PARTITIONS)
    assert place_of(row, state, topic, NOW_US) is not None
    state.apply(plan(row, state, topic, NOW_US)[0])
    assert place_of(row, state, topic, NOW_US) is None
    assert plan(row, state, topic, NOW_US)[1].outcome.tolist() == [DUPLICATE_BY_SOURCE]


def test_a_short_key_goes_where_its_hash_says() -> None:
    state = new_state(PARTITIONS)
    place = place_of(accept(batch_of([Row(b"v", b"user-1")]), TOPICS[0], PARTITIONS), state, TOPICS[0], NOW_US)
    assert place is not None
    assert place.partition == int(fnv1a64(binaries([b"user-1"]))[0]) % PARTITIONS
