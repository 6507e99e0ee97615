"""The verdict on a history: violations of what docs/guarantees.md promises, and how much was checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from headrace.verify.checks.groups import check_groups
from headrace.verify.checks.messages import check_messages
from headrace.verify.checks.violation import Violation
from headrace.verify.history.events import Event, LogEnd, Note
from headrace.verify.history.index import HistoryIndex


class Verdict(msgspec.Struct, frozen=True):
    """What the checks say. A history that proves nothing is no success: `is_conclusive` says whether it does.

    acknowledged, unknown: messages by the outcome of their call. read: messages delivered to members, with repeats.
    dropped: messages that retention dropped. faults: what was noted beside the operations.
    """

    topic: str
    acknowledged: int
    unknown: int
    read: int
    dropped: int
    commits: int
    seeks: int
    faults: int
    is_conclusive: bool
    violations: list[Violation]

    @property
    def is_good(self) -> bool:
        """Whether something was checked and no promise was broken."""
        return self.is_conclusive and not self.violations

    @property
    def word(self) -> Literal["good", "violated", "inconclusive"]:
        """The verdict in one word."""
        if self.violations:
            return "violated"
        return "good" if self.is_conclusive else "inconclusive"


def check(events: Iterable[Event]) -> Verdict:
    """Check a whole history."""
    index = HistoryIndex()
    notes, is_read = 0, False
    for event in events:
        index.add(event)
        notes += isinstance(event, Note)
        is_read |= isinstance(event, LogEnd)
    violations = [*check_messages(index), *check_groups(index)]
    acknowledged = sum(len(call.messages) for call in index.publishes.values() if index.outcome_of(call) == "ok")
    unknown = sum(len(call.messages) for call in index.publishes.values() if index.outcome_of(call) == "unknown")
    return Verdict(
        topic=index.topic,
        acknowledged=acknowledged,
        unknown=unknown,
        read=sum(len(ids) for poll in index.polls for _, _, ids in poll.runs),
        dropped=sum(index.starts.values()),
        commits=sum(commit.outcome == "ok" for commit in index.commits),
        seeks=len(index.seeks),
        faults=notes,
        is_conclusive=acknowledged > 0 and is_read,
        violations=violations,
    )
