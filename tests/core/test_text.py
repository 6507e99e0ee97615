"""Numbers, sizes and durations in sentences."""

from __future__ import annotations

import pytest

from headrace.core.text import bytes_shown, counted, duration_shown


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (1_000, "message", "1,000 messages"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
    ],
)
def test_a_noun_agrees_with_its_number(count: int, noun: str, expected: str) -> None:
    assert counted(count, noun) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5,120.0 TiB")],
)
def test_sizes(size: int, expected: str) -> None:
    assert bytes_shown(size) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0 s"), (0.9, "0 s"), (59, "59 s"), (60, "1 m"), (725, "12 m 5 s"), (90_061, "1 d 1 h")],
)
def test_durations_in_their_two_largest_units(seconds: float, expected: str) -> None:
    assert duration_shown(seconds) == expected
