"""What is refused, in the words of cursus: the only place that translates errors of the core.

    ERROR: topic_not_found topic=orders
    ERROR: topic_not_found class=not_found retryable=false topic=orders      where the client negotiated that

The class of a code says what a client can do about it. Codes that are not in the table are told by their form.
"""

from __future__ import annotations

import json
import logging
from typing import Final, NamedTuple

from headrace.core import errors as core

logger = logging.getLogger(__name__)

ERROR_CLASSES: Final = (
    "authorization", "availability", "conflict", "fencing", "internal", "not_found", "routing", "validation",
)  # fmt: skip

COMMAND_FAILED: Final = "command_failed"

_CLASSES: Final = {
    "GEN_MISMATCH": "fencing",
    "NOT_OWNER": "fencing",
    "member_not_found": "fencing",
    "producer_fenced": "fencing",
    "stale_producer_epoch": "fencing",
    "idempotency_gap": "fencing",
    "OFFSET_OUT_OF_RANGE": "conflict",
    "offset_regression": "conflict",
    "version_conflict": "conflict",
    "snapshot_version_exceeds_stream": "conflict",
    "producer_reinitialization_required": "conflict",
    "transaction_already_committed": "conflict",
    "transaction_aborted": "conflict",
    "authentication_failed": "authorization",
    "authentication_required": "authorization",
    "NOT_AUTHORIZED_FOR_TOPIC": "authorization",
    "UNSUPPORTED_FEATURE": "validation",
    "UNSUPPORTED_PROTOCOL_VERSION": "validation",
    "batch_decode_failed": "validation",
    "decode_failed": "validation",
    "duplicate_partition": "validation",
    "empty_messages": "validation",
    "event_sourcing_not_enabled": "validation",
    "malformed_input": "validation",
    "no_valid_offsets": "validation",
    "unknown_command": "validation",
    "unsupported_topic_policy": "validation",
}


class Quoted(str):
    """A value that is always quoted."""


class CursusRefusal(Exception):
    """A request is refused; fields are told after the code, in their order."""

    def __init__(self, code: str, is_retryable: bool = False, /, **fields: object) -> None:
        super().__init__(code)
        self.code = code
        self.is_retryable = is_retryable
        self.fields = fields

    def __str__(self) -> str:
        return self.text(is_structured=False)

    @property
    def error_class(self) -> str:
        """What a client can do about it."""
        if self.is_retryable:
            return "availability"
        if self.code in _CLASSES:
            return _CLASSES[self.code]
        if self.code.endswith("_not_found"):
            return "not_found"
        return "validation" if self.code.startswith(("missing_", "invalid_")) else "internal"

    def text(self, is_structured: bool) -> str:
        """The answer."""
        parts = [f"ERROR: {self.code}"]
        if is_structured:
            parts.append(f"class={self.error_class} retryable={str(self.is_retryable).lower()}")
        parts += [f"{name}={quoted(value)}" for name, value in self.fields.items()]
        return " ".join(parts)


def quoted(value: object) -> str:
    """A value of a field; one with blanks is quoted."""
    text = str(value)
    if isinstance(value, Quoted) or not text.isprintable() or any(each in text for each in ' "'):
        return json.dumps(text[:2_000], ensure_ascii=False)
    return text


class ErrorPlace(NamedTuple):
    """What a request was about, for errors that do not say all that clients read from them."""

    topic: str = ""
    group: str = ""
    member: str = ""


NO_PLACE: Final = ErrorPlace()


def refusal_of(error: Exception, place: ErrorPlace = NO_PLACE, code: str = COMMAND_FAILED) -> CursusRefusal:
    """An error as clients know it; what they have no code for gets `code`, and unexpected errors are logged."""
    if isinstance(error, CursusRefusal):
        return error
    found = _known(error, place)
    if found is not None:
        return found
    if isinstance(error, core.HeadraceError):
        about = {} if code == COMMAND_FAILED or not place.topic else {"topic": place.topic}
        return CursusRefusal(code, error.retry, **about, reason=Quoted(error))
    logger.error("a cursus request failed", exc_info=error)
    return CursusRefusal(code, reason=Quoted("the server failed unexpectedly; its log says why"))


def _known(error: Exception, place: ErrorPlace) -> CursusRefusal | None:
    if isinstance(error, core.TopicNotFound | core.TopicDeleted):
        return CursusRefusal("topic_not_found", topic=error.topic)
    if isinstance(error, core.PartitionNotFound):
        return CursusRefusal("partition_not_found", partition=error.partition)
    if isinstance(error, core.GroupNotFound):
        return CursusRefusal("group_not_found", group=error.group)
    if isinstance(error, core.OffsetOutOfRange):
        return CursusRefusal("OFFSET_OUT_OF_RANGE", requested=error.offset, earliest=error.start, latest=error.end)
    if isinstance(error, core.ProducerFenced):
        return CursusRefusal("producer_fenced", topic=error.topic, producer=error.producer_id)
    if isinstance(error, core.Unauthenticated):
        return CursusRefusal("authentication_required", reason=Quoted(error))
    if isinstance(error, core.Forbidden):
        return CursusRefusal("NOT_AUTHORIZED_FOR_TOPIC", topic=error.topic, reason=Quoted(error))
    return _of_members(error, place)


def _of_members(error: Exception, place: ErrorPlace) -> CursusRefusal | None:
    if isinstance(error, core.MemberNotFound):
        return CursusRefusal("member_not_found", member=error.member, group=error.group)
    if isinstance(error, core.StaleGeneration):
        current, requested = error.current, error.generation
        return CursusRefusal(
            "GEN_MISMATCH", current=current, requested=requested, group=error.group, member=place.member
        )
    if isinstance(error, core.PartitionNotOwned):
        return CursusRefusal("NOT_OWNER", partition=error.partition, member=error.member, group=error.group)
    return None
