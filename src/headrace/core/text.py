"""Numbers, sizes and durations in sentences for people, the same in every interface. Pure."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """1 message, 2 messages, 1,000 batches."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def bytes_shown(count: int) -> str:
    """Format a size in bytes for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def duration_shown(seconds: float) -> str:
    """Format a duration for people, in its largest two units."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2])


def time_shown(time_us: int) -> str:
    """Format a time for people, in UTC."""
    # Commands that show no time start without it.
    import numpy as np

    seconds = np.datetime64(time_us // 1_000_000, "s")
    return f"{seconds} UTC".replace("T", " ", 1)
