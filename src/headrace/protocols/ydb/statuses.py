"""Errors as YDB's statuses. The only place that translates them.

YDB's SDKs decide by the status alone whether they try again: what may succeed later has one that they retry.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace.core import errors as core
from headrace.protocols.ydb.stubs import issues, status_codes

Status = status_codes.StatusIds
_MESSAGE_CHARACTERS_MAX: Final = 1000
_SEVERITY_ERROR: Final = 1

logger = logging.getLogger(__name__)


class YdbRefusal(Exception):
    """A call that breaks a rule of this protocol, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# Subclasses before their parents: the first that fits counts.
_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (core.InvalidInput, Status.BAD_REQUEST),
    (core.OffsetOutOfRange, Status.BAD_REQUEST),
    (core.ProducerFenced, Status.BAD_REQUEST),
    (core.MemberNotFound, Status.SESSION_EXPIRED),
    (core.NotFound, Status.SCHEME_ERROR),
    (core.TopicDeleted, Status.SCHEME_ERROR),
    (core.TopicExists, Status.ALREADY_EXISTS),
    (core.StaleGeneration, Status.BAD_SESSION),
    (core.PartitionNotOwned, Status.BAD_SESSION),
    (core.Conflict, Status.PRECONDITION_FAILED),
    (core.QuotaExceeded, Status.PRECONDITION_FAILED),
    (core.AccessDenied, Status.UNAUTHORIZED),
    (core.Overloaded, Status.OVERLOADED),
    (core.LimitExceeded, Status.OVERLOADED),
    (core.DiskFull, Status.OVERLOADED),
    (core.StorageError, Status.UNAVAILABLE),
    (core.Gone, Status.UNAVAILABLE),
)


def status_of(error: Exception) -> int:
    """The status that tells a client what happened; unexpected errors are logged."""
    if isinstance(error, YdbRefusal):
        return error.status
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    if not isinstance(error, core.HeadraceError):
        logger.error("a YDB call failed", exc_info=error)
    return int(Status.INTERNAL_ERROR)


def issues_of(error: Exception) -> list[issues.IssueMessage]:
    """What a person reads of it; unexpected errors say nothing of the inside."""
    is_known = isinstance(error, core.HeadraceError | YdbRefusal)
    text = str(error)[:_MESSAGE_CHARACTERS_MAX] if is_known else "unexpected error, see the log"
    return [issues.IssueMessage(message=text, severity=_SEVERITY_ERROR)]
