"""Flight's exceptions as errors of the core tree; the only place of the client where they are translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyarrow import flight

from headrace.core.errors import AnswerLost, Closed, HeadraceError, ServerFailed
from headrace.wire.errors import decode_error

_REASON_CHARACTERS_MAX: Final = 200


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise what the broker raised, or say what happened to the connection."""
    try:
        yield
    except HeadraceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise core_error(error, url) from None


def core_error(error: Exception, url: str) -> HeadraceError:
    """The error of the core tree that a Flight exception stands for."""
    carried = decode_error(getattr(error, "extra_info", b"") or b"")
    if carried is not None:
        return carried
    if isinstance(error, flight.FlightCancelledError | pa.ArrowCancelled):
        return Closed("the stream")
    reason = str(error).split(". gRPC client debug context")[0].split(". Detail:")[0][:_REASON_CHARACTERS_MAX]
    if isinstance(error, flight.FlightInternalError) and "the server's log has it" in reason:
        return ServerFailed(reason)
    # Flight tells by text only whether a connection broke, and in many ways; all else is carried as an error of ours.
    return AnswerLost(url, reason)
