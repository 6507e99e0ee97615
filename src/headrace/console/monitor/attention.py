"""What needs attention: findings from the newest sample and its history, each with a sentence on what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from headrace.console.monitor.history import History, Points
from headrace.console.monitor.sample import Sample

Level = Literal["bad", "warn"]

# A group lags if its oldest unread message is older than this, and it lags more if its lag grew over this time.
LAG_SECONDS: Final = 60.0
GROWTH_SECONDS: Final = 600.0
# A disk that is full within this time needs somebody today.
DISK_SECONDS: Final = 86_400.0
TOKEN_SECONDS: Final = 7 * 86_400.0
# Trends need this many points.
POINTS_MIN: Final = 6
FINDINGS_MAX: Final = 20

DISK_FREE: Final = "headrace_disk_free_bytes"


@dataclass(frozen=True)
class Finding:
    """Something that needs attention: what, what to do, and the topic or group it is about."""

    level: Level
    what: str
    advice: str
    topic: str | None = None
    group: str | None = None


def findings(history: History, may_see: Callable[[str], bool], expires_us: int | None, now: float) -> list[Finding]:
    """All findings for somebody who sees some topics and whose token may expire."""
    found: list[Finding] = []
    sample = history.last
    if sample is not None:
        found += _damage(sample, may_see)
        found += _disk(history, sample)
        found += _lags(history, sample, may_see)
    if expires_us is not None and expires_us / 1e6 - now < TOKEN_SECONDS:
        days = max(0.0, (expires_us / 1e6 - now) / 86_400)
        found.append(
            Finding(
                "warn", f"Your token expires in {days:.0f} days", "Replace it: headrace token rotate NAME --keep 1h."
            )
        )
    return found[:FINDINGS_MAX]


def _damage(sample: Sample, may_see: Callable[[str], bool]) -> list[Finding]:
    return [
        Finding(
            "bad",
            f"{topic.offsets_skipped:,.0f} offsets of topic {name} have lost their messages",
            "A segment was damaged and repaired without it. Restore it from a backup, or publish these messages again.",
            name,
        )
        for name, topic in sample.topics.items()
        if topic.offsets_skipped and may_see(name)
    ]


def _disk(history: History, sample: Sample) -> list[Finding]:
    free = sample.others.get(DISK_FREE)
    if free is None:
        return []
    growth = _slope(history.points([("bytes_stored",)], 3600.0))
    if growth <= 0 or free / growth > DISK_SECONDS:
        return []
    hours = free / growth / 3600
    return [
        Finding(
            "bad",
            f"The disk is full in about {hours:.0f} hours",
            "Lower the retention of the largest topics, or give the store a larger disk.",
        )
    ]


def _lags(history: History, sample: Sample, may_see: Callable[[str], bool]) -> list[Finding]:
    found: list[tuple[float, Finding]] = []
    for (topic, group), state in sample.groups.items():
        if state.lag_seconds < LAG_SECONDS or not state.lag_messages or not may_see(topic):
            continue
        points = history.points([("lag", topic, group)], GROWTH_SECONDS)
        if len(points) >= POINTS_MIN and _slope(points) > 0:
            what = f"Group {group} of topic {topic} falls behind: {state.lag_messages:,.0f} messages and growing"
            advice = "Look at its members: add some, or find the message that one of them is stuck on."
            found.append((state.lag_messages, Finding("warn", what, advice, topic, group)))
    return [finding for _, finding in sorted(found, key=lambda each: -each[0])]


def _slope(points: Points) -> float:
    """Growth per second, by the line that fits the points best."""
    known = [(time, value) for time, value in points if value is not None]
    if len(known) < POINTS_MIN:
        return 0.0
    middle = sum(time for time, _ in known) / len(known)
    mean = sum(value for _, value in known) / len(known)
    spread = sum((time - middle) ** 2 for time, _ in known)
    return sum((time - middle) * (value - mean) for time, value in known) / spread if spread else 0.0
