"""What can be set for the HTTP server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.core.limits import BATCH_BYTES_MAX, STOP_SECONDS

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP server.

    body_bytes_max: a larger request body is refused with 413.
    connections_max: above so many requests under way, subscriptions included, more are refused with 503.
    idle_seconds_max: a connection on which no request comes in this time is closed.
    request_seconds_max: a request without an answer by then is given up with 503; long polls have their wait on top.
    send_seconds_max: a client that does not take the next part of an answer in this time is cut off.
    heartbeat_seconds: a subscription on which nothing comes in this time gets a comment, which keeps it alive.
    stop_seconds: how long a stop waits for the requests under way, and again so long for the store to be closed; what
        is not done then is cut off.
    """

    body_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=BATCH_BYTES_MAX)] = 64 << 20
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    idle_seconds_max: Seconds = 75.0
    request_seconds_max: Seconds = 120.0
    send_seconds_max: Seconds = 60.0
    heartbeat_seconds: Seconds = 15.0
    stop_seconds: Seconds = STOP_SECONDS
