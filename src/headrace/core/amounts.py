"""Durations and sizes as people type them: 90m, 7d, 500M. The same in commands and in the console. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.core.errors import InvalidInput

SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES: Final[Mapping[str, int]] = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What people type for no limit.
NONE: Final = "none"
# What is suggested to who creates a topic: long enough for a holiday weekend, and a disk does not fill for ever.
RETENTION_SUGGESTED: Final = "7d"


def parse_amount(field: str, text: str, units: Mapping[str, int]) -> int:
    """Parse a whole number with an optional unit; an error names the field."""
    number, unit = (text[:-1], units[text[-1:]]) if text[-1:] in units else (text, 1)
    if not (number.isascii() and number.isdecimal()):
        rule = f"it must be a whole number, optionally followed by {', '.join(units)}"
        raise InvalidInput(field, repr(text), rule)
    return int(number) * unit


def amount_typed(number: int | None, units: Mapping[str, int]) -> str:
    """How an amount is typed, in its largest whole unit: 604800 seconds are 7d, and no limit is none."""
    if number is None:
        return NONE
    fitting = [(size, unit) for unit, size in units.items() if size > 1 and number and number % size == 0]
    size, unit = max(fitting, default=(1, ""))
    return f"{number // size}{unit}"
