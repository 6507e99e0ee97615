"""Errors as HTTP answers: problem+json with the error's stable code. The only place that translates errors to HTTP."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from numbers import Integral
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from headrace.core.errors import (
    Conflict,
    Forbidden,
    Gone,
    HeadraceError,
    InvalidInput,
    LimitExceeded,
    MessageTooLarge,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    QuotaExceeded,
    StorageError,
    TopicDeleted,
    Unauthenticated,
    exhausted,
)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
RETRY_AFTER_SECONDS_MAX: Final = 3600

# The first matching class counts, so subclasses come before their parents.
_STATUS: Final[tuple[tuple[type[HeadraceError], int], ...]] = (
    (MessageTooLarge, 413),
    (InvalidInput, 422),
    (OffsetOutOfRange, 422),
    (NotFound, 404),
    (TopicDeleted, 404),
    (Conflict, 409),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (LimitExceeded, 429),
    (QuotaExceeded, 429),
    (Overloaded, 503),
    (Gone, 503),
    (StorageError, 503),
)

# Codes for errors that the framework finds before the broker is called.
_HTTP_CODES: Final = {
    404: "route_not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "body_too_slow",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
}

logger = logging.getLogger(__name__)


class Problem(msgspec.Struct, omit_defaults=True):
    """An error, for programs (`code`, `retry`, `fields`) and for people (`title`, `detail`)."""

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
    """Convert an error of the core tree to a problem."""
    title = (type(error).__doc__ or "").split(".")[0].split(";")[0]
    kind = f"urn:headrace:{error.code}"
    fields = {name: _plain(value) for name, value in error.details().items()}
    return Problem(kind, title, status_of(error), _plain(str(error)), error.code, error.retry, fields)


def _plain(value: Any) -> Any:
    """Convert a value to JSON types: text of a request may be invalid, and the engine uses numpy numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(item) for item in value]
    return str(value)


def answer_headrace_error(_: Request[Any, Any, Any], error: HeadraceError) -> Response[Problem]:
    """Answer with an error of the core tree."""
    return respond(problem_of(error))


def answer_http_exception(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Answer with an error of the framework: unknown route, wrong method, invalid body."""
    # What the framework calls a bad request is invalid input, which is 422 everywhere else.
    status = 422 if error.status_code == 400 else error.status_code
    fields = {"problems": _plain(error.extra)} if error.extra else {}
    title, code = HTTPStatus(status).phrase, _HTTP_CODES.get(status, f"http_{status}")
    problem = Problem("about:blank", title, status, _plain(error.detail), code, status == 503, fields)
    return respond(problem, error.headers)


def answer_anything(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Answer with an unexpected error: logged with its traceback, answered without it."""
    short = exhausted("this request", error)
    if short is not None:
        logger.error("%s %s: %s", request.method, request.url.path, short)
        return respond(problem_of(short))
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return respond(internal_problem())


def internal_problem() -> Problem:
    """The answer to an unexpected error."""
    detail = "unexpected error in the server; its log has the details"
    return Problem("about:blank", "Internal error", 500, detail, "internal_error", False)


def retry_after_seconds(problem: Problem) -> int:
    """When to retry after a temporary problem, in whole seconds."""
    seconds = float(problem.fields.get("retry_after_seconds", 0.0))
    return max(RETRY_AFTER_SECONDS, math.ceil(min(seconds, RETRY_AFTER_SECONDS_MAX)))


def respond(problem: Problem, more_headers: Mapping[str, str] | None = None) -> Response[Problem]:
    """A problem as an answer; a temporary one says when to retry."""
    headers = {**more_headers} if more_headers else {}
    if problem.retry or problem.status == 503:
        headers["Retry-After"] = str(retry_after_seconds(problem))
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
