"""Splits, limits, losses and checkpoints: the arithmetic of a query, without a broker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import InvalidInput, MessagesLost
from headrace.spark.reader import stream_offsets
from headrace.spark.reader.data_loss import DataLoss, kept_of
from headrace.spark.reader.rate_limit import Shares, waiting, within_bytes, within_messages
from headrace.spark.reader.splits import Offsets, PartitionKey, Range, Ranges, Split, ranges_between, split

PROPERTY = settings(deadline=None, derandomize=True)
PLACES = [PartitionKey(7, "orders", partition) for partition in range(10)]
RANGES = st.dictionaries(st.sampled_from(PLACES), st.tuples(st.integers(0, 50), st.integers(1, 200))).map(
    lambda given: {partition: (start, start + count) for partition, (start, count) in sorted(given.items())}
)


@PROPERTY
@given(RANGES, st.integers(1, 300), st.integers(1, 40))
def test_splits_cover_every_message_once(ranges: Ranges, messages_max: int, splits_min: int) -> None:
    splits = split(ranges, messages_max, splits_min)
    parts = [part for made in splits for part in made.ranges]
    covered = [(part.of, offset) for part in parts for offset in range(part.start, part.end)]
    wanted = [(partition, offset) for partition, (start, end) in ranges.items() for offset in range(start, end)]
    assert covered == wanted
    assert all(1 <= made.messages <= messages_max for made in splits)
    # Cutting evenly may miss what was asked for by less than half.
    assert len(splits) >= min(splits_min, len(wanted)) // 2


def test_a_skewed_partition_is_cut_into_more_tasks() -> None:
    skewed = {PLACES[0]: (0, 90_000), PLACES[1]: (500, 10_500)}
    assert split(skewed, 1_000_000, 4) == [
        Split((Range(PLACES[0], 0, 22_500),)),
        Split((Range(PLACES[0], 22_500, 45_000),)),
        Split((Range(PLACES[0], 45_000, 67_500),)),
        Split((Range(PLACES[0], 67_500, 90_000),)),
        Split((Range(PLACES[1], 500, 10_500),)),
    ]
    assert split(skewed, 1_000_000, 1) == [
        Split((Range(PLACES[0], 0, 90_000),)),
        Split((Range(PLACES[1], 500, 10_500),)),
    ]
    assert [made.messages for made in split(skewed, 60_000, 1)] == [45_000, 45_000, 10_000]


def test_partitions_with_few_messages_share_a_task() -> None:
    few = dict(zip(PLACES, [(0, 20_000), (5, 20_005), (0, 20_000), (0, 100_000), (0, 1)], strict=False))
    found = [[part.of.partition for part in made.ranges] for made in split(few, 1_000_000, 1)]
    assert found == [[0, 1], [2], [3], [4]]
    # Unless more tasks are asked for.
    skewed = {PLACES[0]: (0, 200), **dict.fromkeys(PLACES[1:], (0, 1))}
    assert [len(split(skewed, 1_000_000, tasks)) for tasks in (1, 2, 9, 10)] == [1, 2, 9, 10]
    assert split({}, 1_000_000, 1) == []


def test_nothing_lies_between_equal_places() -> None:
    one, other, new = PLACES[:3]
    assert ranges_between({one: 5, other: 2}, {one: 5, other: 9, new: 3}) == {other: (2, 9), new: (0, 3)}


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
    ranges = dict.fromkeys(PLACES[:5], (0, 1000))
    for _ in range(10):
        limited = within_messages(ranges, 2)
        ranges = {partition: (limited[partition][1], end) for partition, (_, end) in ranges.items()}
    assert ranges == dict.fromkeys(PLACES[:5], (4, 1000))


def test_bytes_are_shared_out_by_what_waits() -> None:
    asked = []

    def offsets_within(shares: Shares) -> Offsets:
        asked.append(shares)
        return {place: start + bytes_max // 10 for place, (start, _, bytes_max) in shares.items()}

    one, other = PLACES[:2]
    ranges = {one: (0, 30), other: (5, 15)}
    assert within_bytes(ranges, 100, offsets_within) == {one: (0, 7), other: (5, 7)}
    assert asked == [{one: (0, 30, 75), other: (5, 15, 25)}]
    assert within_bytes(ranges, 1, offsets_within) == {one: (0, 1), other: (5, 6)}
    assert within_bytes(ranges, 100_000, offsets_within) == ranges


def test_only_what_is_ahead_waits() -> None:
    one, other, third = PLACES[:3]
    assert waiting({one: 3, other: 5, third: 9}, {one: 4, other: 5, third: 8}) == {one: (3, 4)}


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
    found, losses = kept_of({PLACES[3]: (10, 20)}, {PLACES[3]: bound})
    assert found == ({} if kept is None else {PLACES[3]: kept})
    assert losses.ranges == ({} if lost is None else {PLACES[3]: lost})


def test_losses_name_every_range_or_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    losses = DataLoss({PLACES[1]: (0, 5), PLACES[0]: (10, 20)})
    with pytest.raises(MessagesLost) as failed:
        losses.face(fails=True)
    shown = "partition 0: 10 messages, offsets 10 to 19; partition 1: 5 messages, offsets 0 to 4"
    assert shown in str(failed.value)
    assert "failOnDataLoss=false" in str(failed.value)
    losses.face(fails=False)
    assert f"skipped 15 messages of topic 'orders' that were deleted before they were read: {shown}" in caplog.text
    DataLoss({}).face(fails=True)
    two = DataLoss({PLACES[0]: (0, 1), PartitionKey(8, "sales", 0): (0, 2)})
    with pytest.raises(MessagesLost, match="topic 'sales' partition 0: 2 messages"):
        two.face(fails=True)


@PROPERTY
@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 300)), st.integers(0, 1 << 62)))
def test_equal_offsets_have_one_text(offsets: dict[tuple[int, int], int]) -> None:
    places = {PartitionKey(topic, f"topic {topic}", partition): at for (topic, partition), at in offsets.items()}
    text = json.dumps(stream_offsets.encode(places))
    again = json.dumps(stream_offsets.encode(dict(reversed(places.items()))))
    assert text == again
    assert stream_offsets.decode(json.loads(text)) == places


def test_a_checkpoint_of_version_1_is_read() -> None:
    found = stream_offsets.decode({"version": 1, "topic": "orders", "offsets": {"0": 3}})
    assert found == {PartitionKey(stream_offsets.UNKNOWN_ID, "orders", 0): 3}


def test_a_checkpoint_of_version_2_is_read() -> None:
    found = stream_offsets.decode({"version": 2, "topics": {"7": {"name": "orders", "offsets": {"0": 3, "2": 5}}}})
    assert found == {PLACES[0]: 3, PLACES[2]: 5}


@pytest.mark.parametrize("checkpoint", [{"version": 4, "topics": {}}, {}])
def test_a_checkpoint_of_another_version_is_refused(checkpoint: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="checkpoint"):
        stream_offsets.decode(checkpoint)
