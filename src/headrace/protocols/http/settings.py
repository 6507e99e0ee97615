"""The settings of the HTTP server."""

from __future__ import annotations

import re
from typing import Final

from headrace.core.errors import InvalidInput
from headrace.core.limits import STOP_SECONDS
from headrace.edge.settings import PortSettings

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*]+")


class HttpSettings(PortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP server; `ServeSettings.http_settings` makes them.

    allowed_hosts, allowed_origins, stop_seconds: as in `ServeSettings`.
    metrics_topics_max, metrics_partitions_max: as in `LimitSettings`.
    head_bytes_max: a request line with headers larger than this gets 431, before authentication.
    head_seconds_max: a request line with headers that take longer than this to arrive gets 408.
    request_seconds_max: a request that takes longer is aborted: 503 if nothing can have changed, 504 if its outcome
        is unknown. The wait of a long poll is added.
    heartbeat_seconds: a subscription without events for this time gets a comment, which keeps the connection alive.
    """

    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    stop_seconds: float = STOP_SECONDS
    metrics_topics_max: int = 2_000
    metrics_partitions_max: int = 1_000
    head_bytes_max: int = 64 << 10
    head_seconds_max: float = 20.0
    idle_seconds_max: float = 75.0
    request_seconds_max: float = 120.0
    heartbeat_seconds: float = 15.0

    def __post_init__(self) -> None:
        for host in self.allowed_hosts:
            if not host or host != host.strip() or "/" in host or "*" in host:
                raise InvalidInput("allowed_hosts", ascii(host[:100]), "it must be NAME or NAME:PORT")
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidInput(
                    "allowed_origins", ascii(origin[:100]), "it must be an origin such as https://console.example"
                )
