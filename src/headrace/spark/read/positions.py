"""Places in a topic: what `startingOffsets`, `endingOffsets` and their times may say, and which offsets that is.

Pure: the offsets of the topic, and the way to find the offset of a time, come in as arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.client.message import microseconds
from headrace.core.errors import InvalidInput

Bounds = Mapping[int, tuple[int, int]]

# The last millisecond of the year 9999, which is also where microseconds given by mistake are told apart.
_MILLISECONDS_MAX: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS_RULE: Final = (
    'it must be earliest, latest, -N for the last N messages of each partition, or JSON such as {"0": 9, "1": "latest"}'
)
_TIME_RULE: Final = "it must be ISO 8601 (without a zone it is UTC) or milliseconds since 1970, up to the year 9999"


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest message kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end."""


@dataclass(frozen=True, slots=True)
class Back:
    """So many messages before the end of each partition."""

    messages: int


@dataclass(frozen=True, slots=True)
class At:
    """The first message at or after a time."""

    time_us: int


@dataclass(frozen=True, slots=True)
class Exact:
    """A place for each partition named; the others are at the outer end of what is there."""

    places: tuple[tuple[int, int | Earliest | Latest], ...]


Place = Earliest | Latest | Back | At | Exact

EARLIEST: Final = Earliest()
LATEST: Final = Latest()
_WORDS: Final[dict[str, Earliest | Latest]] = {"earliest": EARLIEST, "latest": LATEST}


def parse_offsets(name: str, text: str) -> Place:
    """The place that an option names.

    >>> parse_offsets("startingOffsets", "-10")
    Back(messages=10)
    """
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if word.startswith("-") and word[1:].isdecimal() and int(word) < 0:
        return Back(-int(word))
    try:
        given = json.loads(word)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InvalidInput(name, repr(text)[:100], _OFFSETS_RULE)
    return Exact(tuple(sorted(_entry(name, *item) for item in given.items())))


def _entry(name: str, partition: str, place: Any) -> tuple[int, int | Earliest | Latest]:
    if not partition.isdecimal():
        raise InvalidInput(name, f"{partition!r} as a partition"[:100], _OFFSETS_RULE)
    if isinstance(place, str) and place.lower() in _WORDS:
        return int(partition), _WORDS[place.lower()]
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        rule = "an offset must be 0 or more, or 'earliest' or 'latest'"
        raise InvalidInput(name, f"{place!r} for partition {partition}"[:100], rule)
    return int(partition), place


def parse_time(name: str, text: str) -> At:
    """The time that an option names.

    >>> parse_time("startingTimestamp", "2026-11-15T12:00:00Z") == parse_time("startingTimestamp", "1794744000000")
    True
    """
    word = text.strip()
    if word.isdecimal():
        if int(word) > _MILLISECONDS_MAX:
            raise InvalidInput(name, repr(text)[:100], f"{_TIME_RULE}; this looks like microseconds")
        return At(int(word) * 1000)
    try:
        given = datetime.fromisoformat(word)
    except ValueError:
        raise InvalidInput(name, repr(text)[:100], _TIME_RULE) from None
    time_us = microseconds(given)
    if not 0 <= time_us <= _MILLISECONDS_MAX * 1000 + 999:
        raise InvalidInput(name, repr(text)[:100], _TIME_RULE)
    return At(time_us)


def moment(time_us: int) -> datetime:
    """Microseconds since 1970 as a time, at most the end of the year 9999.

    >>> moment(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return _EPOCH + timedelta(microseconds=min(time_us, _MILLISECONDS_MAX * 1000))


def resolve(
    name: str, place: Place, bounds: Bounds, otherwise: Earliest | Latest, at: Callable[[int, int], int]
) -> dict[int, int]:
    """The offset of each partition at a place.

    bounds: start and end offset by partition.
    otherwise: where partitions are that a place for some does not name.
    at: the first offset of a partition at or after a time.
    """
    if isinstance(place, Exact):
        return _exact(name, place, bounds, otherwise)
    return {partition: _offset(place, partition, bounds[partition], at) for partition in sorted(bounds)}


def _offset(place: Earliest | Latest | Back | At, partition: int, bound: tuple[int, int], at: Any) -> int:
    start, end = bound
    if isinstance(place, Back):
        return max(start, end - place.messages)
    if isinstance(place, At):
        return int(at(partition, place.time_us))
    return start if isinstance(place, Earliest) else end


def _exact(name: str, place: Exact, bounds: Bounds, otherwise: Earliest | Latest) -> dict[int, int]:
    named = dict(place.places)
    for partition, given in named.items():
        if partition not in bounds:
            rule = f"the topic has partitions 0 to {len(bounds) - 1}"
            raise InvalidInput(name, f"an offset for partition {partition}", rule)
        if isinstance(given, int) and given > bounds[partition][1]:
            rule = f"the partition ends at {bounds[partition][1]}"
            raise InvalidInput(name, f"{given} for partition {partition}", rule)
    found = {}
    for partition in sorted(bounds):
        given = named.get(partition, otherwise)
        found[partition] = given if isinstance(given, int) else bounds[partition][0 if given == EARLIEST else 1]
    return found
