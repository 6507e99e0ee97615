"""Errors of the core as Kafka's error codes. The only place that translates errors to Kafka.

Kafka's clients decide by the code alone whether they try again, so codes were chosen by that: what may succeed later
has a code that clients retry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core import errors as core
from headrace.protocols.kafka.messages.rows import NumberRows
from headrace.protocols.kafka.records.header import BadRecords

logger = logging.getLogger(__name__)

# Subclasses before their parents: the first that fits counts.
_CODES: Final[tuple[tuple[type[Exception], ErrorCode], ...]] = (
    (core.MessageTooLarge, ErrorCode.message_too_large),
    (core.SeqnoJump, ErrorCode.out_of_order_sequence_number),
    (core.InvalidMessage, ErrorCode.invalid_record),
    (core.PartitionsCannotShrink, ErrorCode.invalid_partitions),
    (core.InvalidInput, ErrorCode.invalid_request),
    (core.GroupNotFound, ErrorCode.group_id_not_found),
    (core.MemberNotFound, ErrorCode.unknown_member_id),
    (core.IdNotFound, ErrorCode.unknown_topic_id),
    (core.NotFound, ErrorCode.unknown_topic_or_partition),
    (core.TopicExists, ErrorCode.topic_already_exists),
    (core.SettingsConflict, ErrorCode.topic_already_exists),
    (core.GroupSizeConflict, ErrorCode.inconsistent_group_protocol),
    (core.StaleGeneration, ErrorCode.illegal_generation),
    (core.ProducerFenced, ErrorCode.invalid_producer_epoch),
    (core.MessagesHeld, ErrorCode.policy_violation),
    (core.OffsetOutOfRange, ErrorCode.offset_out_of_range),
    (core.MessagesLost, ErrorCode.offset_out_of_range),
    (core.Overloaded, ErrorCode.request_timed_out),
    (core.LimitExceeded, ErrorCode.request_timed_out),
    (core.QuotaExceeded, ErrorCode.policy_violation),
    (core.TopicDeleted, ErrorCode.unknown_topic_or_partition),
    (core.Closed, ErrorCode.not_leader_or_follower),
    (core.OutcomeUnknown, ErrorCode.request_timed_out),
    (core.StorageError, ErrorCode.kafka_storage_error),
)


def code_of(error: Exception) -> ErrorCode:
    """The code that tells a client what happened to its request; unexpected errors are logged."""
    if isinstance(error, BadRecords):
        return ErrorCode[error.error]
    if isinstance(error, core.Forbidden):
        return ErrorCode.group_authorization_failed if error.group else ErrorCode.topic_authorization_failed
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if not isinstance(error, core.HeadraceError):
        logger.error("a Kafka request failed", exc_info=error)
    return ErrorCode.unknown_server_error


def outcome_of(answer: Mapping[str, Any]) -> str:
    """The name of the first error in an answer, of the request or of one of its parts; `none` without any."""
    code = _first_error(answer)
    return ErrorCode(code).name if code else "none"


def _first_error(answer: Mapping[str, Any]) -> int:
    code: int = answer.get("error_code", ErrorCode.none)
    if code:
        return code
    for parts in answer.values():
        if type(parts) is NumberRows and (code := parts.first_error()):
            return code
        if type(parts) is list:
            for part in parts:
                if type(part) is dict and (code := _first_error(part)):
                    return code
    return ErrorCode.none


def message_of(error: Exception) -> str:
    """What a person reads of it; unexpected errors say nothing of the inside."""
    return str(error)[:1000] if isinstance(error, core.HeadraceError | BadRecords) else "unexpected error, see the log"
