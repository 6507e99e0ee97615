"""The settings of a broker, of the queue API, and the defaults of new topics."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    LINK_IDLE_SECONDS,
    PARTITIONS_MAX,
    PUBLISH_TIMEOUT_SECONDS,
    QUEUE_BYTES,
    QUEUE_MESSAGES_PER_PARTITION,
    RETENTION_CHECK_SECONDS,
    SOURCES_MAX,
    STAGE_IDLE_SECONDS,
    SUBSCRIPTION_MESSAGES,
)
from headrace.core.settings import DEFAULT_SETTINGS, Deduplication, Scope, TopicSettings


class QueueApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the PgQueue HTTP API.

    created_status: the HTTP status of a successful topic creation, 200 or 201; clients expect one or the other.
    consumer_idle_days: a consumer that is idle this long is deleted, and must register again.
    """

    created_status: Literal[200, 201] = 200
    consumer_idle_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 30


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for new topics; existing topics stay unchanged.

    partitions: number of partitions.
    retention_seconds, retention_bytes: as in a topic's settings; 0 keeps everything.
    The others are as in a topic's settings; codecs are separated by commas.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)] = 1
    retention_seconds: int = 0
    retention_bytes: int = 0
    deduplication: Deduplication = DEFAULT_SETTINGS.deduplication
    deduplication_window_seconds: int = DEFAULT_SETTINGS.deduplication_window_seconds
    deduplication_window_messages: int = DEFAULT_SETTINGS.deduplication_window_messages
    deduplication_scope: Scope = DEFAULT_SETTINGS.deduplication_scope
    codecs: str = ",".join(DEFAULT_SETTINGS.codecs)
    message_bytes_max: int = DEFAULT_SETTINGS.message_bytes_max

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> TopicSettings:
        """The settings of a topic that is created without any."""
        given = {field: getattr(self, field) for field in self.__struct_fields__ if field != "partitions"}
        for unbounded in ("retention_seconds", "retention_bytes"):
            given[unbounded] = given[unbounded] or None
        return TopicSettings.make(**given | {"codecs": [codec.strip() for codec in self.codecs.split(",")]})


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a broker.

    queue_messages_per_partition, queue_bytes: limits of the publish queue of one topic; above them publishers wait.
    publish_timeout_seconds: how long a publisher waits for space in that queue before it gets `Overloaded`.
    subscription_messages: number of messages buffered for a subscriber that does not read.
    stage_idle_seconds: stages that are neither extended nor published for this long are dropped.
    sources_max: above this number of sources a topic forgets those that are idle longest and have lost their link.
    clock_check_seconds: how often maintenance checks whether the system clock jumped.
    neighbours_check_seconds, topics_check_seconds: how often to poll for messages and topics of other servers on a
        shared store, in case a notification was lost.
    members_check_seconds, retention_check_seconds, window_clean_seconds, stages_check_seconds, sources_check_seconds:
        how often maintenance runs each task.
    """

    queue_messages_per_partition: int = QUEUE_MESSAGES_PER_PARTITION
    queue_bytes: int = QUEUE_BYTES
    publish_timeout_seconds: float = PUBLISH_TIMEOUT_SECONDS
    subscription_messages: int = SUBSCRIPTION_MESSAGES
    stage_idle_seconds: float = STAGE_IDLE_SECONDS
    sources_max: int = SOURCES_MAX
    clock_check_seconds: float = 1.0
    neighbours_check_seconds: float = 1.0
    topics_check_seconds: float = 10.0
    members_check_seconds: float = 1.0
    retention_check_seconds: float = RETENTION_CHECK_SECONDS
    window_clean_seconds: float = 60.0
    stages_check_seconds: float = 60.0
    sources_check_seconds: float = LINK_IDLE_SECONDS / 1000

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            try:
                is_good = msgspec.convert(value, field.type) > 0
            except msgspec.ValidationError:
                is_good = False
            if not is_good:
                kind = "a whole number" if field.type is int else "a number"
                raise InvalidInput(field.name, repr(value)[:100], f"it must be {kind} above 0")
