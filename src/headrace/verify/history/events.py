"""What a history consists of: one event for each operation of a client, or two where the answer may never arrive.

Plain values without behaviour. Times are those of a monotonic clock in nanoseconds, taken before a call (`called_ns`)
and after its answer (`at_ns`). A message is known by its id, `CLIENT:NUMBER`, which is the beginning of its value; the
numbers of a client grow in the order in which it sent.

An outcome is `ok`, `failed` (the server promises that nothing was done), or `unknown`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT = 1

Outcome = Literal["ok", "failed", "unknown"]


class _Event(msgspec.Struct, frozen=True, tag_field="op", tag=str.lower, omit_defaults=True):
    """The root of all events."""


class Began(_Event, frozen=True):
    """The first event: which topic this history is about."""

    topic: str
    format: int = FORMAT
    seed: int = 0


class PublishStarted(_Event, frozen=True, tag="publish"):
    """A call that publishes messages.

    source: the producer id, or None; without one only acknowledged messages have an order.
    is_one_commit: whether the messages were sent in one call, which is atomic.
    keys: one for each message, or empty.
    """

    number: int
    client: str
    source: str | None
    messages: list[str]
    at_ns: int
    keys: list[str] = []
    is_one_commit: bool = True


class PublishEnded(_Event, frozen=True, tag="published"):
    """The end of such a call: for each message partition and offset, or None if the server returned none."""

    number: int
    outcome: Outcome
    at_ns: int
    places: list[tuple[int, int] | None] = []
    error: str = ""


class Poll(_Event, frozen=True):
    """Messages given to a member: runs of consecutive offsets. Without a generation its partitions are not certain."""

    group: str
    member: str
    generation: int | None
    partitions: list[int]
    runs: list[tuple[int, int, list[str]]]
    called_ns: int
    at_ns: int


class OffsetsCommitted(_Event, frozen=True, tag="commit"):
    """Offsets that a member committed."""

    group: str
    member: str
    offsets: dict[int, int]
    outcome: Outcome
    called_ns: int
    at_ns: int
    error: str = ""


class SeekStarted(_Event, frozen=True, tag="seek"):
    """A call that moves a group."""

    number: int
    group: str
    offsets: dict[int, int]
    at_ns: int


class Sought(_Event, frozen=True):
    """The end of such a call."""

    number: int
    outcome: Outcome
    at_ns: int
    error: str = ""


class GroupSeen(_Event, frozen=True):
    """A group as a server described it."""

    group: str
    generation: int
    important: bool
    members: dict[str, list[int]]
    committed: dict[int, int]
    called_ns: int
    at_ns: int


class OffsetsSeen(_Event, frozen=True):
    """Start and end of each partition as a server reported them."""

    offsets: dict[int, tuple[int, int]]
    at_ns: int


class Grown(_Event, frozen=True):
    """A request to raise the number of partitions."""

    partitions: int
    at_ns: int


class LogRead(_Event, frozen=True):
    """A part of a partition, read at the end: the messages from `offset` on."""

    partition: int
    offset: int
    messages: list[str]


class LogEnd(_Event, frozen=True):
    """A partition was read at the end from its start offset to its end offset."""

    partition: int
    start: int
    end: int


class GapReported(_Event, frozen=True, tag="gap"):
    """Offsets that the server reported as unreadable, up to and without `end`, in its own words."""

    partition: int
    start: int
    end: int
    reason: str


class Stalled(_Event, frozen=True):
    """A group did not reach the end of the topic although publishing had stopped."""

    group: str
    lag: int
    seconds: float


class ClientFailed(_Event, frozen=True):
    """A client ended by an error that is none of those documented."""

    client: str
    error: str
    at_ns: int


class Note(_Event, frozen=True):
    """Something that happened beside the operations, such as an injected fault."""

    text: str
    at_ns: int


Event = (
    Began
    | PublishStarted
    | PublishEnded
    | Poll
    | OffsetsCommitted
    | SeekStarted
    | Sought
    | GroupSeen
    | OffsetsSeen
    | Grown
    | LogRead
    | LogEnd
    | GapReported
    | Stalled
    | ClientFailed
    | Note
)
