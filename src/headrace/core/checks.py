"""Range checks for every number that a caller gives, with one wording of the error."""

from __future__ import annotations

import math
import operator

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX

# The longest time that the system's clocks can wait for.
_WAIT_SECONDS_MAX = 1e6


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """Check a whole number, of Python or numpy, against its bounds."""
    number = whole_or_none(value)
    if number is None or not least <= number <= most:
        raise InvalidInput(field, repr(value)[:100], f"it must be a whole number from {least} to {most}")
    return number


def check_number(field: str, value: object, least: float, most: float) -> float:
    """Check a number against its bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        rule = (
            f"it must be at least {least:g}" if most == math.inf else f"it must be a number from {least:g} to {most:g}"
        )
        raise InvalidInput(field, repr(value)[:100], rule)
    return value


def check_seconds(field: str, value: object, most: float = math.inf) -> float:
    """Check a timeout; infinity becomes the longest time that the system can wait."""
    return min(check_number(field, value, 0, most), _WAIT_SECONDS_MAX)


def check_index(field: str, value: object) -> int:
    """Check that a value is a whole number; the topic checks its bounds."""
    number = whole_or_none(value)
    if number is None:
        raise InvalidInput(field, repr(value)[:100], "it must be a whole number")
    return number


def check_partitions(partitions: object) -> int:
    """Check a number of partitions."""
    return check_whole("partitions", partitions, 1, PARTITIONS_MAX)


def whole_or_none(value: object) -> int | None:
    """The value as an int if it is a whole number of Python or numpy; None otherwise, also for booleans."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
