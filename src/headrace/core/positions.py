"""Positions in a topic: how they are written, and which offset of each partition they mean.

One grammar for every interface, the Python client, commands, HTTP and Spark:

    earliest            the oldest message kept
    latest              the end: only what is written from now on
    1200                this offset, in every partition
    -100                the last 100 messages of each partition
    15m or -15m         the first message at or after a time, here 15 minutes ago (s, m, h, d)
    2026-07-01T12:00Z   the same, ISO 8601; UTC if there is no zone
    {"0": 9, "1": "latest"} or 0:9,1:12    an offset, word or time for each partition named

Pure: the present time, the bounds of the partitions, and the way to find the offset of a time are arguments. `datetime`
is used to read dates, never as a clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from headrace.core.errors import InvalidInput
from headrace.core.limits import MICROSECONDS, SEQNO_MAX

Bounds = Mapping[int, tuple[int, int]]
# The first offsets at or after a time in microseconds, of some partitions.
OffsetsAtTime = Callable[[int, list[int]], Mapping[int, int]]

# The last millisecond of the year 9999; a larger number of milliseconds was probably meant as microseconds.
_MILLISECONDS_MAX: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_AGO: Final = re.compile(r"-?([0-9]{1,9})([smhd])", re.ASCII)
_AGO_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PAIRS: Final = re.compile(r"[0-9]{1,5}:[0-9]{1,19}(?:,[0-9]{1,5}:[0-9]{1,19})*", re.ASCII)
_RULE: Final = (
    "it must be earliest, latest, an offset, -N for the last N messages of each partition, a time such as "
    '2026-07-01T12:00:00Z, 15m for 15 minutes ago, or a position by partition such as {"0": 9, "1": "latest"}'
)
_TIME_RULE: Final = "it must be ISO 8601 (UTC if there is no zone) or milliseconds since 1970, up to the year 9999"


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest message kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class FromEnd:
    """The last N messages of each partition."""

    messages: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after a time."""

    time_us: int


@dataclass(frozen=True, slots=True)
class PerPartition:
    """A position for each partition named; the interface says where the others are."""

    positions: tuple[tuple[int, int | Earliest | Latest | AtTime], ...]


Position = Earliest | Latest | AtOffset | FromEnd | AtTime | PerPartition

EARLIEST: Final = Earliest()
LATEST: Final = Latest()
_WORDS: Final[dict[str, Earliest | Latest]] = {
    "earliest": EARLIEST,
    "latest": LATEST,
}


def parse_position(field: str, text: str, now_us: int | None = None) -> Position:
    """Parse a position from text; durations such as `15m` need the present time.

    >>> parse_position("--from", "-10")
    FromEnd(messages=10)
    """
    word = text.strip()
    if (named := _WORDS.get(word.lower())) is not None:
        return named
    if _NUMBER.fullmatch(word) and word != "-0":
        number = int(word)
        return FromEnd(-number) if number < 0 else AtOffset(_offset(field, number))
    if now_us is not None and (ago := _AGO.fullmatch(word)) is not None:
        return AtTime(max(0, now_us - int(ago[1]) * _AGO_SECONDS[ago[2]] * MICROSECONDS))
    if _PAIRS.fullmatch(word):
        return PerPartition(tuple(sorted(parse_pairs(field, word).items())))
    if word.startswith("{"):
        return _by_partition(field, text, word)
    time_us = _iso_time_us(word)
    if time_us is None:
        raise InvalidInput(field, repr(text)[:100], _RULE)
    return AtTime(time_us)


def position_of(field: str, value: object, now_us: int | None = None) -> Position:
    """Parse a position from a Python value: text, an offset, a datetime, or offsets by partition."""
    if isinstance(value, str):
        return parse_position(field, value, now_us)
    if isinstance(value, int) and not isinstance(value, bool):
        return FromEnd(-value) if value < 0 else AtOffset(_offset(field, value))
    if isinstance(value, datetime):
        return AtTime(microseconds(value, field))
    if isinstance(value, Mapping):
        return PerPartition(tuple(sorted(_entry(field, str(partition), place) for partition, place in value.items())))
    raise InvalidInput(field, repr(value)[:100], _RULE)


def parse_time(field: str, text: str) -> AtTime:
    """Parse a time from text, ISO 8601 or milliseconds since 1970.

    >>> parse_time("startingTimestamp", "2026-11-15T12:00:00Z") == parse_time("startingTimestamp", "1794744000000")
    True
    """
    word = text.strip()
    if word.isdecimal():
        if int(word) > _MILLISECONDS_MAX:
            raise InvalidInput(field, repr(text)[:100], f"{_TIME_RULE}; this looks like microseconds")
        return AtTime(int(word) * 1000)
    time_us = _iso_time_us(word)
    if time_us is None:
        raise InvalidInput(field, repr(text)[:100], _TIME_RULE)
    return AtTime(time_us)


def parse_pairs(field: str, text: str) -> dict[int, int]:
    """Offsets by partition, written as `0:17,3:4`."""
    if not _PAIRS.fullmatch(text):
        raise InvalidInput(field, ascii(text[:100]), "it must be partition:offset pairs, as in 0:17,3:4")
    pairs = [pair.split(":") for pair in text.split(",")]
    return unique(field, [(int(partition), int(offset)) for partition, offset in pairs])


def format_pairs(offsets: Mapping[int, int]) -> str:
    """Offsets by partition as text.

    >>> format_pairs({3: 4, 0: 17})
    '0:17,3:4'
    """
    return ",".join(f"{partition}:{offsets[partition]}" for partition in sorted(offsets))


def unique(field: str, pairs: list[tuple[int, int]]) -> dict[int, int]:
    """Pairs of partition and offset as a mapping; each partition may be named once."""
    offsets = dict(pairs)
    if len(offsets) < len(pairs):
        raise InvalidInput(field, f"{len(pairs)} positions", "each partition may be named once")
    return {partition: _offset(field, offset) for partition, offset in offsets.items()}


def microseconds(time: datetime, field: str = "time") -> int:
    """A time as microseconds since 1970; one without a zone is refused, because it is ambiguous.

    >>> microseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    if time.utcoffset() is None:
        rule = "it has no time zone: write datetime.now(UTC), or time.astimezone() for local time"
        raise InvalidInput(field, repr(time), rule)
    return (time - _EPOCH) // timedelta(microseconds=1)


def moment(time_us: int) -> datetime:
    """Microseconds since 1970 as a time, at most the end of the year 9999.

    >>> moment(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return _EPOCH + timedelta(microseconds=min(time_us, _MILLISECONDS_MAX * 1000))


def read_from(start: Position) -> Literal["earliest", "latest"] | int:
    """Where a new group starts; partitions without an offset are read from the oldest message on."""
    if isinstance(start, AtTime):
        return start.time_us
    return "latest" if isinstance(start, Latest) else "earliest"


def resolve(
    field: str, position: Position, bounds: Bounds, otherwise: Earliest | Latest, offsets_at: OffsetsAtTime
) -> dict[int, int]:
    """The offset of each partition at a position.

    bounds: start and end offset by partition.
    otherwise: the position of partitions that a `PerPartition` does not name.
    offsets_at: finds offsets by time; called once for each time that the position names.
    """
    if isinstance(position, PerPartition):
        places = _named_places(field, position, bounds, otherwise)
    else:
        places = dict.fromkeys(sorted(bounds), position)
    by_time: dict[int, list[int]] = {}
    offsets: dict[int, int] = {}
    for partition, place in places.items():
        if isinstance(place, AtTime):
            by_time.setdefault(place.time_us, []).append(partition)
        else:
            offsets[partition] = _resolved(place, bounds[partition])
    for time_us, partitions in by_time.items():
        found = offsets_at(time_us, partitions)
        offsets |= {partition: found[partition] for partition in partitions}
    return {partition: offsets[partition] for partition in places}


def _resolved(position: Earliest | Latest | AtOffset | FromEnd, bound: tuple[int, int]) -> int:
    start, end = bound
    if isinstance(position, AtOffset):
        return position.offset
    if isinstance(position, FromEnd):
        return max(start, end - position.messages)
    return start if isinstance(position, Earliest) else end


def _named_places(
    field: str, position: PerPartition, bounds: Bounds, otherwise: Earliest | Latest
) -> dict[int, Earliest | Latest | AtOffset | FromEnd | AtTime]:
    """The position of every partition, of those that are not named too."""
    named = dict(position.positions)
    for partition, place in named.items():
        if partition not in bounds:
            rule = f"the topic has partitions 0 to {len(bounds) - 1}"
            raise InvalidInput(field, f"an offset for partition {partition}", rule)
        if isinstance(place, int) and place > bounds[partition][1]:
            rule = f"the partition ends at {bounds[partition][1]}"
            raise InvalidInput(field, f"{place} for partition {partition}", rule)
    places = {partition: named.get(partition, otherwise) for partition in sorted(bounds)}
    return {partition: AtOffset(place) if isinstance(place, int) else place for partition, place in places.items()}


def _by_partition(field: str, text: str, word: str) -> PerPartition:
    try:
        given = json.loads(word)
    except ValueError:
        raise InvalidInput(field, repr(text)[:100], _RULE) from None
    return PerPartition(tuple(sorted(_entry(field, *item) for item in given.items())))


def _entry(field: str, partition: str, place: Any) -> tuple[int, int | Earliest | Latest | AtTime]:
    if not partition.isdecimal():
        raise InvalidInput(field, f"{partition!r} as a partition"[:100], _RULE)
    if isinstance(place, str) and place.lower() in _WORDS:
        return int(partition), _WORDS[place.lower()]
    if isinstance(place, str) and (time_us := _iso_time_us(place)) is not None:
        return int(partition), AtTime(time_us)
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        rule = "it must be an offset of 0 or more, 'earliest', 'latest', or a time such as 2026-07-01T12:00:00Z"
        raise InvalidInput(field, f"{place!r} for partition {partition}"[:100], rule)
    return int(partition), place


def _offset(field: str, offset: int) -> int:
    if offset > SEQNO_MAX:
        raise InvalidInput(field, str(offset), f"an offset is at most {SEQNO_MAX}")
    return offset


def _iso_time_us(word: str) -> int | None:
    try:
        time = datetime.fromisoformat(word)
        time_us = microseconds(time if time.utcoffset() is not None else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
    return time_us if 0 <= time_us <= _MILLISECONDS_MAX * 1000 + 999 else None
