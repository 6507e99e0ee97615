"""A history put in order for the checks: calls with their ends, and everything that anyone saw of the topic.

Filled by `add`, event by event; the checks read it and change nothing.
"""

from __future__ import annotations

from collections import defaultdict

from headrace.verify.history.events import (
    Began,
    ClientFailed,
    Event,
    GapReported,
    GroupSeen,
    Grown,
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
    Stalled,
)

Place = tuple[int, int]


class HistoryIndex:
    """All of a history."""

    def __init__(self) -> None:
        self.topic = ""
        self.publishes: dict[int, PublishStarted] = {}
        self.results: dict[int, PublishEnded] = {}
        self.polls: list[Poll] = []
        self.commits: list[OffsetsCommitted] = []
        self.seeks: dict[int, SeekStarted] = {}
        self.sought: dict[int, Sought] = {}
        self.groups: list[GroupSeen] = []
        self.growths = 0
        # The highest start offset that was ever seen, and what a server reported as unreadable.
        self.starts: dict[int, int] = defaultdict(int)
        self.start_sightings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.gaps: list[GapReported] = []
        self.ends: dict[int, LogEnd] = {}
        self.stalled: list[Stalled] = []
        self.failures: list[ClientFailed] = []
        # What was seen at each place, by readers and at the end; and the content of the log at the end.
        self.seen: dict[Place, set[str]] = defaultdict(set)
        self.log: dict[int, list[tuple[int, str]]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Began():
                self.topic = event.topic
            case PublishStarted():
                self.publishes[event.number] = event
            case PublishEnded():
                self.results[event.number] = event
            case Poll():
                self.polls.append(event)
                for partition, offset, messages in event.runs:
                    self._see(partition, offset, messages)
            case OffsetsCommitted():
                self.commits.append(event)
            case SeekStarted():
                self.seeks[event.number] = event
            case Sought():
                self.sought[event.number] = event
            case GroupSeen():
                self.groups.append(event)
            case OffsetsSeen():
                for partition, (start, _) in event.offsets.items():
                    self.starts[partition] = max(self.starts[partition], start)
                    self.start_sightings[partition].append((event.at_ns, start))
            case Grown():
                self.growths += 1
            case LogRead():
                self._see(event.partition, event.offset, event.messages)
                self.log[event.partition] += enumerate(event.messages, event.offset)
            case LogEnd():
                self.ends[event.partition] = event
                self.starts[event.partition] = max(self.starts[event.partition], event.start)
            case GapReported():
                self.gaps.append(event)
            case Stalled():
                self.stalled.append(event)
            case ClientFailed():
                self.failures.append(event)

    def start_after(self, partition: int, time_ns: float) -> int:
        """The first start offset of a partition that was seen after a time, or 0."""
        return next((start for at_ns, start in sorted(self.start_sightings[partition]) if at_ns >= time_ns), 0)

    def passed_by_seek(self, partition: int, offset: int) -> bool:
        """Whether a seek may have moved an important group past this place: retention need not wait for it then."""
        important = {seen.group for seen in self.groups if seen.important}
        return any(
            seek.group in important and seek.offsets.get(partition, 0) > offset
            for number, seek in self.seeks.items()
            if number not in self.sought or self.sought[number].outcome != "failed"
        )

    def outcome_of(self, call: PublishStarted) -> Outcome:
        """How a call ended; one without an end is unknown."""
        result = self.results.get(call.number)
        return "unknown" if result is None else result.outcome

    def _see(self, partition: int, offset: int, messages: list[str]) -> None:
        for place, message in enumerate(messages, offset):
            self.seen[partition, place].add(message)
