"""Places in a topic: how they are written, and which offsets they are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.core.errors import InvalidInput
from headrace.spark.read.positions import (
    EARLIEST,
    LATEST,
    At,
    Back,
    Exact,
    Place,
    moment,
    parse_offsets,
    parse_time,
    resolve,
)

BOUNDS = {0: (10, 50), 1: (0, 5), 2: (7, 7)}


def nowhere(partition: int, time_us: int) -> int:
    raise AssertionError("no time was asked for")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("-100", Back(100)),
        ('{"1": 3, "0": "latest"}', Exact(((0, LATEST), (1, 3)))),
        ("{}", Exact(())),
    ],
)
def test_offsets_are_parsed(text: str, place: Place) -> None:
    assert parse_offsets("startingOffsets", text) == place


@pytest.mark.parametrize(
    "text",
    ["", "-0", "5", "soon", "[1]", '{"orders": {"0": 1}}', '{"0": -2}', '{"0": true}', '{"-1": 0}', '{"0": "x"}', "{"],
)
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="startingOffsets"):
        parse_offsets("startingOffsets", text)


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
    assert parse_time("startingTimestamp", text) == At(time_us)


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
    ("place", "offsets"),
    [
        (EARLIEST, {0: 10, 1: 0, 2: 7}),
        (LATEST, {0: 50, 1: 5, 2: 7}),
        (Back(10), {0: 40, 1: 0, 2: 7}),
        (Exact(((0, 3), (1, LATEST))), {0: 3, 1: 5, 2: 7}),
    ],
)
def test_places_are_offsets(place: Place, offsets: dict[int, int]) -> None:
    assert resolve("startingOffsets", place, BOUNDS, EARLIEST, nowhere) == offsets


def test_partitions_that_are_not_named_are_at_the_outer_end() -> None:
    assert resolve("endingOffsets", Exact(((0, 20),)), BOUNDS, LATEST, nowhere) == {0: 20, 1: 5, 2: 7}


def test_a_time_is_looked_up_in_each_partition() -> None:
    assert resolve("x", At(9), BOUNDS, EARLIEST, lambda partition, time_us: partition * 100 + time_us) == {
        0: 9,
        1: 109,
        2: 209,
    }


@pytest.mark.parametrize("places", [((3, 0),), ((1, 6),)])
def test_places_outside_the_topic_are_refused(places: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidInput, match="startingOffsets"):
        resolve("startingOffsets", Exact(places), BOUNDS, EARLIEST, nowhere)


def test_a_moment_is_at_most_the_end_of_the_calendar() -> None:
    assert moment(1) == datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert moment(1 << 62).year == 9999
