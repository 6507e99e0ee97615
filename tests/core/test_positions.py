"""Places in a topic: how they are written, and which offsets they are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.positions import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtTime,
    FromEnd,
    PerPartition,
    Position,
    format_pairs,
    microseconds,
    moment,
    parse_pairs,
    parse_position,
    parse_time,
    position_of,
    read_from,
    resolve,
)

BOUNDS = {0: (10, 50), 1: (0, 5), 2: (7, 7)}


def nowhere(time_us: int, partitions: list[int]) -> dict[int, int]:
    raise AssertionError("no time was asked for")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("5", AtOffset(5)),
        ("-100", FromEnd(100)),
        ("90s", AtTime(10_000_000)),
        ("30d", AtTime(0)),
        ("1970-01-01T00:00:01Z", AtTime(1_000_000)),
        ("0:17,3:4", PerPartition(((0, 17), (3, 4)))),
        ('{"1": 3, "0": "latest"}', PerPartition(((0, LATEST), (1, 3)))),
        ("{}", PerPartition(())),
        ('{"0": "1970-01-01T00:00:02Z"}', PerPartition(((0, AtTime(2_000_000)),))),
    ],
)
def test_positions_are_parsed(text: str, position: Position) -> None:
    assert parse_position("startingOffsets", text, now_us=100_000_000) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-0",
        "soon",
        "[1]",
        '{"orders": {"0": 1}}',
        '{"0": -2}',
        '{"0": true}',
        '{"-1": 0}',
        '{"0": "x"}',
        "{",
        "9999999999999999999",
        "1969-12-31",
        "0:1,0:2",
        "0:9999999999999999999",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_other_positions_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="startingOffsets"):
        parse_position("startingOffsets", text, now_us=0)


def test_a_duration_needs_the_present_time() -> None:
    with pytest.raises(InvalidInput, match="15m"):
        parse_position("startingOffsets", "15m")


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("latest", LATEST),
        (7, AtOffset(7)),
        (-7, FromEnd(7)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), AtTime(1_000_000)),
        ({1: 5, 0: "earliest"}, PerPartition(((0, EARLIEST), (1, 5)))),
    ],
)
def test_python_values_are_positions(value: object, position: Position) -> None:
    assert position_of("start", value) == position


@pytest.mark.parametrize("value", [None, True, 1.5, b"earliest", {"x": 1}, {0: -1}, 2**63])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="start"):
        position_of("start", value)


def test_pairs_are_text_and_back() -> None:
    assert parse_pairs("id", format_pairs({3: 4, 0: 17})) == {0: 17, 3: 4}
    with pytest.raises(InvalidInput, match="pairs"):
        parse_pairs("id", "0:1,")


def test_a_time_without_a_zone_is_refused() -> None:
    assert microseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000
    with pytest.raises(InvalidInput, match=r"start is datetime.datetime\(1970.*\): it has no time zone"):
        position_of("start", datetime(1970, 1, 1, 0, 0, 1))


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("0", 0),
        ("1500", 1_500_000),
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("253402300799999", 253_402_300_799_999_000),
        ("9999-12-31T23:59:59.999999", 253_402_300_799_999_999),
    ],
)
def test_times_are_parsed(text: str, time_us: int) -> None:
    assert parse_time("startingTimestamp", text) == AtTime(time_us)


@pytest.mark.parametrize(
    "text", ["now", "-5", "1969-12-31", "1.5", "253402300800000", "1794700000000000", "2026-13-01"]
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="startingTimestamp"):
        parse_time("startingTimestamp", text)


def test_microseconds_by_mistake_are_named() -> None:
    with pytest.raises(InvalidInput, match="looks like microseconds"):
        parse_time("endingTimestamp", "1794700000000000")


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (EARLIEST, {0: 10, 1: 0, 2: 7}),
        (LATEST, {0: 50, 1: 5, 2: 7}),
        (AtOffset(3), {0: 3, 1: 3, 2: 3}),
        (FromEnd(10), {0: 40, 1: 0, 2: 7}),
        (PerPartition(((0, 3), (1, LATEST))), {0: 3, 1: 5, 2: 7}),
    ],
)
def test_places_are_offsets(position: Position, offsets: dict[int, int]) -> None:
    assert resolve("startingOffsets", position, BOUNDS, EARLIEST, nowhere) == offsets


def test_partitions_that_are_not_named_are_at_the_outer_end() -> None:
    assert resolve("endingOffsets", PerPartition(((0, 20),)), BOUNDS, LATEST, nowhere) == {0: 20, 1: 5, 2: 7}


def test_a_time_is_looked_up_once_for_all_its_partitions() -> None:
    asked: list[tuple[int, list[int]]] = []

    def offsets_at(time_us: int, partitions: list[int]) -> dict[int, int]:
        asked.append((time_us, partitions))
        return {partition: partition * 100 + time_us for partition in partitions}

    assert resolve("x", AtTime(9), BOUNDS, EARLIEST, offsets_at) == {0: 9, 1: 109, 2: 209}
    named = PerPartition(((0, AtTime(4)), (2, AtTime(4))))
    assert resolve("x", named, BOUNDS, LATEST, offsets_at) == {0: 4, 1: 5, 2: 204}
    apart = PerPartition(((1, AtTime(3)), (2, AtTime(1))))
    assert resolve("x", apart, BOUNDS, LATEST, offsets_at) == {0: 50, 1: 103, 2: 201}
    assert asked == [(9, [0, 1, 2]), (4, [0, 2]), (3, [1]), (1, [2])]


@pytest.mark.parametrize("places", [((3, 0),), ((1, 6),)])
def test_places_outside_the_topic_are_refused(places: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidInput, match="startingOffsets"):
        resolve("startingOffsets", PerPartition(places), BOUNDS, EARLIEST, nowhere)


@pytest.mark.parametrize(
    ("position", "start"), [(EARLIEST, "earliest"), (LATEST, "latest"), (AtTime(7), 7), (AtOffset(3), "earliest")]
)
def test_a_group_begins_at_a_position(position: Position, start: str | int) -> None:
    assert read_from(position) == start


def test_a_moment_is_at_most_the_end_of_the_calendar() -> None:
    assert moment(1) == datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert moment(1 << 62).year == 9999
