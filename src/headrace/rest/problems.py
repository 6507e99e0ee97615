"""Errors as HTTP answers: problem+json with the core error's stable code; the only place where they are translated."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from headrace.core.errors import (
    Conflict,
    Forbidden,
    Gone,
    HeadraceError,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    StorageError,
    TopicDeleted,
    Unauthenticated,
)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1

# The first class that fits counts, so special cases stand before their parents.
_STATUS: Final[tuple[tuple[type[HeadraceError], int], ...]] = (
    (MessageTooLarge, 413),
    (InvalidInput, 422),
    (OffsetOutOfRange, 422),
    (NotFound, 404),
    (TopicDeleted, 404),
    (Conflict, 409),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (Overloaded, 503),
    (Gone, 503),
    (StorageError, 503),
)

logger = logging.getLogger(__name__)


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong, for programs (`code`, `retry`, `fields`) and for people (`title`, `detail`)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry: bool
    fields: dict[str, Any] = {}


def status_of(error: HeadraceError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: HeadraceError) -> Problem:
    """An error of the core tree as a problem."""
    title = (type(error).__doc__ or "").split(".")[0].split(";")[0]
    kind = f"urn:headrace:{error.code}"
    return Problem(kind, title, status_of(error), str(error), error.code, error.retry, error.details())


def answer_headrace_error(_: Request[Any, Any, Any], error: HeadraceError) -> Response[Problem]:
    """Answer with an error of the core tree."""
    return respond(problem_of(error))


def answer_http_exception(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Answer with an error that the framework found: no such route, wrong method, a body that does not fit."""
    status = 422 if isinstance(error, ValidationException) else error.status_code
    fields = {"problems": error.extra} if isinstance(error, ValidationException) and error.extra else {}
    return respond(Problem("about:blank", error.detail, status, error.detail, f"http_{status}", False, fields))


def answer_anything(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Answer with what nobody expected: logged with its trace, shown without."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "something unexpected went wrong here; the server's log has it"
    return respond(Problem("about:blank", "Internal error", 500, detail, "internal_error", False))


def respond(problem: Problem) -> Response[Problem]:
    """A problem as an answer; one that passes says when to come back."""
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if problem.retry or problem.status == 503 else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
