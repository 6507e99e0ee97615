"""The settings of the native wire."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.reports.server_settings import FIXED

OFF: Final = "off"

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Size = Annotated[int, msgspec.Meta(ge=1 << 10, le=2 * BATCH_BYTES_MAX)]


class NativeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the native wire.

    listen: listen address; `off` disables it. Clients learn the port over Flight, and go on over Flight without it.
    request_bytes_max: a larger frame ends its connection.
    requests_bytes_max: total size of what has arrived and is not written yet; above it connections are not read. At
        least request_bytes_max. One caller has at most limits.bodies_bytes_max of it.
    room_seconds_max: how long a connection waits for that in the middle of a frame; then it is closed.
    records_bytes_max: a batch that would be larger when decompressed is refused. All that are decompressed and not
        written yet have requests_bytes_max beside the requests; above it a batch waits.
    answers_bytes_max: total size of answers that clients have not received; above it a stream waits. One caller has at
        most a quarter of it.
    request_seconds_max: a frame that takes longer to arrive ends its connection.
    send_seconds_max: a client that does not receive the next answer in this time is disconnected.
    idle_seconds_max: a connection without a frame for this time is closed; clients open another when they need one.
    connections_max: more connections are refused. One token has at most a quarter of them; those that have not signed
        in have a quarter, and a tenth from one address: one more takes the place of the oldest of them.
    """

    listen: str = OFF
    request_bytes_max: Size = BATCH_BYTES_MAX
    requests_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 1 << 30
    room_seconds_max: Seconds = 30.0
    records_bytes_max: Annotated[Size, FIXED] = BATCH_BYTES_MAX
    answers_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] = 512 << 20
    request_seconds_max: Annotated[Seconds, FIXED] = 60.0
    send_seconds_max: Annotated[Seconds, FIXED] = 60.0
    idle_seconds_max: Annotated[Seconds, FIXED] = 3600.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000

    @property
    def fetch_bytes_max(self) -> int:
        """What one answer takes at most: the receipts of a batch."""
        return 1 << 20

    def __post_init__(self) -> None:
        if self.requests_bytes_max < self.request_bytes_max:
            rule = f"it must be at least request_bytes_max, which is {self.request_bytes_max}"
            raise InvalidInput("requests_bytes_max", str(self.requests_bytes_max), rule)
