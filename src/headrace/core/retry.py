"""The retry rule: may a failed request be sent again? Used by clients, commands and Spark.

Two questions decide. May the same request succeed later (`is_transient`)? And was nothing done (`nothing_done`)? If the
outcome is unknown, only an idempotent request is repeated (`may_repeat`).
"""

from __future__ import annotations

from typing import Final

from headrace.core.errors import Closed, HeadraceError, Unreachable

# Closed by the other side, which may be back soon; what the caller closed itself stays closed.
_ENDED_BY_SERVER: Final = frozenset({"the server", "the stream", "the broker", "the connection"})


def is_transient(error: HeadraceError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, Closed):
        return error.what in _ENDED_BY_SERVER
    return error.retry or isinstance(error, Unreachable)


def may_repeat(error: HeadraceError, is_repeatable: bool) -> bool:
    """Whether to send the same request again; one that is not repeatable only if nothing was done."""
    return is_transient(error) and (is_repeatable or error.nothing_done)
