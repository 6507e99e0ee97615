"""The operations beside publishing and reading. Each is defined here, once, as a struct:

- its tag is its name in the table of rights, in the audit log and as a Flight action;
- its fields are the parameters of the method of `Broker` that does it, in the same order;
- `Operation[Answer]` is the type of the answer, which `Client` returns;
- `need` is the right that it needs.

An operation travels as the body of a Flight action, in JSON, and so does the answer. `edge.dispatch` performs it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.groups.group import ReadFrom
from headrace.core.health.findings import Health
from headrace.core.limits import AUDIT_LISTED, SESSION_TIMEOUT_SECONDS, SOURCES_LISTED
from headrace.core.reports.clients import ClientDescription
from headrace.core.reports.descriptions import (
    CommitOutcome,
    GroupDescription,
    Identity,
    Membership,
    NewToken,
    ProducerOpening,
    ServerDescription,
    SourceDescription,
    TokenDescription,
    TopicDescription,
    TransactionOffsets,
    TransactionOutcome,
)
from headrace.core.reports.pipelines import PipelineDescription, PipelineReport
from headrace.core.reports.process import ProcessReport
from headrace.core.reports.server_settings import ServerSettings
from headrace.core.reports.store_check import StoreCheck
from headrace.core.rights import Need, Right
from headrace.wire.operation import (
    ADMINISTER,
    ANY_RIGHT,
    AUTHENTICATED,
    MANAGE,
    MANAGE_GROUP,
    PUBLISH,
    PUBLISH_AS_PRODUCER,
    READ,
    READ_AS_GROUP,
)
from headrace.wire.operation import Answer as Answer
from headrace.wire.operation import Operation as Operation
from headrace.wire.operation import StoreOperation as StoreOperation
from headrace.wire.operation import answer_type as answer_type
from headrace.wire.operation import name_of as name_of


class CreateTopic(Operation[TopicDescription], tag="create_topic"):
    """Create a topic, or add partitions to one."""

    need: ClassVar = MANAGE
    partitions: int | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class AlterTopic(Operation[TopicDescription], tag="alter_topic"):
    """Change settings, or add partitions."""

    need: ClassVar = MANAGE
    partitions: int | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class DeleteTopic(Operation[None], tag="delete_topic"):
    """Delete a topic and free its disk space."""

    need: ClassVar = MANAGE

    @property
    def is_repeatable(self) -> bool:
        """No: the second call would not find the topic, or delete a new one."""
        return False


class TrimTopic(Operation[int], tag="trim_topic"):
    """Delete the messages written before a time that no important group holds, in whole segments; how many."""

    need: ClassVar = MANAGE
    before_us: int


class DeleteMessages(Operation[dict[int, int]], tag="delete_messages"):
    """Delete the messages of partitions below an offset each, unless an important group holds them; their start."""

    need: ClassVar = MANAGE
    before: dict[int, int]


class DescribeTopic(Operation[TopicDescription], tag="describe_topic"):
    """Describe a topic."""

    need: ClassVar = READ


class DescribeTopics(Operation[list[TopicDescription]], tag="describe_topics"):
    """Describe some topics, but those that the caller may not read, or that cannot be found. `topic` is ignored."""

    need: ClassVar = AUTHENTICATED
    on_topic: ClassVar = False
    topics: list[str]


class ListTopics(Operation[list[str]], tag="list_topics"):
    """The topics on which the caller has any right; `topic` is a pattern, `*` for all."""

    need: ClassVar = AUTHENTICATED


class Offsets(Operation[dict[int, tuple[int, int]]], tag="offsets"):
    """Start and end offset by partition."""

    need: ClassVar = READ


class Archive(Operation[ArchiveSnapshot], tag="archive"):
    """The archive of a topic at one moment: its files, how far it is complete, and the offsets of the topic."""

    need: ClassVar = READ


class AwaitOffsets(Operation[dict[int, tuple[int, int]]], tag="await_offsets"):
    """Start and end offset by partition, once any end differs from the known one, or after `wait_seconds`."""

    need: ClassVar = READ
    known: dict[int, int]
    wait_seconds: float = 0.0


class OffsetAt(Operation[int], tag="offset_at"):
    """The first offset of a partition at or after a time."""

    need: ClassVar = READ
    partition: int
    time_us: int


class OffsetsAt(Operation[dict[int, int]], tag="offsets_at"):
    """The first offset at or after a time, of each of some or all partitions."""

    need: ClassVar = READ
    time_us: int
    partitions: list[int] | None = None


class OffsetsWithin(Operation[dict[int, int]], tag="offsets_within"):
    """For (start, end, bytes) of each partition: the offset at which the range reaches about that many bytes."""

    need: ClassVar = READ
    ranges: dict[int, tuple[int, int, int]]


class LastSeqno(Operation[int | None], tag="last_seqno"):
    """The highest seqno written for a source."""

    need: ClassVar = PUBLISH_AS_PRODUCER
    producer_id: str
    message_group_id: str = ""


class ListSources(Operation[list[SourceDescription]], tag="list_sources"):
    """The sources that wrote last, newest first; of one producer, or of all."""

    need: ClassVar = PUBLISH
    producer_id: str | None = None
    max_sources: int = SOURCES_LISTED


class ResetSource(Operation[int | None], tag="reset_source"):
    """Reset the highest seqno of a source; returns the old one."""

    need: ClassVar = Need(right=Right.MANAGE, for_producer=True, is_audited=True)
    producer_id: str
    message_group_id: str = ""


class OpenProducer(Operation[ProducerOpening], tag="open_producer"):
    """Open the producer of a source, which fences the previous one; or continue with a known epoch.

    Without a producer id nothing is opened, and the answer only has the limits of the topic.
    """

    need: ClassVar = PUBLISH_AS_PRODUCER
    producer_id: str = ""
    message_group_id: str = ""
    epoch: int | None = None


class RegisterGroup(Operation[GroupDescription], tag="register_group"):
    """Create a group, or change one."""

    need: ClassVar = Need(right=Right.READ, for_group=True, is_audited=True)
    group: str
    consumers: int | None = None
    important: bool | None = None
    read_from: ReadFrom = "earliest"

    @property
    def needed(self) -> str:
        """Setting a group's size or importance affects other readers and retention: that needs `change_group`."""
        return "register_group" if self.consumers is None and self.important is None else "change_group"


class DescribeGroup(Operation[GroupDescription], tag="describe_group"):
    """Describe a group, with its lag."""

    need: ClassVar = READ
    group: str


class ListGroups(Operation[list[str]], tag="list_groups"):
    """The groups of a topic by name."""

    need: ClassVar = READ


class DeleteGroup(Operation[None], tag="delete_group"):
    """Delete a group with its offsets."""

    need: ClassVar = MANAGE_GROUP
    group: str

    @property
    def is_repeatable(self) -> bool:
        """No: the second call would not find the group, or delete a new one."""
        return False


class JoinGroup(Operation[Membership], tag="join", omit_defaults=True):
    """Join a group, or renew the membership."""

    need: ClassVar = READ_AS_GROUP
    method: ClassVar = "join_group"
    group: str
    member: str
    session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS
    # A client from before acknowledgements does not send it: what it should give up is taken at once.
    max_poll_seconds: float = 0.0
    topic_index: int | None = None


class Heartbeat(Operation[Membership], tag="heartbeat"):
    """Stay a member, and get the current assignment; acknowledge the partitions that are held, as of a generation.

    `idle_seconds` is how long ago the member asked for messages, for those who look at it.
    """

    need: ClassVar = READ_AS_GROUP
    group: str
    member: str
    generation: int | None = None
    partitions: list[int] | None = None
    idle_seconds: float | None = None


class LeaveGroup(Operation[None], tag="leave"):
    """Leave a group; its partitions go to the other members at once."""

    need: ClassVar = READ_AS_GROUP
    method: ClassVar = "leave_group"
    group: str
    member: str


class RemoveMember(Operation[None], tag="remove_member"):
    """Remove a member of a group, as an operator; if it lives, it joins again."""

    need: ClassVar = MANAGE_GROUP
    group: str
    member: str


class CommitOffsets(Operation[CommitOutcome], tag="commit"):
    """Store the next offset to read by partition; which partitions a partial commit left out, and the generation."""

    need: ClassVar = READ_AS_GROUP
    method: ClassVar = "commit_offsets"
    group: str
    offsets: dict[int, int]
    member: int | str | None = None
    generation: int | None = None
    partial: bool = False


class Committed(Operation[dict[int, int]], tag="committed"):
    """The committed offset of each partition that has one."""

    need: ClassVar = READ
    group: str


class Seek(Operation[None], tag="seek"):
    """Move a group to other offsets."""

    need: ClassVar = MANAGE_GROUP
    group: str
    offsets: dict[int, int]


class PublishStaged(Operation[tuple[int, int]], tag="publish_staged", omit_defaults=True):
    """Publish stages in one commit; returns how many messages were written, and how many were duplicates."""

    need: ClassVar = PUBLISH_AS_PRODUCER
    stages: list[tuple[str, int]]
    writer: str | None = None
    number: int = 0
    fingerprint: int | None = None

    @property
    def is_repeatable(self) -> bool:
        """With a commit key: the second call publishes nothing."""
        return self.writer is not None


class DropStages(Operation[int], tag="drop_stages"):
    """Drop stages that will not be published; returns how many existed."""

    need: ClassVar = PUBLISH
    stages: list[str]


class LastCommit(Operation[int | None], tag="last_commit"):
    """The number of the last commit of a writer of commit keys."""

    need: ClassVar = PUBLISH_AS_PRODUCER
    writer: str


class CommitTransaction(StoreOperation[TransactionOutcome], tag="commit_transaction", omit_defaults=True):
    """Publish stages of several topics, and commit offsets of groups, all or nothing; how many were written."""

    # The rights of `publish_staged` on each topic, and of `commit` for each group, are checked by `edge.dispatch`.
    need: ClassVar = AUTHENTICATED
    stages: dict[str, list[tuple[str, int]]] = msgspec.field(default_factory=dict)
    offsets: list[TransactionOffsets] = msgspec.field(default_factory=list)
    writer: str | None = None
    number: int = 0
    fingerprint: int | None = None

    is_repeatable = PublishStaged.is_repeatable


class Whoami(StoreOperation[Identity], tag="whoami"):
    """The identity and rights of the caller; `topic` is ignored."""

    need: ClassVar = AUTHENTICATED


class ListServers(StoreOperation[list[ServerDescription]], tag="list_servers"):
    """The running servers of the store, with their addresses; `topic` is ignored."""

    need: ClassVar = AUTHENTICATED


class ListClients(StoreOperation[list[ClientDescription]], tag="list_clients"):
    """The clients of this server: those of the caller, and what others do in topics that it may read.

    `topic` is ignored.
    """

    need: ClassVar = AUTHENTICATED


class DescribeHealth(StoreOperation[Health], tag="describe_health"):
    """What needs attention at this server and in the topics that the caller may read; `topic` is ignored."""

    need: ClassVar = AUTHENTICATED


class DescribeSettings(StoreOperation[ServerSettings], tag="describe_settings"):
    """The settings that this server runs with, without secrets; `topic` is ignored."""

    need: ClassVar = Need(full_access=True)


class DescribeProcess(StoreOperation[ProcessReport], tag="describe_process"):
    """The stacks and the last log lines of this server's process, for a bug report; `topic` is ignored."""

    need: ClassVar = Need(full_access=True)


class CheckStore(StoreOperation[StoreCheck], tag="check_store"):
    """Begin to check the store in the background, unless a check runs; `topic` is ignored."""

    need: ClassVar = ADMINISTER


class LastStoreCheck(StoreOperation[StoreCheck], tag="last_store_check"):
    """The check of the store that runs, or the last one since this server started; `topic` is ignored."""

    need: ClassVar = Need(full_access=True)


class ReportPipeline(Operation[None], tag="report_pipeline"):
    """Report the progress of a pipeline that reads the topic, or writes to it; only the last report is kept."""

    need: ClassVar = ANY_RIGHT
    pipeline: str
    report: PipelineReport


class ListPipelines(StoreOperation[list[PipelineDescription]], tag="list_pipelines"):
    """The pipelines that report to topics on which the caller has any right; `topic` is ignored."""

    need: ClassVar = AUTHENTICATED


class ListTokens(StoreOperation[list[TokenDescription]], tag="list_tokens"):
    """All tokens, without their secrets; `topic` is ignored."""

    need: ClassVar = Need(full_access=True)


class CreateToken(Operation[NewToken], tag="create_token"):
    """Make a token with rights on the topics that match patterns; `topic` is ignored.

    Without a lifetime it never expires. `groups` and `producers` are patterns that limit all its grants; with
    `forward_only` its commits do not move groups back. For `grace_seconds` after the first token of a store callers
    without one are served as before.
    """

    need: ClassVar = ADMINISTER
    name: str
    grants: list[tuple[str, list[str]]]
    groups: tuple[str, ...] = ("*",)
    producers: tuple[str, ...] = ("*",)
    life_seconds: float | None = None
    forward_only: bool = False
    grace_seconds: float | None = None

    @property
    def is_repeatable(self) -> bool:
        """No: each call makes a token."""
        return False


class RotateToken(Operation[NewToken], tag="rotate_token"):
    """Replace the tokens of a name, or one by its id; the old ones stay valid for a while. `topic` is ignored."""

    need: ClassVar = ADMINISTER
    name: str
    keep_seconds: float
    life_seconds: float | None = None

    @property
    def is_repeatable(self) -> bool:
        """No: each call makes a token."""
        return False


class RevokeToken(Operation[bool], tag="revoke_token"):
    """Revoke a token by its id; whether there was one. `topic` is ignored."""

    need: ClassVar = ADMINISTER
    token_id: str


class ListAudit(StoreOperation[list[dict[str, Any]]], tag="list_audit"):
    """The last refusals and changes that this server recorded, newest first; `topic` is ignored."""

    need: ClassVar = Need(full_access=True)
    max_entries: int = AUDIT_LISTED


OPERATIONS: Final[dict[str, type[Operation[Any]]]] = {
    name_of(kind): kind
    for base in (Operation, StoreOperation)
    for kind in base.__subclasses__()
    if kind is not StoreOperation
}
# Made at import, by one thread: if two threads are the first to decode a type, msgspec 0.22 crashes the process.
_OPERATION_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in OPERATIONS.items()}
_ANSWER_DECODERS: Final = {name: msgspec.json.Decoder(answer_type(kind)) for name, kind in OPERATIONS.items()}


def encode(value: Any) -> bytes:
    """An operation or an answer as bytes."""
    return msgspec.json.encode(value)


def decode_operation(name: str, body: bytes) -> Operation[Any] | None:
    """The operation that an action carries, or None if no operation has the name."""
    decoder = _OPERATION_DECODERS.get(name)
    return None if decoder is None else decoder.decode(body)


def decode_answer(operation: Operation[Answer], body: bytes) -> Answer:
    """The answer to an operation."""
    answer: Answer = _ANSWER_DECODERS[name_of(operation)].decode(body)
    return answer
