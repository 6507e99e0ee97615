"""Errors as Flight errors. The only place that translates errors to Flight."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyarrow import flight

from headrace.core.errors import (
    AccessDenied,
    Forbidden,
    HeadraceError,
    InvalidInput,
    LimitExceeded,
    Overloaded,
    Unauthenticated,
    exhausted,
)
from headrace.wire.errors import UNEXPECTED_MARK, encode_error

logger = logging.getLogger(__name__)


@contextmanager
def translated() -> Iterator[None]:
    """Send errors of the core tree to the client in full, and hide unexpected ones behind one line."""
    try:
        yield
    except HeadraceError as error:
        raise carrying(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise carrying(InvalidInput("request", "what was sent", f"it is malformed: {error}")) from None
    except (flight.FlightError, pa.ArrowCancelled):
        raise
    except Exception as error:
        short = exhausted("this call", error)
        if short is not None:
            logger.error("a Flight call failed: %s", short)
            raise carrying(short) from None
        logger.exception("a Flight call failed")
        raise flight.FlightInternalError(f"unexpected error: {UNEXPECTED_MARK}") from error


def answering(write: Callable[[pa.Buffer], None]) -> Callable[[pa.Buffer], None]:
    """The same; a client that has left ends its call, as one that cancels it does, and is no error of the server."""

    def answer(data: pa.Buffer) -> None:
        try:
            write(data)
        except OSError as error:
            raise pa.ArrowCancelled(f"the client has left: {error}") from error

    return answer


def carrying(error: HeadraceError) -> flight.FlightError:
    """A Flight error that carries a core error."""
    kind: type[flight.FlightError] = flight.FlightServerError
    if isinstance(error, Unauthenticated):
        kind = flight.FlightUnauthenticatedError
    elif isinstance(error, Forbidden | AccessDenied):
        kind = flight.FlightUnauthorizedError
    elif isinstance(error, Overloaded | LimitExceeded):
        kind = flight.FlightUnavailableError
    return kind(str(error), encode_error(error))
