"""Errors as frames of the native wire. The only place that translates errors for it."""

from __future__ import annotations

import logging

import msgspec

from headrace.core.errors import HeadraceError, InvalidInput, ServerFailed, exhausted
from headrace.wire import native
from headrace.wire.errors import UNEXPECTED_MARK, encode_error

logger = logging.getLogger(__name__)


def refusal(error: Exception) -> bytes:
    """The frame for an error: those of the core tree in full, unexpected ones hidden behind one line."""
    return native.frame(native.REFUSED, encode_error(_told(error)))


def _told(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return InvalidInput("request", "what was sent", f"it is malformed: {error}")
    short = exhausted("this call", error)
    if short is None:
        logger.error("a call over the native wire failed", exc_info=error)
        return ServerFailed(f"unexpected error: {UNEXPECTED_MARK}")
    logger.error("a call over the native wire failed: %s", short)
    return short
