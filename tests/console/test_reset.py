"""The preview of a reset."""

from __future__ import annotations

import pytest

from headrace.console.reset import Move, Target, moves
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


@pytest.mark.parametrize(
    ("target", "number", "after"),
    [
        ("earliest", 0, [10, 0, 5]),
        ("latest", 0, [100, 50, 5]),
        ("offset", 20, [20, 20, 5]),
        ("offset", 1_000, [100, 50, 5]),
        ("delta", -10, [30, 0, 5]),
        ("delta", 1_000, [100, 50, 5]),
        ("time", 0, [70, 50, 5]),
    ],
)
def test_where_a_group_goes(target: Target, number: int, after: list[int]) -> None:
    found = moves(GROUP, BOUNDS, target, number, {0: 70})
    assert [move.after for move in found] == after
    assert [move.before for move in found] == [40, 0, 5]


def test_what_it_skips_and_reads_again() -> None:
    assert (Move(0, 40, 100).skipped, Move(0, 40, 100).read_again) == (60, 0)
    assert (Move(0, 40, 10).skipped, Move(0, 40, 10).read_again) == (0, 30)
    assert [move.partition for move in moves(GROUP, BOUNDS, "latest", partitions=[1, 9])] == [1]
