"""The settings of producers and consumers, with units and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.read.decode import OnUndecodable, check_on_undecodable
from headrace.client.serializers import Deserializer, Serializer
from headrace.core.checks import check_number
from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    BATCH_BYTES_MAX,
    CONSUMER_PREFETCH_BYTES,
    FETCH_BYTES_MAX,
    MAX_POLL_SECONDS,
    MAX_POLL_SECONDS_MAX,
    PRODUCER_BATCH_BYTES,
    PRODUCER_BUFFER_BYTES,
    SESSION_TIMEOUT_SECONDS,
)
from headrace.core.topics.settings import CODECS


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.

    producer_id, message_group_id: its source; with one, no message is written twice.
    linger_seconds: how long messages are collected into one batch while another is in flight; otherwise they are sent
        at once.
    batch_bytes_max: a batch is sent when it has this size.
    codec: the compression of values.
    buffer_bytes_max: the maximum size of waiting and in-flight messages; above it `send` blocks.
    timeout_seconds: how long `send` waits for space, and how long an unreachable server is retried.
    serializer, key_serializer: how values and keys become bytes; without one they must be bytes.
    """

    producer_id: str | None = None
    message_group_id: str = ""
    linger_seconds: float = 0.005
    batch_bytes_max: int = PRODUCER_BATCH_BYTES
    codec: str = "raw"
    buffer_bytes_max: int = PRODUCER_BUFFER_BYTES
    timeout_seconds: float = 30.0
    serializer: Serializer | None = None
    key_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        check_number("linger_seconds", self.linger_seconds, 0, 3600)
        check_number("batch_bytes_max", self.batch_bytes_max, 1, BATCH_BYTES_MAX // 2)
        check_number("buffer_bytes_max", self.buffer_bytes_max, 1, 1 << 40)
        check_number("timeout_seconds", self.timeout_seconds, 0, 24 * 3600)
        if self.codec not in CODECS:
            raise InvalidInput("codec", repr(self.codec)[:100], f"known codecs are {', '.join(CODECS)}")
        if self.producer_id == "" or (self.message_group_id and self.producer_id is None):
            raise InvalidInput("producer_id", repr(self.producer_id), "it must be non-empty text")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a consumer.

    session_timeout_seconds: a member without a heartbeat for this time loses its partitions to the others.
    max_prefetch_bytes: the size of the prefetch buffer.
    auto_commit: whether returned messages are committed at the next poll, and when the consumer is closed.
    decode: whether values are decompressed by their codec.
    timeout_seconds: how long an unreachable server is retried.
    on_undecodable: what to do with a value that cannot be decoded by its codec: "raise" an error that names the
        message, return it "raw" as stored with its codec, or "skip" the message, which is counted and logged.
    serializer, key_serializer: what values and keys of single messages are made of; without one they are bytes.
    value_type, key_type: the types of the objects, for serializers that check them.
    max_poll_seconds: a member that does not poll for this time leaves the group until it polls again.
    """

    session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS
    max_prefetch_bytes: int = CONSUMER_PREFETCH_BYTES
    auto_commit: bool = False
    decode: bool = True
    timeout_seconds: float = 30.0
    on_undecodable: OnUndecodable = "raise"
    serializer: Deserializer | None = None
    key_serializer: Deserializer | None = None
    value_type: object = None
    key_type: object = None
    max_poll_seconds: float = MAX_POLL_SECONDS

    def __post_init__(self) -> None:
        check_number("max_poll_seconds", self.max_poll_seconds, 1, MAX_POLL_SECONDS_MAX)
        check_on_undecodable(self.on_undecodable)
        check_number("max_prefetch_bytes", self.max_prefetch_bytes, 1, FETCH_BYTES_MAX)
        check_number("timeout_seconds", self.timeout_seconds, 0, 24 * 3600)
