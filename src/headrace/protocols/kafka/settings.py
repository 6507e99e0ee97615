"""The settings of the Kafka protocol."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.reports.server_settings import FIXED

OFF: Final = "off"

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Size = Annotated[int, msgspec.Meta(ge=1 << 10, le=BATCH_BYTES_MAX)]


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Kafka protocol.

    listen: listen address; `off` disables it.
    advertised: HOST:PORT that clients are told to connect to. Empty: the address that each of them connected to.
    request_bytes_max: a larger request closes its connection.
    requests_bytes_max: total size of what has arrived of the requests under way; above it connections are not read. At
        least request_bytes_max. One caller has at most limits.bodies_bytes_max of it.
    room_seconds_max: how long a connection waits for that in the middle of a request; then it is closed.
    records_bytes_max: a record batch that would be larger when decompressed is refused. All that are decompressed and
        not written yet have requests_bytes_max beside the requests; above it a request waits.
    fetch_bytes_max: what one fetch returns at most, whatever the client asks for; at least one message.
    answers_bytes_max: total size of answers that clients have not received, such as what fetches have read; above it a
        request waits, at most room_seconds_max. At least fetch_bytes_max. One caller has at most a quarter of it.
    request_seconds_max: a request that takes longer to arrive closes its connection.
    send_seconds_max: a client that does not receive the next answer in this time is disconnected.
    idle_seconds_max: a connection without a request for this time is closed.
    connections_max: more connections are refused. One token has at most a quarter of them; those that have not signed
        in have a quarter, and a tenth from one address: one more takes the place of the oldest of them.
    auto_create_topics: whether a topic that a client asks for is created, if the client may.
    rebalance_delay_seconds: how long a new consumer group waits for more members before its first rebalance.
    heartbeat_seconds: how often members of groups in which the server assigns (KIP-848) report: partitions change
        hands within two heartbeats.
    """

    listen: str = OFF
    advertised: str = ""
    request_bytes_max: Size = 64 << 20
    requests_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    room_seconds_max: Seconds = 30.0
    records_bytes_max: Annotated[Size, FIXED] = 64 << 20
    fetch_bytes_max: Annotated[Size, FIXED] = 16 << 20
    answers_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)] = 512 << 20
    request_seconds_max: Annotated[Seconds, FIXED] = 60.0
    send_seconds_max: Annotated[Seconds, FIXED] = 60.0
    idle_seconds_max: Annotated[Seconds, FIXED] = 600.0
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    auto_create_topics: bool = True
    rebalance_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.5
    heartbeat_seconds: Annotated[Annotated[float, msgspec.Meta(ge=0.1, le=15)], FIXED] = 5.0

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
