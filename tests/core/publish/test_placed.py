"""Rows that are placed when they are staged: as `plan` places them, and written as they are when they are published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.messages import accept
from headrace.core.publish.placed import may_stay, place_ahead, plan_placed
from headrace.core.publish.plan import plan
from headrace.core.publish.receipts import CONFLICT, DUPLICATE_COMMIT, NO_TOTALS, WRITTEN, Totals
from headrace.core.publish.state import CommitKey, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from tests.core.builders import NOW_US

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=20)


def batch_of(count: int, **columns: list[Any]) -> pa.RecordBatch:
    values = [b"%d" % number for number in range(count)]
    return accept(pa.record_batch({"value": values, **columns}), DEFAULT_SETTINGS, 7)


@given(KEYS, st.sampled_from([1, 2, 7]), st.sampled_from(["fnv1a", "murmur2"]), st.integers(0, 9))
def test_rows_go_where_their_commit_would_put_them(
    keys: list[bytes | None], partitions: int, key_hash: str, turn: int
) -> None:
    settings = TopicSettings.make(key_hash=key_hash)
    batch = batch_of(len(keys), key=pa.array(keys, pa.binary()))
    state = TopicState(np.arange(partitions) * 10, next_number=3, last_time_us=NOW_US, round_robin=turn)
    placed = place_ahead(batch, settings, partitions, turn)
    assert placed is not None
    rows, places = placed
    assert may_stay(places, state, settings)
    commit = plan_placed(rows, places, state, NOW_US, (CommitKey("w", 1),))
    expected, _ = plan(batch, state, settings, NOW_US, (CommitKey("w", 1),))
    assert commit.rows.equals(expected.rows)
    for field in ("partition", "first_offset", "rows"):
        assert getattr(commit.directory, field).tolist() == getattr(expected.directory, field).tolist()
    assert (commit.number, commit.time_us, commit.keys) == (expected.number, expected.time_us, expected.keys)
    assert commit.round_robin == turn, "those who take turns later do not notice"
    state.apply(commit)
    assert state.end_offsets.sum() == 10 * partitions * (partitions - 1) // 2 + len(keys)


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({"deduplication": "payload"}, {}),
        ({}, {"producer_id": ["p"]}),
        ({}, {"partition": [3]}),
    ],
)
def test_what_only_the_commit_can_decide_is_left_to_it(settings: dict[str, Any], columns: dict[str, list[Any]]) -> None:
    assert place_ahead(batch_of(1, **columns), TopicSettings.make(**settings), 7, 0) is None


def test_places_hold_until_the_topic_changes() -> None:
    placed = place_ahead(batch_of(2), DEFAULT_SETTINGS, 7, 0)
    assert placed is not None
    _, places = placed
    assert may_stay(places, TopicState(np.zeros(7, np.int64)), DEFAULT_SETTINGS)
    assert not may_stay(places, TopicState(np.zeros(8, np.int64)), DEFAULT_SETTINGS)
    for change in ({"deduplication": "payload"}, {"key_hash": "murmur2"}):
        assert not may_stay(places, TopicState(np.zeros(7, np.int64)), TopicSettings.make(**change))


def test_totals_are_those_of_all_parts() -> None:
    parts = [Totals.of(np.array([WRITTEN, CONFLICT, WRITTEN], np.uint8)), Totals.all(3, DUPLICATE_COMMIT), NO_TOTALS]
    totals = sum(parts, NO_TOTALS)
    assert (totals.written, totals.dropped) == (2, 4)
