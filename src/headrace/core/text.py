"""Numbers in sentences for people, the same in every interface. Pure."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """1 message, 2 messages, 1,000 batches."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
