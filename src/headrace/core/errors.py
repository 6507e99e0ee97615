"""One tree for everything that can go wrong.

    HeadraceError
    ├── InvalidInput            a value breaks a rule; nothing was written
    │   ├── InvalidMessage      … in one row of a batch
    │   │   ├── MessageTooLarge
    │   │   ├── CodecNotAllowed
    │   │   └── SeqnoJump       far above the last of its source: reset the source first if it is meant
    │   └── PartitionsCannotShrink
    ├── NotFound
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── GroupNotFound
    │   ├── MemberNotFound      the member left or its session ran out: join again
    │   ├── StageNotFound
    │   ├── SourceNotFound      nothing is known of this producer id and message group id
    │   └── IdNotFound          nobody has this id of the queue API in this topic
    ├── Conflict                the request does not fit the present state
    │   ├── TopicExists
    │   ├── SettingsConflict
    │   ├── GroupSizeConflict
    │   ├── StaleGeneration     the group has changed since: heartbeat, then go on
    │   ├── PartitionNotOwned
    │   └── ProducerFenced      another producer with the same id took over
    ├── AccessDenied
    │   ├── Unauthenticated     no token, or one that is unknown or revoked
    │   └── Forbidden           the token does not give this right on this topic, group or producer id
    ├── OffsetOutOfRange
    ├── MessagesLost            retention dropped what a reader had yet to read
    ├── Undecodable             the value of one message does not fit its codec; those before it were given out
    ├── Overloaded              nothing was accepted; try again later
    ├── LimitExceeded           this caller has too much under way, or is too fast; try again later
    ├── QuotaExceeded           the store has as many of something as its settings allow; delete some, or raise it
    ├── Gone                    what was waited for has ended
    │   ├── TopicDeleted
    │   └── Closed
    ├── Forked                  it was made before this process was forked: connect in this process
    ├── Unreachable             no server answers; try again later
    │   └── AnswerLost          the connection broke: what was asked may or may not have been done
    ├── ServerFailed            something unexpected went wrong in the server
    └── StorageError
        ├── StoreUnavailable    locked by another process, or cannot be opened
        │   ├── TooManyOpenFiles    nothing was written; raise the limit of open files, or try again later
        │   └── OutOfMemory     nothing was done; try again later, or with less
        ├── UnknownFormat       written by a newer Headrace
        ├── DiskFull            nothing was written; try again once there is room
        ├── OutcomeUnknown      the write may or may not have survived
        ├── LogFailed           an earlier write failed; publishing needs a reopen, reading goes on
        ├── Damaged             bytes on the disk are not what was written
        └── TableMissing        a table of the database was dropped by hand

Every class has a stable `code` for programs and `retry`, which says whether the same request may succeed later
without a change; `nothing_done` is false where the request may have been carried out all the same (core/retry.py has
the rule that follows). Fields are typed and errors can be pickled, since Spark carries them between processes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

Error = TypeVar("Error", bound="HeadraceError")


@dataclass(eq=False)
class HeadraceError(Exception):
    """The root: catch this to catch everything Headrace raises on purpose."""

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
    """The same error, to be raised once more.

    An error that is kept and raised as it is keeps the frames of everyone who ever met it, and more of them each time.
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
    """A value in one row of a batch breaks a rule; the whole batch was refused."""

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
    """A seqno is so far above the last of its source that it must be a mistake."""

    code: ClassVar[str] = "seqno_jump"


@dataclass(eq=False)
class PartitionsCannotShrink(InvalidInput):
    """A topic was to have fewer partitions than it has."""

    code: ClassVar[str] = "partitions_cannot_shrink"


@dataclass(eq=False)
class NotFound(HeadraceError):
    """Something named in the request is not there."""

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
    """The topic has no partition of this number."""

    code: ClassVar[str] = "partition_not_found"
    topic: str
    partition: int
    partitions: int

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of topic {self.topic!r} does not exist: "
            f"it has partitions 0 to {self.partitions - 1}"
        )


@dataclass(eq=False)
class GroupNotFound(NotFound):
    """The topic has no group of this name."""

    code: ClassVar[str] = "group_not_found"
    topic: str
    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} of topic {self.topic!r} does not exist: register it first"


@dataclass(eq=False)
class SourceNotFound(NotFound):
    """The topic knows of no such source."""

    code: ClassVar[str] = "source_not_found"
    topic: str
    producer_id: str
    message_group_id: str

    def __str__(self) -> str:
        group = f" with message group {self.message_group_id!r}" if self.message_group_id else ""
        return (
            f"topic {self.topic!r} knows no producer {self.producer_id!r}{group}: list its sources, and check the ids"
        )


@dataclass(eq=False)
class MemberNotFound(NotFound):
    """The group has no such member, or no longer."""

    code: ClassVar[str] = "member_not_found"
    group: str
    member: str

    def __str__(self) -> str:
        return f"{self.member!r} is not a member of group {self.group!r} (its session may have run out): join again"


@dataclass(eq=False)
class StageNotFound(NotFound):
    """A stage is not there: never written, dropped, published before, or expired."""

    code: ClassVar[str] = "stage_not_found"
    topic: str
    stage: str

    def __str__(self) -> str:
        return f"stage {self.stage!r} of topic {self.topic!r} is not there: stage the rows again"


@dataclass(eq=False)
class IdNotFound(NotFound):
    """No consumer or producer of the topic has this id."""

    code: ClassVar[str] = "id_not_found"
    kind: str
    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}_id is {self.id}: {self.reason}"


@dataclass(eq=False)
class Conflict(HeadraceError):
    """The request does not fit the present state."""

    code: ClassVar[str] = "conflict"


@dataclass(eq=False)
class TopicExists(Conflict):
    """A topic was to be made that is there."""

    code: ClassVar[str] = "topic_exists"
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} exists"


@dataclass(eq=False)
class SettingsConflict(Conflict):
    """A topic that exists was to be created with other settings."""

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
    """A group of one kind or size was addressed as another."""

    code: ClassVar[str] = "group_size_conflict"
    group: str
    rule: str

    def __str__(self) -> str:
        return f"group {self.group!r}: {self.rule}"


@dataclass(eq=False)
class StaleGeneration(Conflict):
    """The group has changed since the member last heard of it."""

    code: ClassVar[str] = "stale_generation"
    group: str
    generation: int
    current: int

    def __str__(self) -> str:
        return (
            f"generation {self.generation} of group {self.group!r} is over, it is at {self.current}: "
            f"heartbeat to learn the new partitions"
        )


@dataclass(eq=False)
class PartitionNotOwned(Conflict):
    """A member acted on a partition that is assigned to another."""

    code: ClassVar[str] = "partition_not_owned"
    group: str
    member: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} is not assigned to {self.member!r} in group {self.group!r}"


@dataclass(eq=False)
class ProducerFenced(Conflict):
    """Another producer with the same id was opened since; only the newest may write."""

    code: ClassVar[str] = "producer_fenced"
    topic: str
    producer_id: str
    epoch: int
    current: int

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id!r} of topic {self.topic!r} with epoch {self.epoch} was taken over by one with "
            f"epoch {self.current}: close this one, or open it again to take over"
        )


@dataclass(eq=False)
class AccessDenied(HeadraceError):
    """The caller may not do this."""

    code: ClassVar[str] = "access_denied"


@dataclass(eq=False)
class Unauthenticated(AccessDenied):
    """The caller did not say who it is in a way that is known here."""

    code: ClassVar[str] = "unauthenticated"
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: send a valid token"


@dataclass(eq=False)
class Forbidden(AccessDenied):
    """The caller is known and lacks the right."""

    code: ClassVar[str] = "forbidden"
    caller: str
    right: str
    topic: str
    group: str = ""
    producer_id: str = ""

    def __str__(self) -> str:
        limits = f" for group {self.group!r}" if self.group else ""
        limits += f" as producer {self.producer_id!r}" if self.producer_id else ""
        return f"token {self.caller!r} has no right to {self.right} {self.topic!r}{limits}: ask for one that has"


@dataclass(eq=False)
class OffsetOutOfRange(HeadraceError):
    """An offset is below the oldest message kept or beyond the end."""

    code: ClassVar[str] = "offset_out_of_range"
    topic: str
    partition: int
    offset: int
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of partition {self.partition} of topic {self.topic!r} is out of range: "
            f"valid are {self.start} (the oldest kept) to {self.end} (the next to be written)"
        )


@dataclass(eq=False)
class MessagesLost(HeadraceError):
    """Messages that a reader had yet to read are gone."""

    code: ClassVar[str] = "messages_lost"
    topic: str
    ranges: str
    remedy: str

    def __str__(self) -> str:
        return f"messages of topic {self.topic!r} are gone before they were read: {self.ranges}. {self.remedy}"


@dataclass(eq=False)
class Undecodable(HeadraceError):
    """The value of one message does not fit the codec that the message names."""

    code: ClassVar[str] = "undecodable"
    topic: str
    partition: int
    offset: int
    codec: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the message at offset {self.offset} of partition {self.partition} of topic {self.topic!r} cannot be "
            f"decoded by its codec {self.codec!r} ({self.reason}): continue at offset {self.offset + 1}, or read "
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
    """What the request waited for has ended."""

    code: ClassVar[str] = "gone"


@dataclass(eq=False)
class TopicDeleted(Gone):
    """The topic was deleted while the request was under way."""

    code: ClassVar[str] = "topic_deleted"
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} was deleted"


@dataclass(eq=False)
class Closed(Gone):
    """The broker, or the thing asked, was closed."""

    code: ClassVar[str] = "closed"
    nothing_done: ClassVar[bool] = False
    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"


@dataclass(eq=False)
class Forked(HeadraceError):
    """Something was used in a process that was forked after it was made; its threads are in the other."""

    code: ClassVar[str] = "forked"
    what: str

    def __str__(self) -> str:
        return (
            f"{self.what} was used before this process was forked, and does not work in it: call headrace.connect() "
            f"for the first time in the new process (post_fork of gunicorn, worker_process_init of Celery), or start "
            f"processes by the method spawn or forkserver"
        )


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
    """The connection broke before the answer came."""

    code: ClassVar[str] = "answer_lost"
    retry: ClassVar[bool] = False
    nothing_done: ClassVar[bool] = False

    def __str__(self) -> str:
        return (
            f"the connection to {self.address} broke before the answer came ({self.reason}): what was asked may or "
            f"may not have been done; look before asking again"
        )


@dataclass(eq=False)
class ServerFailed(HeadraceError):
    """Something went wrong in the server that nobody expected."""

    code: ClassVar[str] = "server_failed"
    nothing_done: ClassVar[bool] = False
    reason: str

    def __str__(self) -> str:
        return f"the server failed: {self.reason}"


@dataclass(eq=False)
class StorageError(HeadraceError):
    """The store could not do it."""

    code: ClassVar[str] = "storage_error"


@dataclass(eq=False)
class StoreUnavailable(StorageError):
    """The store cannot be opened here and now."""

    code: ClassVar[str] = "store_unavailable"
    retry: ClassVar[bool] = True
    nothing_done: ClassVar[bool] = False
    store: str
    reason: str

    def __str__(self) -> str:
        return f"store {self.store} cannot be opened: {self.reason}"


@dataclass(eq=False)
class UnknownFormat(StorageError):
    """The bytes are of a version this Headrace does not know."""

    code: ClassVar[str] = "unknown_format"
    file: str
    version: int
    known: int

    def __str__(self) -> str:
        return f"{self.file} has format version {self.version}, this Headrace knows up to {self.known}: upgrade it"


@dataclass(eq=False)
class DiskFull(StorageError):
    """There is no room; nothing was written."""

    code: ClassVar[str] = "disk_full"
    retry: ClassVar[bool] = True
    topic: str
    reason: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} could not be written ({self.reason}), nothing was accepted: make room and retry"


@dataclass(eq=False)
class TooManyOpenFiles(StoreUnavailable):
    """The process, or the system, may open no more files; nothing was written."""

    code: ClassVar[str] = "too_many_open_files"

    def __str__(self) -> str:
        return (
            f"{self.store} needs a file that cannot be opened ({self.reason}), nothing was done: "
            f"raise the server's limit of open files (ulimit -n), or retry later"
        )


@dataclass(eq=False)
class OutOfMemory(StoreUnavailable):
    """There is not enough memory for this request; nothing was done."""

    code: ClassVar[str] = "out_of_memory"

    def __str__(self) -> str:
        return f"{self.store} needs more memory than there is ({self.reason}), nothing was done: retry, or send less"


def exhausted(what: str, error: BaseException) -> StoreUnavailable | None:
    """The error that says which of the system's means ran out, or none if it was something else."""
    number = error.errno if isinstance(error, OSError) else None
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
            f"there; a retry with the same producer id and seqno or commit key writes nothing twice "
            f"(a store on disk must be opened again before)"
        )


@dataclass(eq=False)
class LogFailed(StorageError):
    """An earlier write to this topic failed; nothing more is accepted until the store is opened again."""

    code: ClassVar[str] = "log_failed"
    retry: ClassVar[bool] = True
    topic: str
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} accepts no messages after a failed write ({self.reason}): "
            f"restart the server; reading goes on"
        )


@dataclass(eq=False)
class Damaged(StorageError):
    """Bytes on the disk are not what was written."""

    code: ClassVar[str] = "damaged"
    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position}: {self.reason}; run the doctor on this store"


@dataclass(eq=False)
class TableMissing(StorageError):
    """A table that holds messages, or rows that tell where they are, were dropped by someone else."""

    code: ClassVar[str] = "table_missing"
    topic: str
    table: str

    def __str__(self) -> str:
        return (
            f"messages of topic {self.topic!r} cannot be read: {self.table} was dropped from the database, not by "
            f"Headrace; restore it from a backup of the database, or delete the topic. Trying again does not help"
        )
