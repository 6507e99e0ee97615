"""The promises about groups, each as a function from a history to the violations found in it. All of them are pure.

Operations overlap in time, so each check compares only what certainly happened one after the other. A seek divides the
life of a group's partition into epochs: in each, everything below the committed offset must be below the seek's target
or have been given to a member since the seek was called. What overlaps a seek may belong to either side of it.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.verify.checks.violation import Kind, Violation
from headrace.verify.history.events import GroupSeen, Poll
from headrace.verify.history.index import HistoryIndex

Line = tuple[str, int]


class Intervals:
    """A set of integers as half-open intervals, merged as they are added.

    >>> offsets = Intervals()
    >>> offsets.add(0, 3)
    >>> offsets.add(5, 8)
    >>> offsets.missing(10)
    [(3, 5), (8, 10)]
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` up to and without `end`."""
        if start >= end:
            return
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, end: int) -> list[tuple[int, int]]:
        """The intervals from 0 up to and without `end` that are not in the set."""
        holes, position = [], 0
        for start, stop in zip(self._starts, self._ends, strict=True):
            if position >= end:
                break
            if start > position:
                holes.append((position, min(start, end)))
            position = max(position, stop)
        if position < end:
            holes.append((position, end))
        return holes


@dataclass(slots=True)
class _Window:
    """When a seek may have happened; without a known end it may happen at any later time."""

    called_ns: float
    ended_ns: float
    target: int


@dataclass(slots=True)
class _Sighting:
    """A committed offset, or one that was acknowledged."""

    called_ns: int
    at_ns: int
    offset: int
    who: str


@dataclass(slots=True)
class _Lines:
    """A history by group and partition."""

    seeks: dict[Line, list[_Window]] = field(default_factory=lambda: defaultdict(list))
    sightings: dict[Line, list[_Sighting]] = field(default_factory=lambda: defaultdict(list))
    given: dict[Line, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))


def check_groups(history: HistoryIndex) -> Iterator[Violation]:
    """All promises about groups."""
    lines = _lines(history)
    important = {seen.group for seen in history.groups if seen.important}
    for line in sorted(lines.sightings):
        yield from _never_back(line, lines)
        yield from _nothing_passed_over(line, lines, history, line[0] in important)
    yield from _one_owner(history)
    yield from _generations(history)
    yield from _nothing_dropped_unread(history, lines, important)
    for stalled in history.stalled:
        what = f"group {stalled.group} lacks {stalled.lag} messages and made no progress for {stalled.seconds:g} s"
        yield Violation("stalled", what)


def _lines(history: HistoryIndex) -> _Lines:
    lines = _Lines()
    for number, seek in history.seeks.items():
        sought = history.sought.get(number)
        if sought is not None and sought.outcome == "failed":
            continue
        ended = sought.at_ns if sought is not None and sought.outcome == "ok" else math.inf
        for partition, target in seek.offsets.items():
            lines.seeks[seek.group, partition].append(_Window(seek.at_ns, ended, target))
    for seen in history.groups:
        for partition, offset in seen.committed.items():
            sighting = _Sighting(seen.called_ns, seen.at_ns, offset, "the server")
            lines.sightings[seen.group, partition].append(sighting)
    for commit in history.commits:
        for partition, offset in commit.offsets.items():
            # After a seek a member may learn from its commit that it was moved, and commit nothing.
            first_seek = min((window.called_ns for window in lines.seeks[commit.group, partition]), default=math.inf)
            if commit.outcome == "ok" and commit.at_ns < first_seek:
                sighting = _Sighting(commit.called_ns, commit.at_ns, offset, commit.member)
                lines.sightings[commit.group, partition].append(sighting)
    for poll in history.polls:
        for partition, offset, messages in poll.runs:
            lines.given[poll.group, partition].append((poll.at_ns, offset, offset + len(messages)))
    for windows in lines.seeks.values():
        windows.sort(key=lambda window: window.called_ns)
    return lines


def _never_back(line: Line, lines: _Lines) -> Iterator[Violation]:
    """What was seen committed stays so, unless a seek was called between the two looks."""
    windows = lines.seeks.get(line, [])
    answered = sorted(lines.sightings[line], key=lambda sighting: sighting.at_ns)
    place, highest = 0, -1
    for later in sorted(answered, key=lambda sighting: sighting.called_ns):
        while place < len(answered) and answered[place].at_ns < later.called_ns:
            earlier = answered[place]
            place += 1
            highest = max(highest, earlier.offset)
        if later.offset >= highest:
            continue
        before = [each for each in answered[:place] if each.offset > later.offset]
        witness = next((each for each in before if not _moved_between(windows, each, later)), None)
        if witness is not None and later.who == "the server":
            what = f"was {witness.offset} ({witness.who}) and later {later.offset}"
            yield Violation("commit_went_back", f"group {line[0]}, partition {line[1]}: {what}")
            return


def _moved_between(windows: list[_Window], earlier: _Sighting, later: _Sighting) -> bool:
    return any(window.called_ns <= later.at_ns and window.ended_ns >= earlier.called_ns for window in windows)


def _nothing_passed_over(line: Line, lines: _Lines, history: HistoryIndex, is_important: bool) -> Iterator[Violation]:
    """Everything below a committed offset was given to a member, passed by a seek, or dropped by retention.

    Of what was given before a seek back and not again after it, the seek was ignored.
    """
    windows = [_Window(-math.inf, -math.inf, 0), *lines.seeks.get(line, [])]
    # Retention may have dropped what a seek aims at just before the seek: the group then begins at the oldest kept.
    targets = [max(window.target, history.start_after(line[1], window.called_ns)) for window in windows[1:]]
    covered = [_beginning(history, line, is_important, target) for target in (0, *targets)]
    ever = _beginning(history, line, is_important, max(window.target for window in windows))
    given = sorted(lines.given.get(line, []))
    place = 0
    reported: set[str] = set()
    for sighting in sorted(lines.sightings[line], key=lambda each: each.at_ns):
        while place < len(given) and given[place][0] <= sighting.at_ns:
            at_ns, start, end = given[place]
            ever.add(start, end)
            for window, intervals in zip(windows, covered, strict=True):
                if at_ns >= window.called_ns:
                    intervals.add(start, end)
            place += 1
        epochs = [epoch for epoch in range(len(windows)) if _may_be_in(windows, epoch, sighting)]
        holes = [covered[epoch].missing(sighting.offset) for epoch in epochs]
        if not all(holes):
            continue
        kind: Kind = "passed_over" if (missed := ever.missing(sighting.offset)) else "seek_ignored"
        if kind not in reported:
            reported.add(kind)
            start, end = (missed or holes[-1])[0]
            since = "" if missed else f" since the seek to {windows[epochs[-1]].target}"
            what = f"committed is {sighting.offset} ({sighting.who}), {start} to {end - 1} were given to nobody{since}"
            yield Violation(kind, f"group {line[0]}, partition {line[1]}: {what}")


def _beginning(history: HistoryIndex, line: Line, is_important: bool, target: int) -> Intervals:
    """What need not be delivered: passed by a seek, dropped by retention, or reported as unreadable by the server."""
    covered = Intervals()
    covered.add(0, max(target, 0 if is_important else history.starts[line[1]]))
    for gap in history.gaps:
        if gap.partition == line[1]:
            covered.add(gap.start, gap.end)
    return covered


def _may_be_in(windows: list[_Window], epoch: int, sighting: _Sighting) -> bool:
    """Whether a look may have met the state after this seek and before the next that certainly happened."""
    is_over = any(window.ended_ns < sighting.called_ns for window in windows[epoch + 1 :])
    return windows[epoch].called_ns <= sighting.at_ns and not is_over


def _one_owner(history: HistoryIndex) -> Iterator[Violation]:
    owners: dict[tuple[str, int, int], str] = {}
    reported: set[tuple[str, int]] = set()
    for group, generation, member, partitions in _owned(history):
        for partition in partitions:
            owner = owners.setdefault((group, generation, partition), member)
            if owner != member and (group, generation) not in reported:
                reported.add((group, generation))
                what = f"group {group}, generation {generation}, partition {partition}: {owner} and {member}"
                yield Violation("two_owners", what)


def _owned(history: HistoryIndex) -> Iterator[tuple[str, int, str, list[int]]]:
    event: GroupSeen | Poll
    for event in history.groups:
        for member, partitions in event.members.items():
            yield event.group, event.generation, member, partitions
    for event in history.polls:
        if event.generation is not None:
            yield event.group, event.generation, event.member, event.partitions


def _generations(history: HistoryIndex) -> Iterator[Violation]:
    """A look that began after another had ended sees no older generation."""
    by_group: dict[str, list[GroupSeen]] = defaultdict(list)
    for seen in history.groups:
        by_group[seen.group].append(seen)
    for group, sightings in sorted(by_group.items()):
        answered = sorted(sightings, key=lambda seen: seen.at_ns)
        place, highest = 0, 0
        for later in sorted(sightings, key=lambda seen: seen.called_ns):
            while answered[place].at_ns < later.called_ns:
                highest = max(highest, answered[place].generation)
                place += 1
            if later.generation < highest:
                what = f"group {group}: {later.generation} was seen after {highest}"
                yield Violation("generation_went_back", what)
                break


def _nothing_dropped_unread(history: HistoryIndex, lines: _Lines, important: set[str]) -> Iterator[Violation]:
    """No start offset is beyond what an important group was given."""
    for group in sorted(important):
        for partition, start in sorted(history.starts.items()):
            given = Intervals()
            for _, first, end in lines.given.get((group, partition), []):
                given.add(first, end)
            targets = [seek.offsets.get(partition, 0) for seek in history.seeks.values() if seek.group == group]
            given.add(0, max(targets, default=0))
            if holes := given.missing(start):
                what = f"the start is {start}, and {holes[0][0]} to {holes[0][1] - 1} were given to nobody"
                yield Violation("dropped_unread", f"group {group}, partition {partition}: {what}")
