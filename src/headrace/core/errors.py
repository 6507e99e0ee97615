"""All errors of Headrace, as one tree.

    HeadraceError
    ├── InvalidInput            a value breaks a rule; nothing was written
    │   ├── InvalidMessage      … in one row of a batch
    │   │   ├── MessageTooLarge
    │   │   ├── CodecNotAllowed
    │   │   └── SeqnoJump       far above the last seqno of its source: reset the source if it is intended
    │   └── PartitionsCannotShrink
    ├── NotFound
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── GroupNotFound
    │   ├── MemberNotFound      the member left or its session expired: join again
    │   ├── StageNotFound
    │   ├── SourceNotFound      the topic has no source with this producer id and message group id
    │   └── IdNotFound          no topic has this id, or the topic has no consumer or producer with it (queue API)
    ├── Conflict                the request conflicts with the current state
    │   ├── TopicExists
    │   ├── SettingsConflict
    │   ├── GroupSizeConflict
    │   ├── StaleGeneration     the group was moved, or the partition was lost: send a heartbeat, then continue
    │   ├── PartitionNotOwned
    │   ├── CommitConflict      the writer has published another commit with this number; nothing was written
    │   ├── ProducerFenced      a newer producer with the same id took over
    │   └── MessagesHeld        an important group has not read the messages that were to be deleted
    ├── AccessDenied
    │   ├── Unauthenticated     no token, or an unknown, expired or revoked one
    │   └── Forbidden           the token lacks this right on this topic, group or producer id
    ├── OffsetOutOfRange
    ├── MessagesLost            retention deleted messages before they were read
    ├── Undecodable             a value cannot be decoded by its codec; earlier messages were delivered
    ├── Overloaded              nothing was accepted; try again later
    ├── LimitExceeded           this caller has too much under way, or is too fast; try again later
    ├── QuotaExceeded           the store has as many of something as its settings allow; delete some, or raise it
    ├── Gone                    the object of the request no longer exists
    │   ├── TopicDeleted
    │   └── Closed
    ├── Forked                  created before this process was forked: connect in this process
    ├── Untrusted               TLS failed: a certificate is not trusted, or one side does not speak TLS
    ├── Unreachable             no server answers; try again later
    │   └── AnswerLost          the connection broke: the request may or may not have been carried out
    ├── ServerFailed            an unexpected error in the server
    └── StorageError
        ├── StoreUnavailable    locked by another process, or cannot be opened
        │   ├── TooManyOpenFiles    nothing was written; raise the limit of open files, or try again later
        │   └── OutOfMemory     nothing was done; try again later, or with less data
        ├── UnknownFormat       written by a newer Headrace
        ├── DiskFull            nothing was written; free disk space, then try again
        ├── OutcomeUnknown      the write may or may not have survived
        ├── LogFailed           an earlier write failed; publishing needs a reopen, reading continues
        ├── Damaged             bytes on the disk differ from what was written
        └── TableMissing        someone dropped a table of the database

Every class has a stable `code` for programs and `retry`, which says whether the same request may succeed later
without a change; `nothing_done` is false if the request may have been carried out despite the error (core/retry.py has
the retry rule). Fields are typed and errors can be pickled, because Spark moves them between processes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar

Error = TypeVar("Error", bound="HeadraceError")


@dataclass(eq=False)
class HeadraceError(Exception):
    """The root: catch this to catch every error that Headrace raises on purpose."""

    code: ClassVar[str] = "error"
    retry: ClassVar[bool] = False
    nothing_done: ClassVar[bool] = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.details())

    def details(self) -> dict[str, Any]:
        """The typed fields by name, for servers that translate errors."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _restore(kind: type[HeadraceError], values: dict[str, Any]) -> HeadraceError:
    return kind(**values)


def again(error: Error) -> Error:
    """A copy of an error, to be raised again.

    Raising the same object repeatedly would add frames to its traceback each time and keep them alive.
    """
    twin = copy(error)
    twin.__cause__ = error.__cause__
    return twin


def all_errors(root: type[HeadraceError] = HeadraceError) -> Iterator[type[HeadraceError]]:
    """Every class of the tree, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)


@dataclass(eq=False)
class InvalidInput(HeadraceError):
    """A value breaks a rule."""

    code: ClassVar[str] = "invalid_input"
    field: str
    value: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field} is {self.value}: {self.rule}"


@dataclass(eq=False)
class InvalidMessage(InvalidInput):
    """A value in one row of a batch breaks a rule; the whole batch was rejected."""

    code: ClassVar[str] = "invalid_message"
    row: int

    def __str__(self) -> str:
        return f"row {self.row}: {self.field} is {self.value}: {self.rule}"


@dataclass(eq=False)
class MessageTooLarge(InvalidMessage):
    """A message is larger than its topic allows."""

    code: ClassVar[str] = "message_too_large"


@dataclass(eq=False)
class CodecNotAllowed(InvalidMessage):
    """A message names a codec that its topic does not list."""

    code: ClassVar[str] = "codec_not_allowed"


@dataclass(eq=False)
class SeqnoJump(InvalidMessage):
    """A seqno is so far above the last one of its source that it must be a mistake."""

    code: ClassVar[str] = "seqno_jump"


@dataclass(eq=False)
class PartitionsCannotShrink(InvalidInput):
    """A topic cannot have fewer partitions than it has now."""

    code: ClassVar[str] = "partitions_cannot_shrink"


@dataclass(eq=False)
class NotFound(HeadraceError):
    """Something named in the request does not exist."""

    code: ClassVar[str] = "not_found"


@dataclass(eq=False)
class TopicNotFound(NotFound):
    """No topic has this name."""

    code: ClassVar[str] = "topic_not_found"
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} does not exist: create it first"


@dataclass(eq=False)
class PartitionNotFound(NotFound):
    """The topic has no partition with this number."""

    code: ClassVar[str] = "partition_not_found"
    topic: str
    partition: int
    partitions: int

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of topic {self.topic!r} does not exist: "
            f"the topic has partitions 0 to {self.partitions - 1}"
        )


@dataclass(eq=False)
class GroupNotFound(NotFound):
    """The topic has no group with this name."""

    code: ClassVar[str] = "group_not_found"
    topic: str
    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} of topic {self.topic!r} does not exist: create it first"


@dataclass(eq=False)
class SourceNotFound(NotFound):
    """The topic has no such source."""

    code: ClassVar[str] = "source_not_found"
    topic: str
    producer_id: str
    message_group_id: str

    def __str__(self) -> str:
        group = f" with message group {self.message_group_id!r}" if self.message_group_id else ""
        return f"topic {self.topic!r} has no producer {self.producer_id!r}{group}: list its sources, and check the ids"


@dataclass(eq=False)
class MemberNotFound(NotFound):
    """The group has no such member, or its session expired."""

    code: ClassVar[str] = "member_not_found"
    group: str
    member: str

    def __str__(self) -> str:
        return f"{self.member!r} is not a member of group {self.group!r} (its session may have expired): join again"


@dataclass(eq=False)
class StageNotFound(NotFound):
    """A stage does not exist: never written, dropped, already published, or expired."""

    code: ClassVar[str] = "stage_not_found"
    topic: str
    stage: str

    def __str__(self) -> str:
        return f"stage {self.stage!r} of topic {self.topic!r} does not exist: stage the rows again"


@dataclass(eq=False)
class IdNotFound(NotFound):
    """The topic has no consumer or producer with this id, or no topic has it."""

    code: ClassVar[str] = "id_not_found"
    kind: str
    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}_id is {self.id}: {self.reason}"


@dataclass(eq=False)
class Conflict(HeadraceError):
    """The request conflicts with the current state."""

    code: ClassVar[str] = "conflict"


@dataclass(eq=False)
class TopicExists(Conflict):
    """The topic already exists."""

    code: ClassVar[str] = "topic_exists"
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} already exists: use it, or choose another name"


@dataclass(eq=False)
class SettingsConflict(Conflict):
    """The topic already exists with other settings."""

    code: ClassVar[str] = "settings_conflict"
    topic: str
    setting: str
    value: str
    present: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} exists with {self.setting} {self.present}, not {self.value}: "
            f"alter the topic to change it"
        )


@dataclass(eq=False)
class GroupSizeConflict(Conflict):
    """The group has another kind or size."""

    code: ClassVar[str] = "group_size_conflict"
    group: str
    rule: str

    def __str__(self) -> str:
        return f"group {self.group!r}: {self.rule}"


@dataclass(eq=False)
class StaleGeneration(Conflict):
    """The group was moved since the generation given, or the partition had another owner since."""

    code: ClassVar[str] = "stale_generation"
    group: str
    generation: int
    current: int

    def __str__(self) -> str:
        return (
            f"generation {self.generation} of group {self.group!r} has ended, the current one is {self.current}: "
            f"send a heartbeat to get the new partitions"
        )


@dataclass(eq=False)
class PartitionNotOwned(Conflict):
    """The partition is assigned to another member."""

    code: ClassVar[str] = "partition_not_owned"
    group: str
    member: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} is not assigned to {self.member!r} in group {self.group!r}"


@dataclass(eq=False)
class CommitConflict(Conflict):
    """The writer has published another commit with this number, or later ones; no topic: to several topics."""

    code: ClassVar[str] = "commit_conflict"
    topic: str
    writer: str
    number: int
    last: int

    def __str__(self) -> str:
        known = f"another batch {self.number}" if self.number == self.last else f"batches up to {self.last}"
        known += f" to topic {self.topic!r}" if self.topic else ""
        return (
            f"writer {self.writer!r} has published {known}, and this is its batch "
            f"{self.number}: two jobs write with one id, or a checkpoint was copied or restored. Nothing of this batch "
            f"was written, and a retry does not help: give each job its own id and its own checkpoint"
        )


@dataclass(eq=False)
class ProducerFenced(Conflict):
    """A newer producer with the same id was opened; only the newest may write."""

    code: ClassVar[str] = "producer_fenced"
    topic: str
    producer_id: str
    epoch: int
    current: int

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id!r} of topic {self.topic!r} with epoch {self.epoch} was fenced by one with "
            f"epoch {self.current}: close this one, or open it again to take over"
        )


@dataclass(eq=False)
class MessagesHeld(Conflict):
    """An important group has not read the messages that were to be deleted."""

    code: ClassVar[str] = "messages_held"
    topic: str
    partition: int
    before_offset: int
    group: str
    committed: int

    def __str__(self) -> str:
        return (
            f"messages of partition {self.partition} of topic {self.topic!r} before offset {self.before_offset} cannot "
            f"be deleted: the important group {self.group!r} has read up to offset {self.committed} only; "
            "try again when it has read them, or make the group unimportant"
        )


@dataclass(eq=False)
class AccessDenied(HeadraceError):
    """Access denied."""

    code: ClassVar[str] = "access_denied"


@dataclass(eq=False)
class Unauthenticated(AccessDenied):
    """The caller has no valid token."""

    code: ClassVar[str] = "unauthenticated"
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: send a valid token"


@dataclass(eq=False)
class Forbidden(AccessDenied):
    """The token lacks the right."""

    code: ClassVar[str] = "forbidden"
    caller: str
    right: str
    topic: str
    group: str = ""
    producer_id: str = ""

    def __str__(self) -> str:
        limits = f" for group {self.group!r}" if self.group else ""
        limits += f" as producer {self.producer_id!r}" if self.producer_id else ""
        remedy = "use a token that has it"
        if self.producer_id:
            remedy += "; an id that tokens are limited to by name is refused to all others"
        return f"token {self.caller!r} has no right to {self.right} {self.topic!r}{limits}: {remedy}"


@dataclass(eq=False)
class OffsetOutOfRange(HeadraceError):
    """The offset is below the oldest message kept or beyond the end."""

    code: ClassVar[str] = "offset_out_of_range"
    topic: str
    partition: int
    offset: int
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of partition {self.partition} of topic {self.topic!r} is out of range: "
            f"it must be {self.start} (the oldest kept) to {self.end} (the next to be written)"
        )


@dataclass(eq=False)
class MessagesLost(HeadraceError):
    """Messages were deleted before they were read."""

    code: ClassVar[str] = "messages_lost"
    topic: str
    ranges: str
    remedy: str

    def __str__(self) -> str:
        return f"messages of topic {self.topic!r} were deleted before they were read: {self.ranges}. {self.remedy}"


@dataclass(eq=False)
class Undecodable(HeadraceError):
    """The value of a message cannot be decoded by its codec, or by the serializer of the consumer."""

    code: ClassVar[str] = "undecodable"
    topic: str
    partition: int
    offset: int
    codec: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the message at offset {self.offset} of partition {self.partition} of topic {self.topic!r} cannot be "
            f"decoded as {self.codec!r} ({self.reason}): continue at offset {self.offset + 1}, or read "
            f"with on_undecodable raw or skip"
        )


@dataclass(eq=False)
class Overloaded(HeadraceError):
    """A bounded queue stayed full for the whole time limit; nothing was accepted."""

    code: ClassVar[str] = "overloaded"
    retry: ClassVar[bool] = True
    what: str
    limit: int
    waited_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.what} was full (limit {self.limit}) for {self.waited_seconds:g} s, nothing was accepted: "
            f"try again later"
        )


@dataclass(eq=False)
class LimitExceeded(HeadraceError):
    """A caller is over one of its limits; nothing was done."""

    code: ClassVar[str] = "limit_exceeded"
    retry: ClassVar[bool] = True
    principal: str
    what: str
    setting: str
    limit: int
    retry_after_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.principal!r} is at its limit of {self.limit} {self.what} ({self.setting}), nothing was done: "
            f"try again after {self.retry_after_seconds:g} s"
        )


@dataclass(eq=False)
class QuotaExceeded(HeadraceError):
    """The store has as many of something as its settings allow; nothing was made."""

    code: ClassVar[str] = "quota_exceeded"
    what: str
    setting: str
    limit: int

    def __str__(self) -> str:
        return f"there are {self.limit} {self.what}, more are not allowed ({self.setting}): delete some, or raise it"


@dataclass(eq=False)
class Gone(HeadraceError):
    """The object of the request no longer exists."""

    code: ClassVar[str] = "gone"


@dataclass(eq=False)
class TopicDeleted(Gone):
    """The topic was deleted while the request was running."""

    code: ClassVar[str] = "topic_deleted"
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} was deleted"


@dataclass(eq=False)
class Closed(Gone):
    """The broker, or the object used, was closed."""

    code: ClassVar[str] = "closed"
    nothing_done: ClassVar[bool] = False
    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"


@dataclass(eq=False)
class Forked(HeadraceError):
    """An object was used in a process forked after its creation; its threads run only in the parent."""

    code: ClassVar[str] = "forked"
    what: str

    def __str__(self) -> str:
        return (
            f"{self.what} was used before this process was forked and does not work here: call headrace.connect() "
            f"for the first time in the new process (post_fork of gunicorn, worker_process_init of Celery), or start "
            f"processes with the spawn or forkserver method"
        )


@dataclass(eq=False)
class Untrusted(HeadraceError):
    """TLS failed for a reason that a retry does not change."""

    code: ClassVar[str] = "untrusted"
    url: str
    reason: str

    def __str__(self) -> str:
        return f"no TLS connection to {self.url}: {self.reason}"


@dataclass(eq=False)
class Unreachable(HeadraceError):
    """No server answers at the address; nothing was done."""

    code: ClassVar[str] = "unreachable"
    retry: ClassVar[bool] = True
    address: str
    reason: str

    def __str__(self) -> str:
        return f"no server answers at {self.address} ({self.reason}): check the address, or try again later"


@dataclass(eq=False)
class AnswerLost(Unreachable):
    """The connection broke before the answer arrived."""

    code: ClassVar[str] = "answer_lost"
    retry: ClassVar[bool] = False
    nothing_done: ClassVar[bool] = False

    def __str__(self) -> str:
        return (
            f"the connection to {self.address} broke before the answer arrived ({self.reason}): the request may or "
            f"may not have been carried out; check before you repeat it"
        )


@dataclass(eq=False)
class ServerFailed(HeadraceError):
    """An unexpected error in the server."""

    code: ClassVar[str] = "server_failed"
    nothing_done: ClassVar[bool] = False
    reason: str

    def __str__(self) -> str:
        return f"the server failed: {self.reason}"


@dataclass(eq=False)
class StorageError(HeadraceError):
    """The store failed."""

    code: ClassVar[str] = "storage_error"


@dataclass(eq=False)
class StoreUnavailable(StorageError):
    """The store cannot be opened now."""

    code: ClassVar[str] = "store_unavailable"
    retry: ClassVar[bool] = True
    nothing_done: ClassVar[bool] = False
    store: str
    reason: str

    def __str__(self) -> str:
        return f"store {self.store} cannot be opened: {self.reason}"


@dataclass(eq=False)
class UnknownFormat(StorageError):
    """The file has a format version that this Headrace does not support."""

    code: ClassVar[str] = "unknown_format"
    file: str
    version: int
    known: int

    def __str__(self) -> str:
        return f"{self.file} has format version {self.version}, this Headrace supports up to {self.known}: upgrade it"


@dataclass(eq=False)
class DiskFull(StorageError):
    """The disk is full; nothing was written. `topic` is empty if it concerns the store, such as a commit of a group."""

    code: ClassVar[str] = "disk_full"
    retry: ClassVar[bool] = True
    topic: str
    reason: str

    def __str__(self) -> str:
        what = f"topic {self.topic!r}" if self.topic else "the store"
        return f"{what} could not be written ({self.reason}), nothing was accepted: free space and retry"


@dataclass(eq=False)
class TooManyOpenFiles(StoreUnavailable):
    """The process or the system has too many open files; nothing was written."""

    code: ClassVar[str] = "too_many_open_files"

    def __str__(self) -> str:
        return (
            f"{self.store} needs a file that cannot be opened ({self.reason}), nothing was done: "
            f"raise the server's limit of open files (ulimit -n), or retry later"
        )


@dataclass(eq=False)
class OutOfMemory(StoreUnavailable):
    """Not enough memory for this request; nothing was done."""

    code: ClassVar[str] = "out_of_memory"

    def __str__(self) -> str:
        return f"{self.store} needs more memory than available ({self.reason}), nothing was done: retry, or send less"


# Numbers of OSError: the disk, a quota or the size of a file allows no more.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def exhausted(what: str, error: BaseException) -> StorageError | None:
    """The error for an exhausted system resource (open files, memory, disk space), or None for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if number in NO_ROOM:
        return DiskFull("", f"{what}: {error}")
    if number in (errno.EMFILE, errno.ENFILE):
        return TooManyOpenFiles(what, str(error))
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return OutOfMemory(what, str(error) or "allocation failed")
    return None


@dataclass(eq=False)
class OutcomeUnknown(StorageError):
    """The write may or may not have survived; only a retry with the same seqno or commit key is safe."""

    code: ClassVar[str] = "outcome_unknown"
    retry: ClassVar[bool] = True
    nothing_done: ClassVar[bool] = False
    topic: str
    reason: str

    def __str__(self) -> str:
        return (
            f"publishing to topic {self.topic!r} failed half-way ({self.reason}): the messages may or may not be "
            f"written; a retry with the same producer id and seqno or commit key writes nothing twice "
            f"(a disk store must be reopened first)"
        )


@dataclass(eq=False)
class LogFailed(StorageError):
    """An earlier write to this topic failed; nothing more is accepted until the store is reopened."""

    code: ClassVar[str] = "log_failed"
    retry: ClassVar[bool] = True
    topic: str
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} accepts no messages after a failed write ({self.reason}): "
            f"restart the server; reading still works"
        )


@dataclass(eq=False)
class Damaged(StorageError):
    """Bytes on the disk differ from what was written."""

    code: ClassVar[str] = "damaged"
    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position}: {self.reason}; run headrace doctor on this store"


@dataclass(eq=False)
class TableMissing(StorageError):
    """A table with messages, or the rows that locate them, were dropped outside Headrace."""

    code: ClassVar[str] = "table_missing"
    topic: str
    table: str

    def __str__(self) -> str:
        return (
            f"messages of topic {self.topic!r} cannot be read: {self.table} was dropped from the database, not by "
            f"Headrace; restore it from a backup of the database, or delete the topic. A retry does not help"
        )
