"""Histories made by hand: a good one, in parts that tests replace by bad ones."""

from __future__ import annotations

from headrace.verify.checks.verdict import Verdict, check
from headrace.verify.history.events import (
    Began,
    Event,
    GroupSeen,
    LogEnd,
    LogRead,
    OffsetsCommitted,
    OffsetsSeen,
    Outcome,
    Poll,
    PublishEnded,
    PublishStarted,
    SeekStarted,
    Sought,
)

BEGAN = Began("orders")
Places = list[tuple[int, int] | None]


def sent(
    number: int,
    messages: list[str],
    places: Places | None,
    outcome: Outcome = "ok",
    source: str | None = "a",
    keys: list[str] | None = None,
    is_one_commit: bool = True,
) -> list[Event]:
    """A publish and its end; without places it never ended."""
    call = PublishStarted(
        number, messages[0].partition(":")[0], source, messages, number * 10, keys or [], is_one_commit
    )
    return [call] if places is None else [call, PublishEnded(number, outcome, number * 10 + 5, places)]


def log(partition: int, *messages: str, start: int = 0, end: int | None = None) -> list[Event]:
    """A partition as it was read at the end."""
    stop = start + len(messages) if end is None else end
    return [LogRead(partition, start, list(messages)), LogEnd(partition, start, stop)]


def polled(
    at: int, offset: int, *messages: str, member: str = "m", generation: int | None = 1, partition: int = 0
) -> Poll:
    """Messages given to a member of the group."""
    return Poll("billing", member, generation, [partition], [(partition, offset, list(messages))], at - 1, at)


def committed(at: int, offset: int, outcome: Outcome = "ok") -> OffsetsCommitted:
    """An offset committed by a member of the group."""
    return OffsetsCommitted("billing", "m", {0: offset}, outcome, at - 1, at)


def seen(
    at: int,
    offset: int,
    generation: int = 1,
    members: dict[str, list[int]] | None = None,
    important: bool = False,
    called: int | None = None,
) -> GroupSeen:
    """The group as a server described it."""
    called_ns = at - 1 if called is None else called
    return GroupSeen("billing", generation, important, members or {}, {0: offset}, called_ns, at)


def sought(number: int, at: int, offset: int, outcome: Outcome | None = "ok") -> list[Event]:
    """A seek and its end; without an outcome it never ended."""
    seek = SeekStarted(number, "billing", {0: offset}, at)
    return [seek] if outcome is None else [seek, Sought(number, outcome, at + 5)]


def started(start: int) -> OffsetsSeen:
    """Retention dropped what is below."""
    return OffsetsSeen({0: (start, start + 10)}, 1_000)


def verdict_on(*parts: Event | list[Event]) -> Verdict:
    """The verdict on a history put together from parts."""
    events: list[Event] = [BEGAN]
    for part in parts:
        events += part if isinstance(part, list) else [part]
    return check(events)


def kinds(*parts: Event | list[Event]) -> list[str]:
    """The kinds of violations in a history put together from parts."""
    return [violation.kind for violation in verdict_on(*parts).violations]
