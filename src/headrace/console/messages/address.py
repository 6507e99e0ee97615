"""What a list of messages shows, as the query of its address: start, filters, search and the opened message. Pure.

    /topic?name=orders&tab=messages&start=offset&offset=5&partition=2&count=100&search=ann&kind=text&message=2-7

Times are in UTC, so that an address means the same in every zone. What a query says wrongly is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from headrace.client.where.expression import EXPRESSION_CHARACTERS_MAX
from headrace.console.messages.reader import Start
from headrace.console.view import text

SearchKind = Literal["text", "expression"]
COUNTS: Final = (25, 50, 100, 200)
COUNT: Final = 50
_DIGITS_MAX: Final = 18


@dataclass(frozen=True)
class ListAddress:
    """What a list shows; `message` is the partition and offset of the one that is open."""

    start: Start = "newest"
    offset: int = 0
    time: datetime | None = None
    partition: int | None = None
    count: int = COUNT
    search: str = ""
    kind: SearchKind = "text"
    message: tuple[int, int] | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListAddress:
        """What a query asks for."""
        start, kind, count = query.get("start", ""), query.get("kind", ""), _number(query.get("count"))
        partition, _, offset = query.get("message", "").partition("-")
        place = _number(partition), _number(offset)
        return cls(
            start=start if start in get_args(Start) else "newest",  # type: ignore[arg-type]
            offset=_number(query.get("offset")) or 0,
            time=_time(query.get("time", "")),
            partition=_number(query.get("partition")),
            count=count if count in COUNTS else COUNT,
            search=query.get("search", "")[:EXPRESSION_CHARACTERS_MAX],
            kind="expression" if kind == "expression" else "text",
            message=None if place[0] is None or place[1] is None else (place[0], place[1]),
        )

    def page(self, topic: str) -> str:
        """The address; what is as usual is left out."""
        return text.topic_page(
            topic,
            "messages",
            start=None if self.start == "newest" else self.start,
            offset=self.offset if self.start == "offset" else None,
            time=self.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if self.start == "time" and self.time is not None
            else None,
            partition=self.partition,
            count=None if self.count == COUNT else self.count,
            search=self.search or None,
            kind=self.kind if self.search and self.kind != "text" else None,
            message=None if self.message is None else f"{self.message[0]}-{self.message[1]}",
        )


def _number(shown: str | None) -> int | None:
    is_number = shown is not None and shown.isascii() and shown.isdecimal() and len(shown) <= _DIGITS_MAX
    return int(shown) if is_number and shown is not None else None


def _time(shown: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
