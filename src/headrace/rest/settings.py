"""What can be set for the HTTP server."""

from __future__ import annotations

import msgspec


class RestSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP server.

    body_bytes_max: a larger request body is refused with 413.
    connections_max: above so many connections requests are answered with 503.
    """

    body_bytes_max: int = 64 << 20
    connections_max: int = 10_000
