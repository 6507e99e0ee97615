"""Numbers in sentences."""

from __future__ import annotations

import pytest

from headrace.core.text import counted


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
