"""What can be set for the HTTP server."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX, STOP_SECONDS

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*]+")

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP server.

    allowed_hosts: names by which browsers may reach a server that needs no token, besides loopback and its own
        address: `name` or `name:port`. If there are any, other names are refused even with a token. Refusals are 403.
    allowed_origins: web pages of other origins (`https://console.example`) whose requests are served; those of all
        others get 403.
    head_bytes_max: a request line and headers larger than this are refused with 431, before anything is authenticated.
    head_seconds_max: a request whose line and headers take longer than this to arrive is refused with 408.
    body_bytes_max: a larger request body is refused with 413; one that would be larger once decompressed, with 422.
    bodies_bytes_max: what the bodies of all requests under way may take; beyond it a body is not read until there is
        room. A request that finds none within `room_seconds_max` gets 503. At least body_bytes_max.
    room_seconds_max: how long a body waits for that room.
    connections_max: above so many requests under way, subscriptions included, more are refused with 503.
    idle_seconds_max: a connection on which no request comes in this time is closed.
    request_seconds_max: a request without an answer by then is given up: 503 if nothing can have changed, 504 if its
        outcome is unknown; long polls have their wait on top.
    send_seconds_max: a client that does not take the next part of an answer in this time is cut off.
    heartbeat_seconds: a subscription on which nothing comes in this time gets a comment, which keeps it alive.
    metrics_partitions_max: metrics have series for each partition, and for each partition of each group, as long as
        there are at most this many of them; 0 for never. More cost Prometheus and this server too much.
    stop_seconds: how long a stop waits for the requests under way, and again so long for the store to be closed; what
        is not done then is cut off.
    """

    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    head_bytes_max: Annotated[int, msgspec.Meta(ge=1_024, le=1 << 20)] = 64 << 10
    head_seconds_max: Seconds = 20.0
    body_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=BATCH_BYTES_MAX)] = 64 << 20
    bodies_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 512 << 20
    room_seconds_max: Seconds = 30.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    idle_seconds_max: Seconds = 75.0
    request_seconds_max: Seconds = 120.0
    send_seconds_max: Seconds = 60.0
    heartbeat_seconds: Seconds = 15.0
    stop_seconds: Seconds = STOP_SECONDS
    metrics_partitions_max: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 1_000

    def __post_init__(self) -> None:
        if self.bodies_bytes_max < self.body_bytes_max:
            rule = f"it must be at least body_bytes_max, which is {self.body_bytes_max}"
            raise InvalidInput("bodies_bytes_max", str(self.bodies_bytes_max), rule)
        for host in self.allowed_hosts:
            if not host or host != host.strip() or "/" in host or "*" in host:
                raise InvalidInput("allowed_hosts", ascii(host[:100]), "it must be NAME or NAME:PORT")
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidInput("allowed_origins", ascii(origin[:100]), "it must be like https://console.example")
