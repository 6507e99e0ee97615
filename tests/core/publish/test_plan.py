"""Planning against a slow model: duplicates, partitions, links, offsets, receipts; and recovery by replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.core.hashes.columns import fnv1a64, partition_of
from headrace.core.hashes.murmur2 import murmur2_of
from headrace.core.limits import MICROSECONDS, SEQNO_JUMP_MAX
from headrace.core.messages import STORED_SCHEMA, accept
from headrace.core.publish import state as topic_state
from headrace.core.publish.payload_window import PayloadWindow, payloads_of
from headrace.core.publish.plan import plan, plan_close, plan_reset, replay
from headrace.core.publish.receipts import (
    CONFLICT,
    DUPLICATE_BY_PAYLOAD,
    DUPLICATE_BY_SOURCE,
    DUPLICATE_COMMIT,
    RECEIPT_SCHEMA,
    WRITTEN,
    Receipts,
    all_duplicates,
    join_receipts,
)
from headrace.core.publish.routing import NOWHERE
from headrace.core.publish.seqno_jumps import SeqnoWatch, may_jump
from headrace.core.publish.sources import NO_LINK
from headrace.core.publish.state import STORE_COMMITS, Commit, CommitKey, TopicState
from headrace.core.publish.writers import is_one_time, one_time_writer
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from tests.core.builders import (
    LINK_IDLE_US,
    NOW_US,
    Known,
    Model,
    Row,
    accepted,
    batch_of,
    new_state,
    receipts_of,
    row_strategy,
    sources_of,
    written_rows,
)

MODES = {mode: TopicSettings.make(deduplication=mode) for mode in ("producer", "payload", "off")}
WINDOW_US = DEFAULT_SETTINGS.deduplication_window_seconds * MICROSECONDS
PARTITIONS = st.sampled_from([1, 2, 3, 5])


def publish(
    state: TopicState, rows: Sequence[Row], topic: TopicSettings = DEFAULT_SETTINGS, now_us: int = NOW_US
) -> tuple[Commit, Receipts]:
    """Plan some rows and take them in."""
    commit, receipts = plan(accept(batch_of(rows), topic, state.partitions), state, topic, now_us)
    state.apply(commit)
    return commit, receipts


def canonical(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as they are when they are planned."""
    return accept(batch_of(rows), DEFAULT_SETTINGS, 4)


def placed(receipts: Receipts) -> list[int]:
    return [int(partition) for partition in receipts.partition]


def replayed(commit: Commit, topic: TopicSettings) -> Commit:
    """The commit made again from what a store keeps of it."""
    return replay(
        commit.number,
        commit.time_us,
        commit.rows,
        commit.directory,
        commit.round_robin,
        commit.keys,
        topic.deduplication == "payload",
    )


def assert_same_state(one: TopicState, other: TopicState) -> None:
    assert one.end_offsets.tolist() == other.end_offsets.tolist()
    assert (one.next_number, one.last_time_us) == (other.next_number, other.last_time_us)
    assert one.round_robin == other.round_robin
    assert list(one.writers.items()) == list(other.writers.items())
    assert one.sources.snapshot().equals(other.sources.snapshot())
    assert one.window.snapshot().equals(other.window.snapshot())


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[list[Row], str, int]]]:
    """Partitions, and some publishes: their rows, the mode of the topic, and how much later they come."""
    partitions = draw(PARTITIONS)
    later = st.sampled_from([0, 1, -5, WINDOW_US - 1, WINDOW_US, LINK_IDLE_US - 1, LINK_IDLE_US])
    step = st.tuples(st.lists(row_strategy(partitions), max_size=14), st.sampled_from([*MODES]), later)
    return partitions, draw(st.lists(step, min_size=1, max_size=4))


@given(histories(), st.integers(0, 2))
@settings(deadline=None, max_examples=160)
def test_plans_agree_with_the_model_and_replay_gives_the_same_state(
    history: tuple[int, list[tuple[list[Row], str, int]]], padding: int
) -> None:
    partitions, steps = history
    model, live, recovered = Model(partitions), new_state(partitions), new_state(partitions)
    now_us = NOW_US
    for number, (rows, mode, later_us) in enumerate(steps):
        now_us += later_us
        ends = [len(log) for log in model.log]
        around = [Row(b"around", b"key", "p", "g", 3, 0, (("x", b"1"),))] * padding
        batch = accept(batch_of(rows, around, around), MODES[mode], partitions)
        expected = model.publish(rows, MODES[mode], now_us)
        before = live.copy()
        keys = (CommitKey("writer", number),)
        commit, receipts = plan(batch, live, MODES[mode], now_us, keys)
        assert_same_state(live, before)
        assert receipts_of(receipts) == expected
        live.apply(commit)
        recovered.apply(replayed(commit, MODES[mode]))
        assert_same_state(live, recovered)
        assert commit.time_us == model.last_time_us
        assert live.end_offsets.tolist() == [len(log) for log in model.log]
        assert live.round_robin == model.round_robin
        assert sources_of(live) == model.sources
        assert written_rows(commit) == {
            partition: (end, [without_partition(row) for row in model.log[partition][end:]])
            for partition, end in enumerate(ends)
            if len(model.log[partition]) > end
        }


def without_partition(row: Row) -> Row:
    return Row(row.value, row.key, row.producer_id, row.message_group_id, row.seqno, None, row.attributes)


@st.composite
def splittable(draw: st.DrawFn) -> tuple[int, str, list[Row]]:
    """Rows whose outcome may not depend on how publishers or the group commit cut them into batches."""
    partitions = draw(PARTITIONS)
    mode = draw(st.sampled_from([*MODES]))
    if mode == "producer":
        rows = row_strategy(partitions, seqno=st.integers(0, 9))
    elif mode == "payload":
        rows = row_strategy(partitions, seqno=st.none(), explicit=False)
    else:
        rows = row_strategy(partitions, explicit=False)
    return partitions, mode, draw(st.lists(rows, max_size=14))


@given(splittable(), st.data())
@settings(deadline=None, max_examples=90)
@example((3, "producer", [Row(b"", None, "p", None, 1, 2), Row(b"", None, "p", None, 2)]), None)
def test_messages_go_to_the_same_places_in_one_batch_in_several_or_alone(
    publishes: tuple[int, str, list[Row]], data: st.DataObject | None
) -> None:
    partitions, mode, rows = publishes
    cuts = [] if data is None else sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    together, alone, cut = new_state(partitions), new_state(partitions), new_state(partitions)
    _, receipts = publish(together, rows, MODES[mode])
    one_by_one = [receipts_of(publish(alone, [row], MODES[mode])[1])[0] for row in rows]
    bounds = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    parts = [publish(cut, rows[start:end], MODES[mode])[1] for start, end in bounds]
    assert receipts_of(receipts) == one_by_one
    assert receipts_of(join_receipts(parts)) == one_by_one
    seqnos_and_links = [
        {source: (known.seqno, known.link) for source, known in sources_of(state).items()}
        for state in (together, alone, cut)
    ]
    assert seqnos_and_links[0] == seqnos_and_links[1] == seqnos_and_links[2]
    assert together.round_robin == alone.round_robin == cut.round_robin


# Duplicates by source


def numbered(*seqnos: int | None, producer: str = "p") -> list[Row]:
    return [Row(b"v", None, producer, None, seqno) for seqno in seqnos]


@pytest.mark.parametrize("mode", ["producer", "off"])
def test_seqnos_at_or_below_the_highest_are_duplicates_unless_it_is_off(mode: str) -> None:
    state = new_state()
    publish(state, numbered(5))
    _, receipts = publish(state, numbered(4, 5, 6, 6, 3, 10, 9), MODES[mode])
    duplicate = DUPLICATE_BY_SOURCE
    expected = (
        [duplicate, duplicate, WRITTEN, duplicate, duplicate, WRITTEN, duplicate] if mode == "producer" else [0] * 7
    )
    assert receipts.outcome.tolist() == expected
    assert state.sources.last_seqno(("p", "")) == 10


def test_seqno_zero_is_written_once() -> None:
    state = new_state()
    _, receipts = publish(state, numbered(0, 0))
    assert receipts.outcome.tolist() == [WRITTEN, DUPLICATE_BY_SOURCE]
    assert publish(state, numbered(0))[1].written == 0


def test_largest_seqnos_are_distinguished() -> None:
    largest = 2**63 - 1
    state = new_state()
    mixed = [*numbered(largest - 1, largest), *numbered(largest, largest - 1, producer="q")]
    _, receipts = publish(state, mixed)
    assert receipts.outcome.tolist() == [WRITTEN, WRITTEN, WRITTEN, DUPLICATE_BY_SOURCE]
    assert state.sources.last_seqno(("p", "")) == state.sources.last_seqno(("q", "")) == largest


FAR = SEQNO_JUMP_MAX


@pytest.mark.parametrize(
    ("written", "requests", "rows"),
    [
        ([1], [[2 + FAR]], [0]),
        ([1], [[1 + FAR]], [None]),
        ([], [[2**63 - 1]], [None]),
        ([], [[0, 2**63 - 1]], [1]),
        ([], [[2**63 - 1, 0]], [0]),
        ([5], [[6, 9 + FAR, 8]], [1]),
        ([5], [[6, 6 + FAR, 6 + 2 * FAR, 9 + 3 * FAR]], [3]),
        ([5], [[5 + FAR], [5 + 2 * FAR], [7 + 3 * FAR]], [None, None, 0]),
        # What was refused is nobody's base.
        ([5], [[7 + FAR], [7 + 2 * FAR]], [0, 0]),
        ([7 + FAR], [[3, None, 4]], [None]),
        ([7 + FAR], [[None]], [None]),
    ],
)
def test_seqnos_that_jump_are_found(
    written: list[int | None], requests: list[list[int | None]], rows: list[int | None]
) -> None:
    state = new_state()
    if written:
        publish(state, numbered(*written))
    watch = SeqnoWatch(state.sources, NOW_US)
    found = [watch.check([canonical(numbered(*seqnos))]) for seqnos in requests]
    assert [None if error is None else error.row for error in found] == rows


def test_a_jump_is_counted_over_the_batches_of_a_request() -> None:
    watch = SeqnoWatch(new_state().sources, NOW_US)
    plain = pa.record_batch({"value": [b"a", b"b"]})
    error = watch.check([canonical(numbered(1)), plain, canonical(numbered(2 + FAR))])
    assert error is not None and error.row == 3 and "producer 'p'" in error.rule
    rows = [Row(b"", None, "p", "g", 1), Row(b"", None, "p", "g", 2 + FAR), Row(b"", None, None, None, None)]
    error = watch.check([canonical(rows)])
    assert error is not None and "message group 'g'" in error.rule


def test_only_large_seqnos_need_a_closer_look() -> None:
    for seqnos, expected in (([1, FAR], False), ([1, FAR + 1], True), ([None], False)):
        assert may_jump(canonical(numbered(*seqnos))) is expected
    assert not may_jump(pa.record_batch({"value": [b"a"]}))


def test_rows_without_seqno_are_never_duplicates_by_source() -> None:
    state = new_state()
    publish(state, numbered(7))
    _, receipts = publish(state, [*numbered(None, 7, None), Row(b"v"), Row(b"v")])
    assert receipts.outcome.tolist() == [WRITTEN, DUPLICATE_BY_SOURCE, WRITTEN, WRITTEN, WRITTEN]
    assert state.sources.last_seqno(("p", "")) == 7


def test_sources_of_one_producer_do_not_hide_each_other() -> None:
    rows = [Row(b"", None, "p", group, 1) for group in (None, "", "g", "g", "h")]
    _, receipts = publish(new_state(), rows)
    assert receipts.outcome.tolist() == [WRITTEN, DUPLICATE_BY_SOURCE, WRITTEN, DUPLICATE_BY_SOURCE, WRITTEN]


def test_batch_of_only_duplicates_is_empty_and_changes_nothing() -> None:
    state = new_state()
    publish(state, numbered(1, 2))
    before = state.copy()
    commit, receipts = plan(accepted(value=[b""], producer_id=["p"], seqno=[2]), state, DEFAULT_SETTINGS, NOW_US + 5)
    assert not commit.rows.num_rows and not commit.keys
    assert (commit.rows.num_rows, len(commit.directory.partition), receipts.written) == (0, 0, 0)
    assert_same_state(state, before)


def test_a_commit_without_its_rows_changes_the_state_as_the_whole_does() -> None:
    state = new_state()
    whole, _ = plan(accepted(value=[b"a", b"b"], producer_id=["p"] * 2, seqno=[1, 2]), state, DEFAULT_SETTINGS, NOW_US)
    bare, other = whole.bare(), state.copy()
    assert (bare.rows.num_rows, bare.directory) == (0, whole.directory)
    state.apply(whole)
    other.apply(bare)
    assert_same_state(state, other)


def test_columns_that_only_duplicates_had_are_not_stored() -> None:
    state = new_state()
    publish(state, numbered(1))
    commit, _ = publish(state, [Row(b"a", b"key", "p", "", 1, attributes=(("x", b""),)), Row(b"b")])
    assert commit.rows.schema.equals(pa.schema([STORED_SCHEMA.field("value")]))
    assert commit.rows.to_pylist() == [{"value": b"b"}]


# Duplicates by payload


def test_payload_is_dropped_within_the_window_and_written_again_after_it() -> None:
    state = new_state()
    outcomes = []
    for now_us in (NOW_US, NOW_US + WINDOW_US - 1, NOW_US + WINDOW_US, NOW_US + WINDOW_US + 1):
        _, receipts = publish(state, [Row(b"same"), Row(b"same")], MODES["payload"], now_us)
        outcomes += receipts.outcome.tolist()
    dropped = DUPLICATE_BY_PAYLOAD
    assert outcomes == [WRITTEN, dropped, dropped, dropped, WRITTEN, dropped, dropped, dropped]


def test_null_is_no_payload_and_not_empty() -> None:
    state, topic = new_state(), MODES["payload"]
    batch = accepted(value=[None, b"", None, b""])
    for expected in ([WRITTEN, WRITTEN, WRITTEN, DUPLICATE_BY_PAYLOAD], [WRITTEN, DUPLICATE_BY_PAYLOAD] * 2):
        commit, receipts = plan(batch, state, topic, NOW_US)
        assert receipts.outcome.tolist() == expected
        assert replayed(commit, topic).payloads.first.tolist() == commit.payloads.first.tolist()
        state.apply(commit)
    sourced = accepted(value=[None, b"", None], producer_id=["p"] * 3, seqno=[1, 1, 1])
    assert plan(sourced, new_state(), DEFAULT_SETTINGS, NOW_US)[1].outcome.tolist() == [
        WRITTEN,
        CONFLICT,
        DUPLICATE_BY_SOURCE,
    ]


def test_payloads_that_collide_in_the_first_hash_are_both_written() -> None:
    one, other = Row(b"8yn0iYCKYHlIj4-BwPqk"), Row(b"GReLUrM4wMqfg9yzV3KQ")
    assert len(set(fnv1a64(pa.array([one.value, other.value])).tolist())) == 1
    assert publish(new_state(), [one, other], MODES["payload"])[1].written == 2
    state = new_state()
    publish(state, [one], MODES["payload"])
    assert publish(state, [other, one], MODES["payload"])[1].outcome.tolist() == [WRITTEN, DUPLICATE_BY_PAYLOAD]


def test_payload_of_a_duplicate_by_source_is_not_remembered() -> None:
    state = new_state()
    publish(state, numbered(5))
    rows = [Row(b"late", None, "p", None, 4), Row(b"late"), Row(b"late", None, "p", None, 6)]
    _, receipts = publish(state, rows, MODES["payload"])
    assert receipts.outcome.tolist() == [DUPLICATE_BY_SOURCE, WRITTEN, DUPLICATE_BY_PAYLOAD]
    assert state.sources.last_seqno(("p", "")) == 5


def test_windows_of_other_topics_are_asked_but_not_filled() -> None:
    elsewhere = PayloadWindow()
    elsewhere.add(payloads_of(pa.array([b"seen"]), NOW_US))
    state = new_state()
    batch = accepted(value=[b"seen", b"new"])
    commit, receipts = plan(batch, state, MODES["payload"], NOW_US, other_windows=[elsewhere])
    state.apply(commit)
    assert receipts.outcome.tolist() == [DUPLICATE_BY_PAYLOAD, WRITTEN]
    assert (len(state.window), len(elsewhere)) == (1, 1)
    late = plan(batch, new_state(), MODES["payload"], NOW_US + WINDOW_US, other_windows=[elsewhere])
    assert late[1].written == 2


@pytest.mark.parametrize("mode", ["producer", "off"])
def test_payloads_are_not_remembered_where_nobody_asks(mode: str) -> None:
    state = new_state()
    assert publish(state, [Row(b"same")] * 3, MODES[mode])[1].written == 3
    assert len(state.window) == 0


def test_time_rises_with_every_commit_whatever_the_clock_says() -> None:
    state = new_state()
    publish(state, [Row(b"x")], MODES["payload"], NOW_US)
    commit, receipts = publish(state, [Row(b"x"), Row(b"y")], MODES["payload"], NOW_US - WINDOW_US)
    assert commit.time_us == state.last_time_us == NOW_US + 1
    assert receipts.outcome.tolist() == [DUPLICATE_BY_PAYLOAD, WRITTEN]


# Partitions


@pytest.mark.parametrize("partitions", [1, 2, 7, 256, 9_999, 10_000])
def test_keys_are_placed_by_their_hash_over_any_number_of_partitions(partitions: int) -> None:
    keys = [b"user-%d" % number for number in range(500)]
    state = new_state(partitions)
    commit, receipts = plan(accepted(partitions, value=keys, key=keys), state, DEFAULT_SETTINGS, NOW_US)
    assert placed(receipts) == [partition_of(key, partitions) for key in keys]
    assert commit.round_robin == 0
    stored = np.repeat(commit.directory.partition, commit.directory.rows)
    assert np.all(stored[1:] >= stored[:-1])
    assert [partition_of(key, partitions) for key in commit.rows.column("key").to_pylist()] == stored.tolist()


def test_explicit_partition_goes_before_key_and_key_before_link() -> None:
    state = new_state(8)
    publish(state, [Row(b"", None, "p", None, 1, 5)])
    rows = [
        Row(b"", b"key", "p", None, 2, 7),
        Row(b"", b"key", "p", None, 3),
        Row(b"", b"", "p", None, 4),
        Row(b"", None, "p", None, 5),
    ]
    _, receipts = publish(state, rows)
    assert placed(receipts) == [7, partition_of(b"key", 8), 5, 5]
    assert state.round_robin == 0


def test_rows_without_key_or_source_go_round() -> None:
    state = new_state(3)
    _, first = publish(state, [Row(b"")] * 4)
    _, second = publish(state, [Row(b"", b""), Row(b"", b"key"), Row(b"", producer_id=""), Row(b"", partition=1)])
    assert placed(first) == [0, 1, 2, 0]
    assert placed(second) == [1, partition_of(b"key", 3), 2, 1]
    assert state.round_robin == 6


def test_new_sources_of_one_batch_are_linked_in_the_order_of_their_first_use() -> None:
    state = new_state(8)
    rows = [
        Row(b"", None, "z", None, 1),
        Row(b""),
        Row(b"", None, "a", None, 1),
        Row(b"", None, "z", None, 2),
        Row(b"", None, "a", "group", 1),
        Row(b"", b"key", "keyed", None, 1),
        Row(b"", None, "a", None, 2),
        Row(b""),
    ]
    _, receipts = publish(state, rows)
    assert placed(receipts) == [0, 1, 2, 0, 3, partition_of(b"key", 8), 2, 4]
    _, again = publish(state, [Row(b"", None, "a", "group", 2), Row(b"", None, "keyed", None, 2)])
    assert placed(again) == [3, 5]


def test_duplicate_does_not_use_a_turn() -> None:
    state = new_state(4)
    publish(state, numbered(5))
    _, receipts = publish(state, [*numbered(5), Row(b""), *numbered(1, producer="q")])
    assert placed(receipts) == [NOWHERE, 1, 2]


def test_source_keeps_its_link_when_partitions_are_added() -> None:
    state = new_state(1)
    publish(state, numbered(1))
    state.add_partitions(4)
    assert (state.partitions, state.end_offsets.tolist()) == (4, [1, 0, 0, 0])
    _, receipts = publish(state, [*numbered(2), Row(b""), *numbered(1, producer="q"), Row(b"", partition=3)])
    assert placed(receipts) == [0, 1, 2, 3]
    assert state.end_offsets.tolist() == [2, 1, 1, 1]


def test_link_is_chosen_again_after_fourteen_idle_days() -> None:
    state = new_state(4)
    publish(state, numbered(1))
    assert placed(publish(state, numbered(2), now_us=NOW_US + LINK_IDLE_US - 1)[1]) == [0]
    late_us = NOW_US + 2 * LINK_IDLE_US - 1
    _, receipts = publish(state, numbered(2, 3, 4), now_us=late_us)
    assert receipts.outcome.tolist() == [DUPLICATE_BY_SOURCE, WRITTEN, WRITTEN]
    assert placed(receipts) == [NOWHERE, 1, 1]
    assert sources_of(state) == {("p", ""): Known(4, 1, late_us)}


@pytest.mark.parametrize(
    ("rows", "partitions", "link"),
    [
        # A first row that names its partition links its source there, and open rows follow it.
        ([Row(b"", None, "p", None, 1, 3), Row(b"", None, "p", None, 2)], [3, 3], 3),
        # A first row that is open takes its turn, and a later explicit one does not move the link.
        ([Row(b"", None, "p", None, 1), Row(b"", None, "p", None, 2, 3), Row(b"", None, "p", None, 3)], [0, 3, 0], 0),
        # Without seqnos the order is not stored; the lowest partition that is named wins, live and on recovery.
        ([Row(b"", None, "p"), Row(b"", None, "p", None, None, 3), Row(b"", None, "p", None, None, 2)], [2, 3, 2], 2),
        # A key says where its row goes and nothing about the link.
        ([Row(b"", b"key", "p", None, 1, 3), Row(b"", None, "p", None, 2)], [3, 0], 0),
        ([Row(b"", b"key", "p", None, 1, 3)], [3], NO_LINK),
    ],
)
def test_open_rows_of_a_new_source_go_where_it_is_linked(rows: list[Row], partitions: list[int], link: int) -> None:
    state = new_state(4)
    _, receipts = publish(state, rows)
    assert placed(receipts) == partitions
    assert sources_of(state)["p", ""].link == link


def test_large_values_are_planned_like_small_ones() -> None:
    rows = [Row(bytes([number]) * (1 << 20), b"k%d" % number) for number in range(5)]
    topic = MODES["payload"].change(message_bytes_max=2 << 20)
    state = new_state(3)
    commit, receipts = publish(state, [*rows, rows[3]], topic)
    assert receipts.outcome.tolist() == [WRITTEN] * 5 + [DUPLICATE_BY_PAYLOAD]
    assert sorted(commit.rows.column("value").to_pylist()) == [row.value for row in rows]


def test_empty_batch_plans_an_empty_commit() -> None:
    for batch in (accepted(value=[]), accepted(value=[], producer_id=[], partition=[], key=[])):
        for mode in MODES.values():
            commit, receipts = plan(batch, new_state(), mode, NOW_US)
            assert not commit.rows.num_rows and not commit.keys
            assert len(receipts) == 0


# Offsets and receipts


def test_offsets_are_dense_from_the_end_of_each_partition() -> None:
    state = new_state(3)
    publish(state, [Row(b"", partition=2)] * 4)
    commit, receipts = publish(state, [Row(b"xy", partition=partition) for partition in (2, 0, 2, 0, 2)])
    assert receipts.offset.tolist() == [4, 0, 5, 1, 6]
    assert commit.directory.partition.tolist() == [0, 2]
    assert commit.directory.first_offset.tolist() == [0, 4]
    assert commit.directory.rows.tolist() == [2, 3]
    assert commit.directory.first_row.tolist() == [0, 2]
    assert commit.bytes_by_partition() == {0: 4, 2: 6}
    assert state.end_offsets.tolist() == [2, 0, 7]


def test_rows_that_are_sorted_already_are_not_copied() -> None:
    batch = accepted(value=[b"a", b"b"], partition=[0, 3])
    commit, _ = plan(batch, new_state(), DEFAULT_SETTINGS, NOW_US)
    assert commit.rows.column("value").buffers()[2].address == batch.column("value").buffers()[2].address


def test_receipts_as_arrow_have_nulls_for_duplicates() -> None:
    state = new_state()
    _, receipts = publish(state, [*numbered(1, 1, 2), Row(b"")])
    assert receipts.to_arrow().schema.equals(RECEIPT_SCHEMA)
    assert [tuple(row.values()) for row in receipts.to_arrow().to_pylist()] == [
        (0, 0, "written"),
        (None, None, "duplicate"),
        (0, 1, "written"),
        (1, 0, "written"),
    ]
    assert receipts.written == 3


def test_receipts_can_be_cut_and_put_together_again() -> None:
    _, receipts = publish(new_state(), [*numbered(1, 1, 2), Row(b"")])
    parts = [receipts.slice(0, 1), receipts.slice(1, 3), receipts.slice(3, 4)]
    assert [len(part) for part in parts] == [1, 2, 1]
    assert receipts_of(join_receipts(parts)) == receipts_of(receipts)


def test_refused_commit_says_that_nothing_was_written() -> None:
    receipts = all_duplicates(3, DUPLICATE_COMMIT)
    assert receipts_of(receipts) == [(DUPLICATE_COMMIT, NOWHERE, NOWHERE)] * 3
    assert receipts.written == 0


# Commits and state


def keyed_commit(state: TopicState, *keys: CommitKey, **columns: Any) -> Commit:
    commit, _ = plan(accepted(**columns or {"value": []}), state, DEFAULT_SETTINGS, NOW_US, keys)
    return commit


def test_commits_are_numbered_from_zero() -> None:
    state = new_state()
    assert [publish(state, [Row(b"")])[0].number for _ in range(3)] == [0, 1, 2]
    assert state.next_number == 3


def test_commit_key_is_repeated_at_or_below_the_last_number_of_its_writer() -> None:
    state = new_state()
    assert not state.is_repeated(CommitKey("w", 0))
    commit = keyed_commit(state, CommitKey("w", 3), CommitKey("other", 0), value=[b"x"])
    state.apply(commit)
    repeated = [state.is_repeated(CommitKey("w", number)) for number in (0, 3, 4)]
    assert repeated == [True, True, False]
    assert state.is_repeated(CommitKey("other", 0))
    assert not state.is_repeated(CommitKey("third", 0))


def test_commit_with_only_a_key_is_not_empty() -> None:
    state = new_state()
    commit = keyed_commit(state, CommitKey("w", 0))
    assert commit.rows.num_rows or commit.keys
    state.apply(commit)
    assert state.is_repeated(CommitKey("w", 0))
    assert state.next_number == 1


def test_number_of_a_writer_never_falls() -> None:
    state = new_state()
    for number in (5, 2):
        state.apply(keyed_commit(state, CommitKey("w", number)))
    assert state.writers == {"w": 5}


def test_a_known_number_with_another_fingerprint_is_a_conflict() -> None:
    state = new_state()
    assert state.last_key("w") is None
    state.apply(keyed_commit(state, *CommitKey("w", 5, 77).recorded()))
    last = state.last_key("w")
    assert last == CommitKey("w", 5, 77)
    assert not CommitKey("w", 5, 77).conflicts_with(last), "a retry"
    assert CommitKey("w", 5, 78).conflicts_with(last)
    assert CommitKey("w", 4, 77).conflicts_with(last), "later ones were published by somebody else"
    assert not CommitKey("w", 6, 78).conflicts_with(last)
    assert not CommitKey("w", 5).conflicts_with(last)


def test_a_fingerprint_is_only_of_its_own_commit() -> None:
    state = new_state()
    for key in (CommitKey("w", 5, 2**32 - 1), CommitKey("w", 6, 0), CommitKey("w", 7)):
        state.apply(keyed_commit(state, *key.recorded()))
        assert state.last_key("w") == key
    assert not CommitKey("w", 7, 1).conflicts_with(CommitKey("w", 7)), "stored before there were fingerprints"


def test_writer_that_was_silent_longest_is_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_state, "WRITERS_MAX", 3)
    state = new_state()
    for writer in ("a", "b", "c", "a", "d"):
        state.apply(keyed_commit(state, CommitKey(writer, 1)))
    assert list(state.writers) == ["c", "a", "d"]


def test_writers_of_a_single_commit_make_no_other_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_state, "WRITERS_MAX", 3)
    monkeypatch.setattr(topic_state, "ONE_TIME_WRITERS_MAX", 4)
    state = new_state()
    state.apply(keyed_commit(state, CommitKey("sink", 7)))
    names = [one_time_writer("spark", f"{number:032x}") for number in range(9)]
    for name in names:
        state.apply(keyed_commit(state, *CommitKey(name, 0, 5).recorded()))
        assert (state.last_number(name), state.last_key(name)) == (0, CommitKey(name, 0, 5))
        assert state.is_repeated(CommitKey(name, 0))
    assert state.writers == {"sink": 7}
    assert [state.last_key(name) is not None for name in names] == [False] * 7 + [True] * 2
    assert state.copy().one_time_writers == state.one_time_writers
    assert not state.is_repeated(CommitKey(names[0], 0))


@pytest.mark.parametrize("name", ["sink", "once", "a-once-b", "-once-" + "x" * 31, "x" * 40])
def test_other_writers_are_not_of_a_single_commit(name: str) -> None:
    assert not is_one_time(name)
    assert is_one_time(one_time_writer(name, "x" * 32))


def test_copy_of_a_state_is_independent() -> None:
    state = new_state()
    publish(state, [Row(b"x", None, "p", None, 1)], MODES["payload"])
    twin = state.copy()
    assert_same_state(state, twin)
    twin.apply(keyed_commit(twin, CommitKey("w", 1)))
    publish(twin, [Row(b"y", None, "p", None, 2), Row(b"z")], MODES["payload"])
    assert (state.next_number, state.round_robin, state.writers) == (1, 1, {})
    assert (state.end_offsets.tolist(), len(state.window), len(state.sources)) == ([1, 0, 0, 0], 1, 1)
    assert state.sources.last_seqno(("p", "")) == 1
    assert twin.sources.last_seqno(("p", "")) == 2


def test_many_sources_and_rows_agree_with_the_model() -> None:
    generator = np.random.default_rng(11)
    model, state = Model(64), new_state(64)
    for _ in range(3):
        rows = [
            Row(
                value=b"%d" % generator.integers(0, 5_000),
                key=b"key-%d" % generator.integers(0, 900) if generator.random() < 0.3 else None,
                producer_id=f"p{generator.integers(0, 700)}",
                message_group_id=f"g{generator.integers(0, 3)}" if generator.random() < 0.5 else None,
                seqno=int(generator.integers(0, 40)) if generator.random() < 0.8 else None,
                partition=int(generator.integers(0, 64)) if generator.random() < 0.05 else None,
            )
            for _ in range(4_000)
        ]
        expected = model.publish(rows, MODES["payload"], NOW_US)
        commit, receipts = publish(state, rows, MODES["payload"])
        assert receipts_of(receipts) == expected
        assert sources_of(state) == model.sources
        assert replayed(commit, MODES["payload"]).sources.seqno.tolist() == commit.sources.seqno.tolist()


def test_the_last_frame_of_a_commit_of_several_topics_has_its_number_and_no_rows() -> None:
    state = new_state()
    publish(state, numbered(9))
    before, _ = publish(state, numbered(10))
    last, ends = plan_close(before, 7), state.end_offsets.tolist()
    assert (last.number, last.time_us, last.rows.num_rows) == (before.number + 1, before.time_us, 0)
    state.apply(last)
    assert (state.writers, state.end_offsets.tolist()) == ({STORE_COMMITS: 7}, ends)


def test_a_reset_is_a_commit_of_its_own_that_lets_a_source_start_over() -> None:
    state = new_state()
    publish(state, numbered(9))
    publish(state, numbered(9, producer="q"))
    before, ends = state.last_time_us, state.end_offsets.tolist()
    commit = plan_reset(state, [("p", "")], 0)
    assert commit.resets == (("p", ""),)
    assert (commit.number, commit.time_us, commit.rows.num_rows) == (state.next_number, before + 1, 0)
    replayed = state.copy()
    state.apply(commit)
    again = replay(
        commit.number, commit.time_us, commit.rows, commit.directory, commit.round_robin, (), False, commit.resets
    )
    replayed.apply(again)
    for each in (state, replayed):
        assert (each.sources.last_seqno(("p", "")), each.sources.last_seqno(("q", ""))) == (None, 9)
        assert each.end_offsets.tolist() == ends
        assert each.next_number == commit.number + 1
        assert publish(each, numbered(1, 2, 2))[1].outcome.tolist() == [WRITTEN, WRITTEN, DUPLICATE_BY_SOURCE]


def test_keys_choose_partitions_by_the_hash_of_the_topic() -> None:
    keys = [b"%d" % number for number in range(50)]
    expected = {
        "fnv1a": [partition_of(key, 4) for key in keys],
        "murmur2": [(murmur2_of(key) & 0x7FFFFFFF) % 4 for key in keys],
    }
    for key_hash, partitions in expected.items():
        topic = TopicSettings.make(key_hash=key_hash)
        for keyless in (0, 1):
            batch = accepted(value=[b""] * (50 + keyless), key=[*keys, *[None] * keyless])
            chosen = plan(batch, new_state(4), topic, NOW_US)[1].partition.tolist()
            assert chosen[:50] == partitions
