"""The settings of the YDB protocol."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.reports.server_settings import FIXED

OFF: Final = "off"

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Size = Annotated[int, msgspec.Meta(ge=1 << 10, le=BATCH_BYTES_MAX)]


class YdbSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the YDB protocol.

    listen: listen address; `off` disables it.
    advertised: HOST:PORT that clients are told to connect to. Empty: the address that this server advertises.
    request_bytes_max: a larger message ends its call.
    requests_bytes_max: total size of the messages that are not written or served yet; above it no stream is read. One
        caller has at most limits.bodies_bytes_max of it. A message that has arrived in part is gRPC's, and not counted.
    room_seconds_max: how long a call waits for that, or for answers_bytes_max; then it ends as overloaded.
    fetch_bytes_max: what one response of a read session holds at most, whatever its credit; at least one message.
    answers_bytes_max: total size of responses that clients have not received; above it a session waits to read. One
        caller has at most a quarter of it.
    send_seconds_max: a client that does not receive a response in this time loses its session.
    connections_max: calls at once, sessions among them, and connections; more are refused. One token has at most a
        quarter of the calls.
    """

    listen: str = OFF
    advertised: str = ""
    request_bytes_max: Size = 64_000_000
    requests_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    room_seconds_max: Seconds = 30.0
    fetch_bytes_max: Annotated[Size, FIXED] = 4 << 20
    answers_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    send_seconds_max: Annotated[Seconds, FIXED] = 60.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_000

    @property
    def records_bytes_max(self) -> int:
        """What the elements of a message take once they are decoded: payloads are not decompressed here."""
        return self.request_bytes_max

    def __post_init__(self) -> None:
        if self.answers_bytes_max < self.fetch_bytes_max:
            rule = f"it must be at least fetch_bytes_max, which is {self.fetch_bytes_max}"
            raise InvalidInput("answers_bytes_max", str(self.answers_bytes_max), rule)
        host, _, port = self.advertised.rpartition(":")
        if self.advertised and not (host and port.isdecimal() and 0 < int(port) <= 65535):
            raise InvalidInput("advertised", repr(self.advertised[:100]), "write it as HOST:PORT, or leave it empty")
