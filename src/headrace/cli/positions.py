"""Where to begin to read, as people write it: earliest, latest, an offset, so many from the end, or a time."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from headrace.cli.exits import Exit, Failure

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
