"""One look at a server: the values that are judged. What could not be read is named, and makes the verdict unknown.

Two clocks: `now_us` is the time of day, for what expires and for the age of messages; `at_us` is a clock that never
jumps, for what happens between two looks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.core.health.findings import Place
from headrace.core.reports.pipelines import PipelineDescription

# A topic and a group of it.
GroupKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GroupReading:
    """How far a group is: `position` is the sum of its next offsets, which moves whenever it commits, at any server.

    generation: changes as members join and leave, and by a seek, whose generation `seek_generation` is.
    lag_seconds: the age of its oldest unread message. has_members: whether anything has joined it, over whatever
    protocol. is_fixed: its consumers have numbers, and do not join.
    """

    lag_messages: int
    lag_seconds: float
    position: int
    has_members: bool
    is_fixed: bool = False
    is_important: bool = False
    generation: int = 0
    seek_generation: int = 0


@dataclass(frozen=True, slots=True)
class TopicReading:
    """A topic: why it accepts no messages, if so; what is damaged or lost; its archive, and its size."""

    name: str
    failure: str | None = None
    damaged_segments: int = 0
    offsets_skipped: int = 0
    archive_is_failing: bool = False
    archive_late_seconds: float = 0.0
    bytes_stored: int = 0


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The file system of the store."""

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """A token or a certificate by its name, and when it begins and ends to be valid."""

    place: Place
    begin_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it. `unread` names what could not be read, with the reason: then it is missing here.

    up_seconds: since the server started. early_groups: those that existed then, whose members may still be joining
    again. can_write: whether a small file can be written to the store. grace_until_us: until when callers without a
    token are served although there are tokens.
    """

    now_us: int
    at_us: int
    up_seconds: float = 0.0
    early_groups: Collection[GroupKey] = ()
    can_write: bool = True
    disk: DiskReading | None = None
    topics: list[TopicReading] = field(default_factory=list)
    groups: dict[GroupKey, GroupReading] | None = None
    pipelines: list[PipelineDescription] = field(default_factory=list)
    expiries: list[Expiry] = field(default_factory=list)
    grace_until_us: int | None = None
    unread: list[tuple[str, str]] = field(default_factory=list)

    @property
    def bytes_stored(self) -> int:
        """The size of all topics."""
        return sum(topic.bytes_stored for topic in self.topics)
