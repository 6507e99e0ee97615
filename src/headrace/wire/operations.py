"""What a client can ask for beside publishing and reading: each operation a struct, with the type of its answer.

An operation travels as the body of a Flight action of its tag, in JSON, and so does the answer.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.core.descriptions import (
    GroupDescription,
    Identity,
    Membership,
    ProducerOpening,
    ServerDescription,
    SourceDescription,
    TopicDescription,
)
from headrace.core.groups.group import ReadFrom
from headrace.core.limits import SESSION_TIMEOUT_SECONDS, SOURCES_LISTED


class Operation(msgspec.Struct, forbid_unknown_fields=True, tag_field="operation"):
    """Something to be done on a topic."""

    answer: ClassVar[Any] = None
    topic: str


class CreateTopic(Operation, tag="create_topic"):
    """Make a topic, or add partitions to one."""

    answer: ClassVar[Any] = TopicDescription
    partitions: int | None = None
    settings: dict[str, Any] = {}


class AlterTopic(Operation, tag="alter_topic"):
    """Change settings, or add partitions."""

    answer: ClassVar[Any] = TopicDescription
    partitions: int | None = None
    settings: dict[str, Any] = {}


class DeleteTopic(Operation, tag="delete_topic"):
    """Remove a topic and free its disk."""


class DescribeTopic(Operation, tag="describe_topic"):
    """All about a topic."""

    answer: ClassVar[Any] = TopicDescription


class ListTopics(Operation, tag="list_topics"):
    """The topics on which the caller has any right; `topic` is a pattern, `*` for all."""

    answer: ClassVar[Any] = list[str]


class Offsets(Operation, tag="offsets"):
    """Start and end offset by partition."""

    answer: ClassVar[Any] = dict[int, tuple[int, int]]


class AwaitOffsets(Operation, tag="await_offsets"):
    """Start and end offset by partition, once anything is beyond the ends that are known, or after so long."""

    answer: ClassVar[Any] = dict[int, tuple[int, int]]
    known: dict[int, int]
    wait_seconds: float = 0.0


class OffsetAt(Operation, tag="offset_at"):
    """The first offset of a partition at or after a time."""

    answer: ClassVar[Any] = int
    partition: int
    time_us: int


class LastSeqno(Operation, tag="last_seqno"):
    """The highest seqno written for a source."""

    answer: ClassVar[Any] = int | None
    producer_id: str
    message_group_id: str = ""


class ListSources(Operation, tag="list_sources"):
    """The sources that wrote last, newest first; of one producer, or of all."""

    answer: ClassVar[Any] = list[SourceDescription]
    producer_id: str | None = None
    max_sources: int = SOURCES_LISTED


class ResetSource(Operation, tag="reset_source"):
    """Forget the highest seqno of a source; what it was."""

    answer: ClassVar[Any] = int | None
    producer_id: str
    message_group_id: str = ""


class OpenProducer(Operation, tag="open_producer"):
    """Become the producer of a source: whoever was it before is fenced off. With an epoch: go on as that one.

    An empty producer id opens none, and only tells what the topic takes.
    """

    answer: ClassVar[Any] = ProducerOpening
    producer_id: str = ""
    message_group_id: str = ""
    epoch: int | None = None


class RegisterGroup(Operation, tag="register_group"):
    """Make a group, or change one."""

    answer: ClassVar[Any] = GroupDescription
    group: str
    consumers: int | None = None
    important: bool | None = None
    read_from: ReadFrom = "earliest"


class DescribeGroup(Operation, tag="describe_group"):
    """All about a group, lag included."""

    answer: ClassVar[Any] = GroupDescription
    group: str


class ListGroups(Operation, tag="list_groups"):
    """The groups of a topic by name."""

    answer: ClassVar[Any] = list[str]


class DeleteGroup(Operation, tag="delete_group"):
    """Remove a group with its offsets."""

    group: str


class JoinGroup(Operation, tag="join"):
    """Become a member of a group, or renew it."""

    answer: ClassVar[Any] = Membership
    group: str
    member: str
    session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS


class Heartbeat(Operation, tag="heartbeat"):
    """Stay a member, and learn of changes."""

    answer: ClassVar[Any] = Membership
    group: str
    member: str


class LeaveGroup(Operation, tag="leave"):
    """Give one's partitions to the others at once."""

    group: str
    member: str


class CommitOffsets(Operation, tag="commit"):
    """Store the next offset to read by partition."""

    group: str
    offsets: dict[int, int]
    member: int | str | None = None
    generation: int | None = None


class Committed(Operation, tag="committed"):
    """The committed offset of each partition that has one."""

    answer: ClassVar[Any] = dict[int, int]
    group: str


class Seek(Operation, tag="seek"):
    """Move a group to other offsets."""

    group: str
    offsets: dict[int, int]


class PublishStaged(Operation, tag="publish_staged"):
    """Publish the rows of some stages in one commit; how many were written, and how many were duplicates."""

    answer: ClassVar[Any] = tuple[int, int]
    stages: list[tuple[str, int]]
    writer: str | None = None
    number: int = 0


class DropStages(Operation, tag="drop_stages"):
    """Drop stages that will not be published; how many there were."""

    answer: ClassVar[Any] = int
    stages: list[str]


class LastCommit(Operation, tag="last_commit"):
    """The number of the last commit of a writer of commit keys."""

    answer: ClassVar[Any] = int | None
    writer: str


class Whoami(Operation, tag="whoami"):
    """Who the caller is, and what they may do; `topic` has no meaning."""

    answer: ClassVar[Any] = Identity
    topic: str = "*"


class ListServers(Operation, tag="list_servers"):
    """The running servers of the store, with their addresses; `topic` has no meaning."""

    answer: ClassVar[Any] = list[ServerDescription]
    topic: str = "*"


OPERATIONS: dict[str, type[Operation]] = {str(kind.__struct_config__.tag): kind for kind in Operation.__subclasses__()}


def encode(value: Any) -> bytes:
    """An operation or an answer as bytes."""
    return msgspec.json.encode(value)


def decode_operation(name: str, body: bytes) -> Operation | None:
    """The operation that an action carries, or none if there is no such operation."""
    kind = OPERATIONS.get(name)
    return None if kind is None else msgspec.json.decode(body, type=kind)


def decode_answer(operation: Operation, body: bytes) -> Any:
    """The answer to an operation."""
    return msgspec.json.decode(body, type=operation.answer) if operation.answer is not None else None
