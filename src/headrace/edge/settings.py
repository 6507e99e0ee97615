"""The settings that mean the same on every port, and what one token may use of a server.

    kafka = KafkaSettings(listen="127.0.0.1:9092").within(LimitSettings(connections_max=100))

A port is bounded by a `PortSettings`: what an operator may set comes from `LimitSettings`, once for all ports; the rest
is `FIXED`, and a protocol may have another value of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

import msgspec
from msgspec import structs

from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.reports.server_settings import FIXED

OFF: Final = "off"
CONNECTIONS: Final = 10_000
REQUEST_BYTES: Final = 64 << 20
REQUESTS_BYTES: Final = 512 << 20
ANSWERS_BYTES: Final = 512 << 20

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Series = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
RequestBytes = Annotated[int, msgspec.Meta(ge=1 << 10, le=BATCH_BYTES_MAX)]
BudgetBytes = Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)]
# Not less than the largest answer to a fetch of Kafka.
AnswerBytes = Annotated[int, msgspec.Meta(ge=16 << 20, le=1 << 40)]
# 0 for no limit.
PerSecond = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of each port, of each token over all ports, and of metrics. Callers without a token count as one token.

    connections_max: connections of each port; over HTTP running requests, over YDB calls too. More are refused. Of all
        but HTTP's, one token has at most a quarter; those that have not signed in have a quarter, and a tenth from one
        address: one more takes the place of the oldest of them.
    request_bytes_max: a larger request is refused: over HTTP 413, or 422 if it would be larger after decompression;
        other connections are closed. Flight and the native wire take any batch.
    requests_bytes_max: bytes of all running requests of each port, as far as they have arrived; above it no more is
        read, and what waits 30 s is refused. One token has at most half of it, over all ports together: over HTTP one
        more body is refused with 429, other connections and Flight streams are not read until there is space. A single
        request is always accepted. At least request_bytes_max. Over Flight and YDB's port one token may have messages
        under way that are twice as large together, as far as they have arrived; above it the connection that brought
        most of that is closed.
    answers_bytes_max: bytes of answers of each port that clients have not received, such as what fetches have read;
        above it requests wait 30 s. One token has at most a quarter of it. HTTP and Flight send in parts instead.
    streams_max: concurrent streams and long polls of one token: subscriptions, fetches and member reads that wait,
        Flight reads and follows, `await_offsets`. More are refused with 429.
    flight_calls_max: concurrent Flight reads, which hold a thread each; as many publish and stage streams, with two
        threads each; and as many other calls. Beyond it callers get the error that the server is overloaded. One token
        has at most a quarter of each, and a sixteenth of the publish and stage streams; the error says which part.
    publish_bytes_per_second: bytes of bodies that one token publishes, averaged over a second; over HTTP a request
        beyond it is refused with 429, streams of Flight are slowed down. 0 for no limit.
    requests_per_second: HTTP requests and Flight calls of one token; batches in a stream are not counted. 0 for no
        limit.
    metrics_topics_max: how many topics, and how many groups, have metrics of their own: of more, the topics with most
        messages in and out, and the groups that lag most. Totals of the server count all topics.
    metrics_partitions_max: metrics have series for each partition, and for each partition of each group, as long as
        there are at most this many; 0: never. More would be too expensive for Prometheus and this server.
    """

    connections_max: Count = CONNECTIONS
    request_bytes_max: RequestBytes = REQUEST_BYTES
    requests_bytes_max: BudgetBytes = REQUESTS_BYTES
    answers_bytes_max: AnswerBytes = ANSWERS_BYTES
    streams_max: Count = 4_000
    flight_calls_max: Count = 1_024
    publish_bytes_per_second: PerSecond = 0
    requests_per_second: PerSecond = 0
    metrics_topics_max: Series = 2_000
    metrics_partitions_max: Series = 1_000

    def __post_init__(self) -> None:
        if self.requests_bytes_max < self.request_bytes_max:
            rule = f"it must be at least request_bytes_max, which is {self.request_bytes_max}"
            raise InvalidInput("requests_bytes_max", str(self.requests_bytes_max), rule)


class PortSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bounds a port, whichever protocol it speaks; see `LimitSettings`.

    room_seconds_max: how long a request waits for room in requests_bytes_max or answers_bytes_max; then it is refused,
        or its connection closed.
    request_seconds_max: a request that takes longer to arrive closes its connection.
    send_seconds_max: a client that does not receive the next part of an answer in this time is disconnected.
    idle_seconds_max: a connection without a request for this time is closed.
    """

    connections_max: Annotated[int, FIXED] = CONNECTIONS
    request_bytes_max: Annotated[int, FIXED] = REQUEST_BYTES
    requests_bytes_max: Annotated[int, FIXED] = REQUESTS_BYTES
    answers_bytes_max: Annotated[int, FIXED] = ANSWERS_BYTES
    room_seconds_max: Annotated[float, FIXED] = 30.0
    request_seconds_max: Annotated[float, FIXED] = 60.0
    send_seconds_max: Annotated[float, FIXED] = 60.0
    idle_seconds_max: Annotated[float, FIXED] = 600.0

    def within(self, limits: LimitSettings) -> Self:
        """The same with what an operator has set for all ports."""
        return structs.replace(
            self,
            connections_max=limits.connections_max,
            request_bytes_max=limits.request_bytes_max,
            requests_bytes_max=limits.requests_bytes_max,
            answers_bytes_max=limits.answers_bytes_max,
        )


class OptionalPortSettings(PortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port that is off unless it is asked for.

    listen: listen address; `off` disables it.
    fetch_bytes_max: what one answer returns at most, whatever the client asks for; at least one message.
    """

    listen: str = OFF
    fetch_bytes_max: Annotated[int, FIXED] = 4 << 20

    @property
    def records_bytes_max(self) -> int:
        """What the records of one request take once they are decompressed."""
        return self.request_bytes_max


class AdvertisedPortSettings(OptionalPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port whose clients are told where to connect to.

    advertised: HOST:PORT that they are told. Empty: the address that each of them connected to.
    """

    advertised: str = ""

    def __post_init__(self) -> None:
        host, _, port = self.advertised.rpartition(":")
        if self.advertised and not (host and port.isdecimal() and 0 < int(port) <= 65535):
            raise InvalidInput("advertised", repr(self.advertised[:100]), "write it as HOST:PORT, or leave it empty")

    def place(self, local: Any) -> tuple[str, int]:
        """Where a client is told to connect to that has reached this address of a socket."""
        if self.advertised:
            host, _, port = self.advertised.rpartition(":")
            return host.strip("[]"), int(port)
        return (str(local[0]), int(local[1])) if local else ("127.0.0.1", 0)
