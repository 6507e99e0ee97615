"""Numbers within bounds: the one check for every value that a caller gives, with one wording of the error."""

from __future__ import annotations

import math
import operator

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX

# What the system's clocks can wait for at most, and longer than anyone does.
_WAIT_SECONDS_MAX = 1e6


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds, of Python or numpy."""
    number = whole_or_none(value)
    if number is None or not least <= number <= most:
        raise InvalidInput(field, repr(value)[:100], f"it must be a whole number from {least} to {most}")
    return number


def check_number(field: str, value: object, least: float, most: float) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        rule = (
            f"it must be at least {least:g}" if most == math.inf else f"it must be a number from {least:g} to {most:g}"
        )
        raise InvalidInput(field, repr(value)[:100], rule)
    return value


def check_seconds(field: str, value: object, most: float = math.inf) -> float:
    """A time to wait; an infinite one is as long as the system can wait."""
    return min(check_number(field, value, 0, most), _WAIT_SECONDS_MAX)


def check_index(field: str, value: object) -> int:
    """A whole number whose bounds only the topic knows."""
    number = whole_or_none(value)
    if number is None:
        raise InvalidInput(field, repr(value)[:100], "it must be a whole number")
    return number


def check_partitions(partitions: object) -> int:
    """A number of partitions that a topic may have."""
    return check_whole("partitions", partitions, 1, PARTITIONS_MAX)


def whole_or_none(value: object) -> int | None:
    """A whole number of Python or numpy; none for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
