"""Where to begin to read, as people write it: earliest, latest, an offset, so many from the end, or a time."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from headrace.cli.exits import Exit, Failure
from headrace.cli.output import print_note

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Time:
    """The first message at or after this time."""

    us: int


Place = Literal["earliest", "latest"] | int | Time


def parse_place(text: str, option: str = "--from") -> Place:
    """A place; a negative number counts from the end."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if _NUMBER.fullmatch(text):
        return int(text)
    if ago := _AGO.fullmatch(text):
        return Time(int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1_000_000))
    try:
        moment = datetime.fromisoformat(text)
        us = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        us = -1
    if us < 0:
        known = "earliest, latest, an offset, -N for the last N, a time such as 2026-07-01T12:00:00Z, or 15m ago as 15m"
        raise Failure(Exit.USAGE, f"{option} is {text!r}: it can be {known}")
    return Time(us)


def offset_at(place: Literal["earliest", "latest"] | int, start: int, end: int, whose: str | None = None) -> int:
    """The offset that a place means in a partition; where there are fewer messages, the nearest that there is.

    Who is named is told if messages before it are gone.
    """
    if place == "earliest":
        return start
    if place == "latest":
        return end
    if whose is not None and 0 <= place < start:
        print_note(f"{whose} begins at {start} now, not at {place}")
    return min(max(start, end + place if place < 0 else place), end)


def chosen_partitions(topic: str, partitions: Iterable[int], known: Collection[int]) -> list[int]:
    """The partitions that were asked for, which must be there, or all."""
    chosen = list(partitions) or list(known)
    for partition in chosen:
        if partition not in known:
            raise Failure(Exit.REFUSED, f"partition {partition} of {topic} does not exist: it has {len(known)}")
    return chosen
