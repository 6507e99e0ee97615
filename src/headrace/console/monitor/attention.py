"""What needs attention, for one visitor: the rules of `wire.attention` over the samples of the last hour.

Trends need about a snapshot a minute, so that many are kept, of the metrics that the rules name. A visitor sees what
concerns topics they may read; what concerns the store, those who may read all topics; and the end of their own token.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.console.monitor.sample import Sample
from headrace.wire.attention import DISK_WINDOW_SECONDS, RULES, Concern, ConcernPlace, Snapshot, attention

STEP_SECONDS: Final = 60.0
FINDINGS_MAX: Final = 20
TOKEN_SECONDS: Final = 7 * 86_400.0

WATCHED: Final = frozenset(name for rule in RULES for name in re.findall(r"headrace_\w+", rule.expression))


class Attention:
    """The snapshots of the last hour, and what they mean. One thread adds, any may ask."""

    def __init__(self) -> None:
        self._minutes: deque[Snapshot] = deque(maxlen=int(DISK_WINDOW_SECONDS / STEP_SECONDS) + 2)
        self._found: list[Concern] = []

    def add(self, sample: Sample) -> None:
        """Judge a sample."""
        snapshot = Snapshot(sample.time, sample.watched)
        self._found = attention([*self._minutes, snapshot])
        if not self._minutes or sample.time - self._minutes[-1].seconds >= STEP_SECONDS:
            self._minutes.append(snapshot)

    def findings(
        self, may_read: Callable[[str], bool], sees_all: bool, expires_us: int | None, now: float
    ) -> list[Concern]:
        """What somebody sees whose token may expire."""
        found = [each for each in self._found if (may_read(each.place.topic) if each.place.topic else sees_all)]
        left = None if expires_us is None else expires_us / 1e6 - now
        if left is not None and left < TOKEN_SECONDS:
            problem = f"your own token expires in {max(0.0, left / 86_400):.1f} days"
            advice = "Have it replaced with headrace token rotate NAME, and sign in with the new one."
            found.append(Concern("own_token_expiring", "warning", ConcernPlace("tokens"), problem, advice))
        return found[:FINDINGS_MAX]
