"""The promises about messages, each as a function from a history to the violations found in it. All of them are pure.

A message exists if it is in the log at the end, or was delivered before retention dropped it. A message
below the start of its partition that nobody was given has expired: nothing can be said about it, unless an important
group has to have been given it, which `groups.py` checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.verify.checks.violation import Violation
from headrace.verify.history.events import PublishStarted
from headrace.verify.history.index import HistoryIndex, Place


@dataclass(slots=True)
class _Existing:
    """Where each message was seen, and which call sent it."""

    places: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    calls: dict[str, PublishStarted] = field(default_factory=dict)


def check_messages(history: HistoryIndex) -> Iterator[Violation]:
    """All promises about messages."""
    existing = _Existing()
    for place, messages in history.seen.items():
        for message in messages:
            existing.places[message].add(place)
    for call in history.publishes.values():
        for message in call.messages:
            existing.calls[message] = call
    yield from _contradictions(history)
    yield from _foreign(existing)
    yield from _acknowledged_once(history, existing)
    yield from _whole_commits(history, existing)
    yield from _dense(history)
    yield from _ordered(history, existing)
    yield from _together(history, existing)
    for failed in history.failures:
        yield Violation("client_failed", f"{failed.client}: {failed.error}")


def _contradictions(history: HistoryIndex) -> Iterator[Violation]:
    for (partition, offset), messages in history.seen.items():
        if len(messages) > 1:
            yield Violation("contradiction", f"partition {partition}, offset {offset}: {sorted(messages)}")


def _foreign(existing: _Existing) -> Iterator[Violation]:
    for message, places in existing.places.items():
        if message not in existing.calls:
            yield Violation("foreign", f"{message!r} at {sorted(places)}")


def _acknowledged_once(history: HistoryIndex, existing: _Existing) -> Iterator[Violation]:
    """Acknowledged messages exist once and where their receipt says, unknown ones at most once, refused ones never."""
    for call in history.publishes.values():
        outcome, result = history.outcome_of(call), history.results.get(call.number)
        receipts = result.places if result is not None and result.places else [None] * len(call.messages)
        for message, receipt in zip(call.messages, receipts, strict=True):
            places = existing.places.get(message, set())
            if len(places) > 1:
                yield Violation("doubled", f"{message} ({outcome}) at {sorted(places)}")
            elif places and outcome == "failed":
                error = result.error if result is not None else ""
                yield Violation("phantom", f"{message} at {sorted(places)}, refused with: {error}")
            elif places and receipt is not None and receipt not in places:
                yield Violation("misplaced", f"{message} has the receipt {receipt} and is at {sorted(places)}")
            elif not places and outcome == "ok" and not _is_excused(history, receipt):
                at = f"with the receipt {receipt}" if receipt is not None else "without a place"
                yield Violation("lost", f"{message} was acknowledged {at}")


def _is_excused(history: HistoryIndex, receipt: Place | None) -> bool:
    return _is_expired(history, receipt) or _has_gap(history, receipt)


def _is_expired(history: HistoryIndex, receipt: Place | None) -> bool:
    """Whether retention may have dropped it unseen; an important group must have been given what is dropped."""
    if any(seen.important for seen in history.groups):
        # Without a receipt it may have been anywhere below what was dropped.
        places = [receipt] if receipt is not None else [(partition, 0) for partition in history.starts]
        return any(offset < history.starts[part] and history.passed_by_seek(part, offset) for part, offset in places)
    return any(history.starts.values()) if receipt is None else receipt[1] < history.starts[receipt[0]]


def _has_gap(history: HistoryIndex, receipt: Place | None) -> bool:
    """Whether the server reports that the place of a receipt cannot be read: a loss that is not silent."""
    return receipt is not None and any(
        gap.partition == receipt[0] and gap.start <= receipt[1] < gap.end for gap in history.gaps
    )


def _whole_commits(history: HistoryIndex, existing: _Existing) -> Iterator[Violation]:
    if _is_expired(history, None):
        return
    for call in history.publishes.values():
        if not call.is_one_commit or history.outcome_of(call) == "ok":
            continue
        there = [message for message in call.messages if message in existing.places]
        if 0 < len(there) < len(call.messages):
            missing = len(call.messages) - len(there)
            yield Violation("torn_commit", f"call {call.number} of {call.client}: {there[0]} exists, {missing} do not")


def _dense(history: HistoryIndex) -> Iterator[Violation]:
    """Every offset from start to end can be read, apart from gaps that the server reports."""
    for partition, bounds in sorted(history.ends.items()):
        known = {offset for offset, _ in history.log[partition]}
        reported = [(gap.start, gap.end) for gap in history.gaps if gap.partition == partition]
        missing = [
            offset
            for offset in range(bounds.start, bounds.end)
            if offset not in known and not any(start <= offset < end for start, end in reported)
        ]
        if missing:
            what = f"{len(missing)} offsets from {missing[0]} to {missing[-1]} of {bounds.start} to {bounds.end}"
            yield Violation("gap", f"partition {partition}: {what}")


def _ordered(history: HistoryIndex, existing: _Existing) -> Iterator[Violation]:
    """Within a partition the messages of one source and key are in the order sent."""
    last: dict[tuple[int, str, str], int] = {}
    for place in sorted(history.seen):
        for message in history.seen[place]:
            call = existing.calls.get(message)
            if call is None or (call.source is None and history.outcome_of(call) != "ok"):
                # Without a source, a message whose answer was lost may be written after those sent later.
                continue
            number = int(message.rpartition(":")[2])
            line = place[0], call.client, _key_of(call, message)
            if number <= last.get(line, -1):
                yield Violation("out_of_order", f"{message} at {place} stands behind number {last[line]} of {line}")
            last[line] = max(number, last.get(line, -1))


def _together(history: HistoryIndex, existing: _Existing) -> Iterator[Violation]:
    """The messages of one key are in one partition, and in one more each time that the topic grew."""
    partitions: dict[str, set[int]] = defaultdict(set)
    for message, places in existing.places.items():
        call = existing.calls.get(message)
        key = "" if call is None else _key_of(call, message)
        if key:
            partitions[key] |= {partition for partition, _ in places}
    for key, found in partitions.items():
        if len(found) > 1 + history.growths:
            yield Violation("scattered", f"key {key!r} in partitions {sorted(found)}, {history.growths} growths")


def _key_of(call: PublishStarted, message: str) -> str:
    return call.keys[call.messages.index(message)] if call.keys else ""
