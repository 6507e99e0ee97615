"""The settings of the cursus protocol."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.reports.server_settings import FIXED

OFF: Final = "off"
DEFAULT_PORT: Final = 9000

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
# Clients accept no more than 64 MiB.
Size = Annotated[int, msgspec.Meta(ge=1 << 10, le=64 << 20)]


class CursusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cursus protocol.

    listen: listen address; without a port it is 9000. `off` disables it.
    advertised: HOST:PORT that clients are told to connect to. Empty: the address that each of them connected to.
    request_bytes_max: a larger request closes its connection.
    requests_bytes_max: total size of what has arrived of the requests under way; above it connections are not read. At
        least request_bytes_max. One caller has at most limits.bodies_bytes_max of it.
    room_seconds_max: how long a connection waits for that in the middle of a request; then it is closed.
    fetch_bytes_max: what one answer or one push of a stream returns at most; at least one message.
    answers_bytes_max: total size of answers that clients have not received; above it a request or a stream waits, at
        most room_seconds_max. At least fetch_bytes_max. One caller has at most a quarter of it.
    request_seconds_max: a request that takes longer to arrive closes its connection.
    send_seconds_max: a client that does not receive the next answer in this time is disconnected.
    idle_seconds_max: a connection without a request for this time is closed; streams are not.
    keepalive_seconds: a stream that has nothing to push sends an empty frame this often; clients wait 5 s for one.
    connections_max: more connections are refused. One token has at most a quarter of them; those that have not signed
        in have a quarter, and a tenth from one address: one more takes the place of the oldest of them.
    session_seconds: a member that sends no heartbeat for this time leaves its group; clients send one every 3 s.
    """

    listen: str = OFF
    advertised: str = ""
    request_bytes_max: Size = 16 << 20
    requests_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    room_seconds_max: Seconds = 30.0
    fetch_bytes_max: Annotated[Size, FIXED] = 4 << 20
    answers_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    request_seconds_max: Annotated[Seconds, FIXED] = 60.0
    send_seconds_max: Annotated[Seconds, FIXED] = 60.0
    idle_seconds_max: Annotated[Seconds, FIXED] = 600.0
    keepalive_seconds: Annotated[Annotated[float, msgspec.Meta(ge=0.1, le=5)], FIXED] = 2.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    session_seconds: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 30.0

    @property
    def records_bytes_max(self) -> int:
        """What the records of a request take: payloads are not decompressed here."""
        return self.request_bytes_max

    @property
    def address(self) -> str:
        """The listen address with its port."""
        bare = self.listen.rpartition("]")[2]
        return self.listen if self.listen in (OFF, "") or ":" in bare else f"{self.listen}:{DEFAULT_PORT}"

    def __post_init__(self) -> None:
        if self.requests_bytes_max < self.request_bytes_max:
            rule = f"it must be at least request_bytes_max, which is {self.request_bytes_max}"
            raise InvalidInput("requests_bytes_max", str(self.requests_bytes_max), rule)
        if self.answers_bytes_max < self.fetch_bytes_max:
            rule = f"it must be at least fetch_bytes_max, which is {self.fetch_bytes_max}"
            raise InvalidInput("answers_bytes_max", str(self.answers_bytes_max), rule)
        host, _, port = self.advertised.rpartition(":")
        if self.advertised and not (host and port.isdecimal() and 0 < int(port) <= 65535):
            raise InvalidInput("advertised", repr(self.advertised[:100]), "write it as HOST:PORT, or leave it empty")
