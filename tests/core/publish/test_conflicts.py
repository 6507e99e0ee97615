"""Conflicts: a seqno that comes again with another message is told from a retry."""

from __future__ import annotations

import numpy as np

from headrace.core.messages import accept
from headrace.core.publish.conflicts import digests_of
from headrace.core.publish.plan import plan
from headrace.core.publish.state import TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS
from tests.core.builders import NOW_US, Row, batch_of, new_state


def statuses(state: TopicState, *rows: Row) -> list[str]:
    commit, receipts = plan(accept(batch_of(rows), DEFAULT_SETTINGS, state.partitions), state, DEFAULT_SETTINGS, NOW_US)
    state.apply(commit)
    assert receipts.conflicts == receipts.to_arrow()["status"].to_pylist().count("conflict")
    found: list[str] = receipts.to_arrow()["status"].to_pylist()
    return found


def row(seqno: int, value: bytes, key: bytes | None = None) -> Row:
    return Row(value, key, "till-7", None, seqno)


def test_the_last_message_of_a_source_is_distinguished_from_another_with_its_seqno() -> None:
    state = new_state(2)
    assert statuses(state, row(1, b"a"), row(2, b"b", b"k")) == ["written"] * 2
    assert statuses(state, row(2, b"b", b"k")) == ["duplicate"]
    assert statuses(state, row(2, b"c", b"k")) == ["conflict"]
    assert statuses(state, row(2, b"b", b"other")) == ["conflict"]
    # Of an older message nothing is known.
    assert statuses(state, row(1, b"other"), row(2, b"x"), row(3, b"new")) == ["duplicate", "conflict", "written"]


def test_inside_a_batch_it_is_the_same_as_one_by_one() -> None:
    rows = [row(1, b"a"), row(1, b"a"), row(1, b"b"), row(1, b"a", b"k"), row(2, b"c"), row(1, b"d"), row(2, b"d")]
    expected = ["written", "duplicate", "conflict", "conflict", "written", "duplicate", "conflict"]
    assert statuses(new_state(1), *rows) == expected
    state = new_state(1)
    assert [statuses(state, each)[0] for each in rows] == expected
    assert statuses(state, row(3, b"new"), row(2, b"x")) == ["written", "duplicate"]


def test_attributes_may_differ_in_a_retry() -> None:
    state = new_state(1)
    assert statuses(state, Row(b"a", None, "p", None, 1, None, (("trace", b"1"),))) == ["written"]
    assert statuses(state, Row(b"a", None, "p", None, 1, None, (("trace", b"2"),))) == ["duplicate"]


def test_key_and_value_are_not_confused() -> None:
    batch = batch_of([row(1, b"bc", b"a"), row(2, b"c", b"ab"), row(3, b"abc"), row(4, b"abc", b"")])
    digests = digests_of(batch, np.arange(4))
    assert len(set(digests.tolist())) == 3
    assert digests[2] == digests[3]
