"""May a request that failed be sent again? The one answer for clients, commands and Spark.

Two questions decide. May the same request succeed later (`is_transient`)? And was anything done: an error says
`nothing_done`, or the outcome is unknown, and then only a request that may be done twice is repeated (`may_repeat`).
"""

from __future__ import annotations

from typing import Final

from headrace.core.errors import Closed, HeadraceError, Unreachable

# Ended by the other side, which may be back soon; what the caller closed itself stays closed.
_ENDED_BY_SERVER: Final = frozenset({"the server", "the stream", "the broker", "the connection"})


def is_transient(error: HeadraceError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, Closed):
        return error.what in _ENDED_BY_SERVER
    return error.retry or isinstance(error, Unreachable)


def may_repeat(error: HeadraceError, is_repeatable: bool) -> bool:
    """Whether to send the same request again; one that is not repeatable only if nothing was done."""
    return is_transient(error) and (is_repeatable or error.nothing_done)
