"""What is remembered of earlier looks: a bounded number of points for each group and for the disk. Not thread-safe.

A trend is a line through the points (linear regression), one point a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.health.readings import GroupKey, GroupReading, Reading
from headrace.core.limits import MICROSECONDS

# The time over which a trend is judged, and how much of it must be known.
LAG_WINDOW_SECONDS: Final = 15 * 60
DISK_WINDOW_SECONDS: Final = 3600
TREND_SECONDS_MIN: Final = 600
_STEP_SECONDS: Final = 60
_STEP_US: Final = _STEP_SECONDS * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through points: its slope per second, and its value now."""

    slope: float
    fitted: float


class Series:
    """Values by time, at most one a minute over a window."""

    def __init__(self, window_seconds: int) -> None:
        self._window_us = window_seconds * MICROSECONDS
        self._points: deque[tuple[int, float]] = deque(maxlen=window_seconds // _STEP_SECONDS + 1)

    def __len__(self) -> int:
        return len(self._points)

    def add(self, at_us: int, value: float) -> None:
        """Remember a value, unless one of the same minute is."""
        if not self._points or at_us - self._points[-1][0] >= _STEP_US:
            self._points.append((at_us, value))

    def trend(self, at_us: int, value: float) -> Trend | None:
        """The trend up to a value now; None if too little is known."""
        points = [(time_us, known) for time_us, known in self._points if at_us - time_us <= self._window_us]
        if not points or at_us - points[0][0] < TREND_SECONDS_MIN * MICROSECONDS:
            return None
        return _line([((time_us - at_us) / MICROSECONDS, known) for time_us, known in [*points, (at_us, value)]])


def _line(points: Sequence[tuple[float, float]]) -> Trend:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return Trend(slope, mean_y - slope * mean_x)


@dataclass(slots=True)
class GroupPast:
    """What is remembered of a group.

    since_us: when it was first seen. moved_us: when it was last seen to have committed; None if it was not yet.
    alone_us: the same, while it had no members and none came and went: it is read without joining, as Spark does.
    A seek moves a group too, and is no commit.
    """

    since_us: int
    last: GroupReading
    moved_us: int | None = None
    alone_us: int | None = None
    lags: Series = field(default_factory=lambda: Series(LAG_WINDOW_SECONDS))

    def add(self, group: GroupReading, at_us: int) -> None:
        """Remember a look."""
        last, self.last = self.last, group
        if group.position != last.position and group.seek_generation == last.seek_generation:
            self.moved_us = at_us
            if group.generation == last.generation and not (group.has_members or last.has_members):
                self.alone_us = at_us
        self.lags.add(at_us, group.lag_messages)


class HealthHistory:
    """The past of the groups that exist, and of the disk."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, GroupPast] = {}
        self.free_bytes = Series(DISK_WINDOW_SECONDS)
        self.bytes_stored = Series(DISK_WINDOW_SECONDS)

    def add(self, reading: Reading) -> None:
        """Remember a look; groups that it does not have are forgotten."""
        at_us = reading.at_us
        if reading.groups is not None:
            known, self.groups = self.groups, {}
            for key, group in reading.groups.items():
                past = known.get(key) or GroupPast(at_us, group)
                past.add(group, at_us)
                self.groups[key] = past
        if reading.disk is not None:
            self.free_bytes.add(at_us, reading.disk.free_bytes)
            self.bytes_stored.add(at_us, reading.bytes_stored)
