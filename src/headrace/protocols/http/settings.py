"""The settings of the HTTP server."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX, STOP_SECONDS
from headrace.core.reports.server_settings import FIXED

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*]+")

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP server.

    allowed_hosts: host names under which browsers may reach a server that needs no token, besides loopback and its
        own address: `name` or `name:port`. If set, other names get 403 even with a token.
    allowed_origins: other origins (`https://console.example`) whose web pages may use this server; all others get
        403.
    head_bytes_max: a request line with headers larger than this gets 431, before authentication.
    head_seconds_max: a request line with headers that take longer than this to arrive gets 408.
    body_bytes_max: a larger request body gets 413; one that would be larger after decompression gets 422.
    bodies_bytes_max: total size of the bodies of all running requests; above it a body waits before it is read. A
        request that waits longer than `room_seconds_max` gets 503. At least body_bytes_max.
    room_seconds_max: how long a body waits for that.
    connections_max: maximum number of running requests, subscriptions included; more get 503.
    idle_seconds_max: a connection without a request for this time is closed.
    request_seconds_max: a request that takes longer is aborted: 503 if nothing can have changed, 504 if its outcome
        is unknown. The wait of a long poll is added.
    send_seconds_max: a client that does not receive the next part of an answer in this time is disconnected.
    heartbeat_seconds: a subscription without events for this time gets a comment, which keeps the connection alive.
    metrics_topics_max, metrics_groups_max: how many topics and groups have metrics of their own: of more, the topics
        with most messages in and out, and the groups that lag most. Totals of the server count all topics.
    metrics_partitions_max: metrics have series for each partition, and for each partition of each group, as long as
        there are at most this many; 0: never. More would be too expensive for Prometheus and this server.
    stop_seconds: how long a stop waits for running requests, and again for the store to close; after that the
        process exits.
    """

    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    head_bytes_max: Annotated[int, msgspec.Meta(ge=1_024, le=1 << 20), FIXED] = 64 << 10
    head_seconds_max: Annotated[Seconds, FIXED] = 20.0
    body_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=BATCH_BYTES_MAX)] = 64 << 20
    bodies_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 512 << 20
    room_seconds_max: Seconds = 30.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    idle_seconds_max: Seconds = 75.0
    request_seconds_max: Seconds = 120.0
    send_seconds_max: Annotated[Seconds, FIXED] = 60.0
    heartbeat_seconds: Annotated[Seconds, FIXED] = 15.0
    stop_seconds: Seconds = STOP_SECONDS
    metrics_topics_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 2_000
    metrics_groups_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 5_000
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
                raise InvalidInput(
                    "allowed_origins", ascii(origin[:100]), "it must be an origin such as https://console.example"
                )
