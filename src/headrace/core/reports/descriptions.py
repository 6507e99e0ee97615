"""Descriptions of topics and groups: plain values, the same in process and over every protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.groups.group import ReadFrom
from headrace.core.rights import Grant
from headrace.core.topics.settings import TopicSettings


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: start and end offset by partition, its size in bytes, and the names of its groups."""

    name: str
    id: int
    partitions: int
    settings: TopicSettings
    created_us: int
    offsets: dict[int, tuple[int, int]]
    bytes_stored: int
    groups: list[str]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a group is in one partition; `lag_seconds` is the age of the oldest unread message."""

    committed: int | None
    position: int
    end: int
    lag_messages: int
    lag_seconds: float
    consumer: str | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its consumers with their partitions, and its progress by partition.

    `seek_generation` is the generation that the last seek started: positions of earlier generations are invalid.
    """

    topic: str
    name: str
    consumers: int | None
    important: bool
    read_from: ReadFrom
    generation: int
    members: dict[str, list[int]]
    progress: dict[int, PartitionProgress]
    seek_generation: int = 0

    @property
    def lag_messages(self) -> int:
        """The number of unread messages, over all partitions."""
        return sum(progress.lag_messages for progress in self.progress.values())

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest unread message."""
        return max((progress.lag_seconds for progress in self.progress.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a caller: name, id and expiry of the token, if there is one, and its grants."""

    name: str
    token_id: str | None
    expires_us: int | None
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """The state of a member: the generation of the group, the partitions to read, and the last seek.

    `revoking` are partitions that it still owns and should let go: commit, stop reading them, and acknowledge with the
    next heartbeat. A member with a generation below `seek_generation` continues at the committed offsets. `positions`
    are where to begin in those partitions that the member does not yet say it holds: nobody else commits them any more.
    """

    group: str
    member: str
    generation: int
    partitions: list[int]
    seek_generation: int = 0
    revoking: list[int] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The answer to a commit of offsets: the partitions it left out, and the group's generation at that moment."""

    refused: list[int]
    generation: int


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A source: the highest seqno written, the partition it is linked to, and when it last wrote; None if unknown."""

    producer_id: str
    message_group_id: str
    last_seqno: int | None
    partition: int | None
    last_seen_us: int


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """A running server of a store: its URL by protocol (http, flight, console), and when it last said that it runs.

    In a shared store both times are those of the database's clock.
    """

    id: str
    version: str
    addresses: dict[str, str]
    started_us: int
    heartbeat_us: int


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """A token without its secret: when it was made, ends (None: never) and was last used, and its grants.

    grace_until_us: of the first token of a store, until when callers without a token are served.
    """

    id: str
    name: str
    created_us: int
    expires_us: int | None
    used_us: int | None
    grants: tuple[Grant, ...]
    grace_until_us: int | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was made: its text, which is returned only now, and the ids of the tokens that it replaces."""

    token: TokenDescription
    text: str
    replaced: list[str]


@dataclass(frozen=True, slots=True)
class Staged:
    """A stage and its number of rows; both are needed to publish it."""

    stage: str
    rows: int


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """What a transaction commits for a group of a topic: the next offset to read of each partition.

    A member of the group names itself, and the generation in which it read; see `commit_offsets`.
    """

    topic: str
    group: str
    offsets: dict[int, int]
    member: int | str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The answer to a commit of several topics: by topic how many messages were written, and how many are duplicates.

    last_number: that of the last commit of the writer if that shows that this one was made before; else None. Then
    nothing was written, and no topic is named.
    """

    messages: dict[str, tuple[int, int]]
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerOpening:
    """The answer to opening a producer: its epoch, the last seqno of its source, and the limits of the topic.

    `partition` is the one that the source is linked to, or None. A batch whose answer was lost may be sent again only
    if the topic drops duplicates.
    """

    epoch: int
    last_seqno: int | None
    partitions: int
    message_bytes_max: int
    codecs: tuple[str, ...]
    drops_duplicates: bool
    partition: int | None = None
