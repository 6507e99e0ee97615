"""Splits, limits, losses, filters and checkpoints: the arithmetic of a query, without a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headrace.core.errors import InvalidInput, MessagesLost
from headrace.spark.read import stream_offsets
from headrace.spark.read.data_loss import DataLoss, kept_of
from headrace.spark.read.filters import Bounds, narrowed
from headrace.spark.read.rate_limit import waiting, within_bytes, within_messages
from headrace.spark.read.splits import Range, Ranges, Split, ranges_between, split

PROPERTY = settings(deadline=None, derandomize=True)
RANGES = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(1, 200))).map(
    lambda given: {partition: (start, start + count) for partition, (start, count) in sorted(given.items())}
)


@PROPERTY
@given(RANGES, st.integers(1, 300), st.integers(1, 40))
def test_splits_cover_every_message_once(ranges: Ranges, messages_max: int, splits_min: int) -> None:
    splits = split(ranges, messages_max, splits_min)
    parts = [part for made in splits for part in made.ranges]
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    wanted = [(partition, offset) for partition, (start, end) in ranges.items() for offset in range(start, end)]
    assert covered == wanted
    assert all(1 <= made.messages <= messages_max for made in splits)
    # Cutting evenly may miss what was asked for by less than half.
    assert len(splits) >= min(splits_min, len(wanted)) // 2


def test_a_skewed_partition_is_cut_into_more_tasks() -> None:
    skewed = {0: (0, 90_000), 1: (500, 10_500)}
    assert split(skewed, 1_000_000, 4) == [
        Split((Range(0, 0, 22_500),)),
        Split((Range(0, 22_500, 45_000),)),
        Split((Range(0, 45_000, 67_500),)),
        Split((Range(0, 67_500, 90_000),)),
        Split((Range(1, 500, 10_500),)),
    ]
    assert split(skewed, 1_000_000, 1) == [Split((Range(0, 0, 90_000),)), Split((Range(1, 500, 10_500),))]
    assert [made.messages for made in split(skewed, 60_000, 1)] == [45_000, 45_000, 10_000]


def test_partitions_with_few_messages_share_a_task() -> None:
    few = {0: (0, 900), 1: (5, 905), 2: (0, 900), 3: (0, 5_000), 4: (0, 1)}
    assert [[part.partition for part in made.ranges] for made in split(few, 1_000_000, 1)] == [[0, 1], [2], [3], [4]]
    # Unless more tasks are asked for.
    skewed = {0: (0, 200), **dict.fromkeys(range(1, 10), (0, 1))}
    assert [len(split(skewed, 1_000_000, tasks)) for tasks in (1, 2, 9, 10)] == [1, 2, 9, 10]
    assert split({}, 1_000_000, 1) == []


def test_nothing_lies_between_equal_places() -> None:
    assert ranges_between({0: 5, 1: 2}, {0: 5, 1: 9, 2: 3}) == {1: (2, 9), 2: (0, 3)}


@PROPERTY
@given(RANGES, st.integers(1, 500))
def test_a_limit_is_kept_and_used(ranges: Ranges, messages_max: int) -> None:
    limited = within_messages(ranges, messages_max)
    taken = sum(end - start for start, end in limited.values())
    assert taken == min(messages_max, sum(end - start for start, end in ranges.values()))
    assert all(
        ranges[partition][0] == start and end <= ranges[partition][1] for partition, (start, end) in limited.items()
    )


@PROPERTY
@given(RANGES, st.integers(1, 500))
def test_no_partition_starves_behind_a_longer_one(ranges: Ranges, messages_max: int) -> None:
    limited = within_messages(ranges, messages_max)
    served = [partition for partition, (start, end) in limited.items() if start < end]
    assert len(served) == min(messages_max, sum(1 for start, end in ranges.values() if start < end))


def test_more_partitions_than_messages_take_turns() -> None:
    ranges = dict.fromkeys(range(5), (0, 1000))
    for _ in range(10):
        limited = within_messages(ranges, 2)
        ranges = {partition: (limited[partition][1], end) for partition, (_, end) in ranges.items()}
    assert ranges == dict.fromkeys(range(5), (4, 1000))


def test_bytes_are_shared_out_by_what_waits() -> None:
    asked = []

    def messages_within(partition: int, start: int, end: int, bytes_max: int) -> int:
        asked.append((partition, start, end, bytes_max))
        return bytes_max // 10

    ranges = {0: (0, 30), 1: (5, 15)}
    assert within_bytes(ranges, 100, messages_within) == {0: (0, 7), 1: (5, 7)}
    assert asked == [(0, 0, 30, 75), (1, 5, 15, 25)]
    assert within_bytes(ranges, 1, messages_within) == {0: (0, 1), 1: (5, 6)}


def test_only_what_is_ahead_waits() -> None:
    assert waiting({0: 3, 1: 5, 2: 9}, {0: 4, 1: 5, 2: 8}) == {0: (3, 4)}


@pytest.mark.parametrize(
    ("bound", "kept", "lost"),
    [
        ((0, 100), (10, 20), None),
        ((15, 100), (15, 20), (10, 15)),
        ((20, 100), None, (10, 20)),
        ((50, 100), None, (10, 20)),
        ((0, 15), (10, 15), (15, 20)),
        ((0, 5), None, (10, 20)),
        ((12, 15), (12, 15), (10, 20)),
    ],
)
def test_losses_are_what_is_no_longer_there(
    bound: tuple[int, int], kept: tuple[int, int] | None, lost: tuple[int, int] | None
) -> None:
    found, losses = kept_of({3: (10, 20)}, {3: bound})
    assert found == ({} if kept is None else {3: kept})
    assert losses.ranges == ({} if lost is None else {3: lost})


def test_losses_name_every_range_or_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    losses = DataLoss({1: (0, 5), 0: (10, 20)})
    with pytest.raises(MessagesLost) as failed:
        losses.face("orders", fails=True)
    shown = "partition 0: 10 messages, offsets 10 to 19; partition 1: 5 messages, offsets 0 to 4"
    assert shown in str(failed.value)
    assert "failOnDataLoss=false" in str(failed.value)
    losses.face("orders", fails=False)
    assert f"skipped 15 messages of topic 'orders' that were deleted before they were read: {shown}" in caplog.text
    DataLoss({}).face("orders", fails=True)


def at(time: int) -> datetime:
    return datetime.fromtimestamp(time, UTC)


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], {0: (0, 100), 1: (0, 100)}),
        ([EqualTo(("partition",), 1)], {1: (0, 100)}),
        ([In(("partition",), (0, None, 7))], {0: (0, 100)}),
        ([EqualTo(("partition",), 1), EqualTo(("partition",), 0)], {}),
        ([GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 19)], {0: (10, 20), 1: (10, 20)}),
        ([GreaterThanOrEqual(("offset",), 9), LessThan(("offset",), 10)], {0: (9, 10), 1: (9, 10)}),
        ([EqualTo(("offset",), 5), EqualTo(("partition",), 0)], {0: (5, 6)}),
        ([In(("offset",), (30, 10, None))], {0: (10, 31), 1: (10, 31)}),
        ([In(("offset",), (None,))], {}),
        ([GreaterThanOrEqual(("timestamp",), at(20)), LessThan(("timestamp",), at(30))], {0: (20, 30), 1: (20, 30)}),
        ([Not(EqualTo(("offset",), 5)), IsNotNull(("offset",))], {0: (0, 100), 1: (0, 100)}),
        ([GreaterThan(("value",), b"x"), EqualTo(("attributes", "key"), b"x")], {0: (0, 100), 1: (0, 100)}),
    ],
)
def test_filters_narrow_what_is_read(filters: list[Filter], ranges: Ranges) -> None:
    """A broker whose message at offset n came in second n."""
    found = narrowed({0: (0, 100), 1: (0, 100)}, Bounds.of(filters), lambda _, time_us: -(-time_us // 1_000_000))
    assert found == ranges


@PROPERTY
@given(st.dictionaries(st.integers(0, 300), st.integers(0, 1 << 62)))
def test_equal_offsets_have_one_text(offsets: dict[int, int]) -> None:
    text = json.dumps(stream_offsets.encode("orders", offsets))
    again = json.dumps(stream_offsets.encode("orders", dict(reversed(offsets.items()))))
    assert text == again
    assert stream_offsets.decode("Orders", json.loads(text)) == offsets


@pytest.mark.parametrize(
    "checkpoint",
    [{"version": 2, "topic": "orders", "offsets": {}}, {"version": 1, "topic": "other", "offsets": {}}, {}],
)
def test_a_checkpoint_of_something_else_is_refused(checkpoint: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="checkpoint"):
        stream_offsets.decode("orders", checkpoint)
