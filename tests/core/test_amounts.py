"""Durations and sizes as people type them."""

from __future__ import annotations

import pytest

from headrace.core.amounts import BYTES, SECONDS, amount_typed, parse_amount
from headrace.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("number", "typed"), [(0, "0"), (90, "90"), (5400, "90m"), (604_800, "7d"), (86_401, "86401"), (None, "none")]
)
def test_durations_are_typed_in_their_largest_whole_unit(number: int | None, typed: str) -> None:
    assert amount_typed(number, SECONDS) == typed
    if number is not None:
        assert parse_amount("retention", typed, SECONDS) == number


def test_sizes_are_powers_of_two() -> None:
    assert parse_amount("size", "10G", BYTES) == 10 << 30
    assert amount_typed(10 << 30, BYTES) == "10G"
    assert amount_typed(1_000_000, BYTES) == "1000000"


@pytest.mark.parametrize("text", ["", "d", "1.5h", "-1d", "7 d", "7w", "٣d"])
def test_what_is_no_amount_is_refused_with_its_units(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_amount("retention", text, SECONDS)
    assert str(caught.value).startswith(f"retention is {text!r}: it must be a whole number")
    assert "s, m, h, d" in str(caught.value)
