"""The settings of a broker, of the queue API, and the defaults of new topics."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    ARCHIVE_CACHE_BYTES,
    ARCHIVE_CHECK_SECONDS,
    ARCHIVE_FILE_BYTES,
    ARCHIVE_LEASE_SECONDS,
    ARCHIVE_STRAY_SECONDS,
    FRAME_BYTES,
    FRAME_ROWS,
    GROUPS_PER_TOPIC,
    LINK_IDLE_SECONDS,
    MEMBERS_PER_GROUP,
    PARTITIONS_IN_STORE,
    PARTITIONS_MAX,
    PUBLISH_TIMEOUT_SECONDS,
    QUEUE_BYTES,
    QUEUE_MESSAGES_PER_PARTITION,
    RETENTION_CHECK_SECONDS,
    SOURCES_MAX,
    STAGE_IDLE_SECONDS,
    TOPICS_IN_STORE,
    TOPICS_MAX,
)
from headrace.core.reports.server_settings import FIXED
from headrace.core.topics.settings import DEFAULT_SETTINGS, Deduplication, Switch, TopicSettings


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
    retention_seconds, retention_bytes, local_retention_seconds: as in a topic's settings; 0: none.
    deduplication, message_bytes_max, archive: as in a topic's settings.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)] = 1
    retention_seconds: int = 0
    retention_bytes: int = 0
    deduplication: Deduplication = DEFAULT_SETTINGS.deduplication
    message_bytes_max: int = DEFAULT_SETTINGS.message_bytes_max
    archive: Switch = DEFAULT_SETTINGS.archive
    local_retention_seconds: int = 0

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> TopicSettings:
        """The settings of a topic that is created without any."""
        given = {field: getattr(self, field) for field in self.__struct_fields__ if field != "partitions"}
        for field in msgspec.structs.fields(TopicSettings):
            # A schema of values is each topic's own.
            if field.default is None and field.name in given:
                given[field.name] = given[field.name] or None
        return TopicSettings.make(**given)


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The archive of a store, for topics with `archive = on`.

    url: a directory, or an object store such as s3://BUCKET/PREFIX?region=…; without credentials, which come from the
        environment. Empty: no archive.
    file_bytes: a file is written before its time once there are this many bytes of messages; merged files have at most
        this many bytes.
    cache_bytes: memory for row groups of the archive that readers use.
    stray_seconds: how long files are kept that are no longer listed, for readers that have an earlier list.
    check_seconds: how often the broker looks for messages to archive.
    lease_seconds: how long a server of a shared store may be silent before another one archives its topics.
    """

    url: str = ""
    file_bytes: Annotated[int, msgspec.Meta(ge=1)] = ARCHIVE_FILE_BYTES
    cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = ARCHIVE_CACHE_BYTES
    stray_seconds: Annotated[float, msgspec.Meta(ge=0)] = ARCHIVE_STRAY_SECONDS
    check_seconds: Annotated[float, msgspec.Meta(gt=0)] = ARCHIVE_CHECK_SECONDS
    lease_seconds: Annotated[float, FIXED] = ARCHIVE_LEASE_SECONDS

    @property
    def sweep_seconds(self) -> float:
        """How often the broker looks for files to delete."""
        return max(self.check_seconds, self.stray_seconds / 4)


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a broker.

    queue_messages_per_partition, queue_bytes: what may wait to be written to one topic; beyond it publishers wait.
    publish_timeout_seconds: how long a publisher waits for space in that queue before it gets a retryable error.
    frame_rows, frame_bytes: what one frame of the log holds, and what one group commit collects. A larger publish is
        written as several frames that become visible together; smaller frames take less memory and more syncs.
    stage_idle_seconds: stages without activity for this long are dropped.
    sources_max: above this number a topic forgets the sources that are idle longest and have lost their link.
    topics_max, partitions_max, groups_per_topic_max, members_per_group_max: what the store may have: topics, partitions
        of all topics together, groups of each topic (every consumer of the queue API is one), members of each group.
        Creating more is refused; existing ones are kept. The bytes of a topic are limited by its retention.
    clock_check_seconds: how often maintenance checks whether the time of day was set.
    neighbours_check_seconds, topics_check_seconds: the maximum delay until this server sees that another server of a
        shared store wrote messages, or created or changed a topic, if its notification was lost.
    retention_check_seconds: how often maintenance looks for what retention deletes.
    members_check_seconds, window_clean_seconds, stages_check_seconds, sources_check_seconds: how often it runs
        its other tasks.

    What is `FIXED` is no setting of a server.
    """

    queue_messages_per_partition: Annotated[int, FIXED] = QUEUE_MESSAGES_PER_PARTITION
    queue_bytes: int = QUEUE_BYTES
    publish_timeout_seconds: Annotated[float, FIXED] = PUBLISH_TIMEOUT_SECONDS
    frame_rows: Annotated[int, FIXED] = FRAME_ROWS
    frame_bytes: Annotated[int, FIXED] = FRAME_BYTES
    stage_idle_seconds: Annotated[float, FIXED] = STAGE_IDLE_SECONDS
    sources_max: Annotated[int, FIXED] = SOURCES_MAX
    topics_max: int = TOPICS_IN_STORE
    partitions_max: int = PARTITIONS_IN_STORE
    groups_per_topic_max: int = GROUPS_PER_TOPIC
    members_per_group_max: int = MEMBERS_PER_GROUP
    clock_check_seconds: Annotated[float, FIXED] = 1.0
    neighbours_check_seconds: Annotated[float, FIXED] = 1.0
    topics_check_seconds: Annotated[float, FIXED] = 10.0
    members_check_seconds: Annotated[float, FIXED] = 1.0
    retention_check_seconds: Annotated[float, FIXED] = RETENTION_CHECK_SECONDS
    window_clean_seconds: Annotated[float, FIXED] = 60.0
    stages_check_seconds: Annotated[float, FIXED] = 60.0
    sources_check_seconds: Annotated[float, FIXED] = LINK_IDLE_SECONDS / 1000

    def __post_init__(self) -> None:
        for name, type_ in _setting_types().items():
            value = getattr(self, name)
            try:
                is_good = msgspec.convert(value, type_) > 0
            except msgspec.ValidationError:
                is_good = False
            if not is_good:
                kind = "a whole number" if getattr(type_, "__origin__", type_) is int else "a number"
                raise InvalidInput(name, repr(value)[:100], f"it must be {kind} above 0")
        if self.topics_max > TOPICS_MAX:
            raise InvalidInput("topics_max", str(self.topics_max), f"a store holds at most {TOPICS_MAX} topics")


@cache
def _setting_types() -> dict[str, Any]:
    """The type of each setting; resolving annotations costs a millisecond."""
    return {field.name: field.type for field in msgspec.structs.fields(BrokerSettings)}
