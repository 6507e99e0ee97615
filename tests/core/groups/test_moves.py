"""Where a group goes, and what that skips or reads again."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.groups.moves import Move, Onward, effect_of, moves, parse_onward
from headrace.core.positions import EARLIEST, LATEST, AtOffset, AtTime, FromEnd, PerPartition, Position
from headrace.core.reports.descriptions import GroupDescription, PartitionProgress

BOUNDS = {0: (10, 100), 1: (0, 50), 2: (5, 5)}
GROUP = GroupDescription(
    "orders",
    "billing",
    None,
    False,
    "earliest",
    1,
    {},
    {0: PartitionProgress(40, 40, 100, 60, 1.0, None), 1: PartitionProgress(None, 0, 50, 50, 1.0, None)},
)


def at_time(time_us: int, partitions: list[int]) -> dict[int, int]:
    assert time_us == 7
    return {partition: {0: 70, 1: 50, 2: 5}[partition] for partition in partitions}


@pytest.mark.parametrize(
    ("position", "after"),
    [
        (EARLIEST, [10, 0, 5]),
        (LATEST, [100, 50, 5]),
        (AtOffset(20), [20, 20, 5]),
        (AtOffset(1_000), [100, 50, 5]),
        (FromEnd(20), [80, 30, 5]),
        (Onward(1), [41, 1, 5]),
        (Onward(-10), [30, 0, 5]),
        (Onward(1_000), [100, 50, 5]),
        (AtTime(7), [70, 50, 5]),
    ],
)
def test_where_a_group_goes(position: Position | Onward, after: list[int]) -> None:
    found = moves("place", GROUP, BOUNDS, position, at_time)
    assert [move.after for move in found] == after
    assert [move.before for move in found] == [40, 0, 5]


def test_only_some_partitions() -> None:
    assert [move.partition for move in moves("place", GROUP, BOUNDS, LATEST, at_time, [1, 9])] == [1]
    named = PerPartition(((0, 12), (2, LATEST)))
    assert moves("place", GROUP, BOUNDS, named, at_time) == [Move(0, 40, 12), Move(2, 5, 5)], "the others stay"
    assert moves("place", GROUP, BOUNDS, named, at_time, [2]) == [Move(2, 5, 5)]
    with pytest.raises(InvalidInput, match="partitions 0 to 2"):
        moves("place", GROUP, BOUNDS, PerPartition(((3, 1),)), at_time)


def test_what_it_skips_and_reads_again() -> None:
    assert (Move(0, 40, 100).skipped, Move(0, 40, 100).read_again) == (60, 0)
    assert (Move(0, 40, 10).skipped, Move(0, 40, 10).read_again) == (0, 30)
    assert Move(0, 40, 41).effect == "skips 1 message"
    assert Move(0, 40, 10).effect == "reads 30 messages again"
    assert effect_of([Move(0, 4, 4)]) == ""


@pytest.mark.parametrize(
    ("text", "onward"),
    [
        ("+1", Onward(1)),
        (" +20 ", Onward(20)),
        ("+0", Onward(0)),
        ("1", None),
        ("-1", None),
        ("+", None),
        ("+1m", None),
        ("+²", None),
        ("++1", None),
        ("+" + "1" * 20, None),
    ],
)
def test_messages_onward(text: str, onward: Onward | None) -> None:
    assert parse_onward(text) == onward
