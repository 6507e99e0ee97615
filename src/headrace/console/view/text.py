"""Numbers, sizes, times and names as people read them; addresses of pages. Pure."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from headrace.core.text import bytes_shown

# Terminal control sequences and other invisible characters do nothing in a browser; here they are made visible. Halves
# of surrogate pairs, which JSON may contain as escapes, cannot be sent to a browser at all.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def count(number: float | None) -> str:
    """A whole number with separators, or a dash."""
    return "–" if number is None else f"{number:,.0f}"


def short_count(number: float) -> str:
    """A number in at most five characters: 950, 1.2k, 3.4M."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or unit == "T":
            digits = 0 if unit == "" and (number == int(number) or abs(number) >= 100) else 1
            return f"{number:.{digits}f}{unit}"
        number /= 1000
    raise AssertionError("unreachable")


def rate(number: float) -> str:
    """Messages per second."""
    return f"{short_count(number)}/s"


def size(number: float | None) -> str:
    """A number of bytes, in the units that settings are typed in."""
    return "–" if number is None else bytes_shown(round(number))


def byte_rate(number: float) -> str:
    """Bytes per second."""
    return f"{size(number)}/s"


def duration(seconds: float | None) -> str:
    """A duration in its two largest units; `forever` without one."""
    if seconds is None:
        return "forever"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= length and len(parts) < 2:
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
    return " ".join(parts)


def milliseconds(seconds: float | None) -> str:
    """A latency."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def iso(microseconds: int) -> str:
    """A time in UTC, as the element `time` wants it."""
    try:
        moment = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def visible(text: str) -> str:
    """Text with its control characters shown as escapes, so that none hides or reorders what follows."""
    return _CONTROL.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}", text
    )


def page(path: str, **query: str | int | None) -> str:
    """The address of a page; names are in the query, where every character is allowed."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def topic_page(topic: str, tab: str | None = None, **query: str | int | None) -> str:
    """The address of a topic."""
    return page("/topic", name=topic, tab=tab, **query)


def group_page(topic: str, group: str) -> str:
    """The address of a group."""
    return page("/group", topic=topic, name=group)


def shell(name: str) -> str:
    """A name as an argument of a shell command."""
    return shlex.quote(visible(name))
