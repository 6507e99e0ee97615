"""Flight's exceptions as errors of the core tree. The only place of the client that translates them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyarrow import flight

from headrace.core.errors import AnswerLost, Closed, HeadraceError, ServerFailed, Untrusted
from headrace.wire.errors import UNEXPECTED_MARK, decode_error

_REASON_CHARACTERS_MAX: Final = 200
# What OpenSSL says within the text of Flight, and what to do about it.
_TLS_FAULTS: Final = {
    "certificate verify failed": (
        "its certificate is not signed by an authority that is trusted here: give the certificate of its authority as "
        "root certificates"
    ),
    "is not in peer certificate": "its certificate is for another host: connect by a name that the certificate has",
    "wrong version number": "the server does not use TLS there: connect with headrace://",
}


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise the error of the broker, or an error of the connection."""
    try:
        yield
    except HeadraceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise core_error(error, url) from None


def core_error(error: Exception, url: str) -> HeadraceError:
    """The error of the core tree for a Flight exception."""
    carried = decode_error(getattr(error, "extra_info", b"") or b"")
    if carried is not None:
        return carried
    if isinstance(error, flight.FlightCancelledError | pa.ArrowCancelled):
        return Closed("the stream")
    text = str(error).lower().replace("_", " ")
    for fault, remedy in _TLS_FAULTS.items():
        if fault in text:
            return Untrusted(url, remedy)
    reason = str(error).split(". gRPC client debug context")[0].split(". Detail:")[0][:_REASON_CHARACTERS_MAX]
    if isinstance(error, flight.FlightInternalError) and UNEXPECTED_MARK in reason:
        return ServerFailed(reason)
    # Flight reports a broken connection only as text, in many forms; all other errors are carried as errors of ours.
    return AnswerLost(url, reason)
