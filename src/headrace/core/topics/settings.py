"""The settings of a topic, with their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, get_args, get_origin

import msgspec

from headrace.core.checks import check_whole
from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    ANNOTATIONS_BYTES_MAX,
    ANNOTATIONS_MAX,
    ARCHIVE_AFTER_SECONDS,
    MESSAGE_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    RETENTION_BYTES_MAX,
    RETENTION_SECONDS_MAX,
    WINDOW_MESSAGES_DEFAULT,
    WINDOW_MESSAGES_MAX,
    WINDOW_SECONDS_DEFAULT,
    WINDOW_SECONDS_MAX,
    WRITE_BYTES_MAX,
)
from headrace.core.topics.kafka_configs import merged
from headrace.core.topics.write_speed import WriteLimit
from headrace.core.values.growth import check_growth
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.types import SETTING

CODECS: Final = ("raw", "gzip", "zstd", "lzop")

Deduplication = Literal["producer", "payload", "off"]
Scope = Literal["topic", "store"]
KeyHash = Literal["fnv1a", "murmur2"]
TimestampType = Literal["created", "broker"]
Switch = Literal["off", "on"]


class TopicOptions(TypedDict, total=False):
    """The settings of a topic as keywords, to create or change one; `TopicSettings` describes each."""

    retention_seconds: int | None
    retention_bytes: int | None
    deduplication: Deduplication
    deduplication_window_seconds: int
    deduplication_window_messages: int
    deduplication_scope: Scope
    codecs: Sequence[str]
    message_bytes_max: int
    key_hash: KeyHash
    timestamp_type: TimestampType
    archive: Switch
    archive_after_seconds: int
    archive_retention_seconds: int | None
    local_retention_seconds: int | None
    local_retention_bytes: int | None
    value_schema: str | Mapping[str, Any] | None
    partition_write_bytes_per_second: int | None
    partition_write_burst_bytes: int | None
    kafka_configs: Mapping[str, str | None]
    annotations: Mapping[str, str | None]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a topic.

    retention_seconds: messages older than this may be deleted; None keeps them forever.
    retention_bytes: the oldest messages are deleted while the topic holds more than this; None: no limit.
    deduplication: `producer` drops by source and seqno; `payload` also drops a value seen within the window; `off`
        writes everything.
    deduplication_window_seconds: how long a payload is remembered.
    deduplication_window_messages: how many payloads are remembered, 24 bytes each; beyond it the oldest are forgotten
        before their time.
    deduplication_scope: where payloads must be unique: in this `topic`, or in all topics with the scope `store`.
    codecs: the allowed codecs; a message without one counts as `raw`.
    message_bytes_max: the maximum size of a message: value, key and attributes.
    key_hash: the hash of a key that chooses its partition: `fnv1a`, or `murmur2` as Kafka's clients do. After a change
        later messages of a key may go to another partition than earlier ones.
    timestamp_type: the time of a message that Kafka's consumers see: when it was `created`, if its producer said so,
        or when the `broker` wrote it.
    archive: with `on`, messages are written to the archive of the store, and none is deleted before that.
    archive_after_seconds: the latest time after which a message is archived.
    archive_retention_seconds: archived messages older than this are deleted; None keeps them forever.
    local_retention_seconds, local_retention_bytes: what the log keeps of archived messages; None: as `retention_…`.
    value_schema: a JSON or an Avro schema of the values, as JSON: tables of the topic have columns for its fields,
        and so have files that are archived from then on. It may only grow by optional fields, or be removed.
    partition_write_bytes_per_second: how fast a partition may be written: a publisher that writes faster is answered
        later, by up to 10 seconds, alone. Each server of a store counts what it writes itself. None: no limit.
    partition_write_burst_bytes: how much may be written at once after a pause; None: what may be written in a second.
    kafka_configs: configs of Kafka that only tune its storage, such as `segment.bytes`: shown to Kafka's clients, and
        without an effect. A change keeps those that it does not name; None takes one away.
    annotations: texts by name that programs keep with the topic, without an effect: YDB's attributes of topics and
        consumers are here. A change keeps those that it does not name; None takes one away.
    """

    retention_seconds: int | None = None
    retention_bytes: int | None = None
    deduplication: Deduplication = "producer"
    deduplication_window_seconds: int = WINDOW_SECONDS_DEFAULT
    deduplication_window_messages: int = WINDOW_MESSAGES_DEFAULT
    deduplication_scope: Scope = "topic"
    codecs: tuple[str, ...] = CODECS
    message_bytes_max: int = MESSAGE_BYTES_DEFAULT
    key_hash: KeyHash = "fnv1a"
    timestamp_type: TimestampType = "created"
    archive: Switch = "off"
    archive_after_seconds: int = ARCHIVE_AFTER_SECONDS
    archive_retention_seconds: int | None = None
    local_retention_seconds: int | None = None
    local_retention_bytes: int | None = None
    value_schema: str | None = None
    partition_write_bytes_per_second: int | None = None
    partition_write_burst_bytes: int | None = None
    kafka_configs: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def shares_window(self) -> bool:
        """Whether payloads are deduplicated across all topics of the store with this setting."""
        return self.deduplication == "payload" and self.deduplication_scope == "store"

    @property
    def write_limit(self) -> WriteLimit | None:
        """How fast each partition may be written, if that is limited."""
        speed = self.partition_write_bytes_per_second
        return None if speed is None else WriteLimit(speed, self.partition_write_burst_bytes or speed)

    @classmethod
    def make(cls, **values: Any) -> TopicSettings:
        """Build settings from unchecked values."""
        return DEFAULT_SETTINGS.change(**values)

    def change(self, **values: Any) -> TopicSettings:
        """These settings with some changes, all checked."""
        checked = {name: self._changed(name, value) for name, value in values.items()}
        changed = msgspec.structs.replace(self, **checked)
        changed._check()
        if self.value_schema is not None and changed.value_schema is not None:
            check_growth(parse_value_schema(self.value_schema), parse_value_schema(changed.value_schema))
        return changed

    def _changed(self, name: str, value: Any) -> Any:
        if name == "kafka_configs":
            return merged(self.kafka_configs, value)
        return _annotated(self.annotations, value) if name == "annotations" else _convert(name, value)

    def _check(self) -> None:
        _check_range("retention_seconds", self.retention_seconds, 1, RETENTION_SECONDS_MAX)
        _check_range("retention_bytes", self.retention_bytes, 1, RETENTION_BYTES_MAX)
        _check_range("archive_after_seconds", self.archive_after_seconds, 0, RETENTION_SECONDS_MAX)
        _check_range("archive_retention_seconds", self.archive_retention_seconds, 1, RETENTION_SECONDS_MAX)
        _check_range("local_retention_seconds", self.local_retention_seconds, 1, RETENTION_SECONDS_MAX)
        _check_range("local_retention_bytes", self.local_retention_bytes, 1, RETENTION_BYTES_MAX)
        _check_range("deduplication_window_seconds", self.deduplication_window_seconds, 1, WINDOW_SECONDS_MAX)
        _check_range("deduplication_window_messages", self.deduplication_window_messages, 1, WINDOW_MESSAGES_MAX)
        _check_range("message_bytes_max", self.message_bytes_max, 1, MESSAGE_BYTES_MAX)
        _check_range("partition_write_bytes_per_second", self.partition_write_bytes_per_second, 1, WRITE_BYTES_MAX)
        _check_range("partition_write_burst_bytes", self.partition_write_burst_bytes, 1, WRITE_BYTES_MAX)
        unknown = [codec for codec in self.codecs if codec not in CODECS]
        if unknown or not self.codecs or len(set(self.codecs)) < len(self.codecs):
            raise InvalidInput("codecs", repr(self.codecs), f"it must be one or more of {', '.join(CODECS)}, each once")


def _annotated(present: Mapping[str, str], changes: object) -> dict[str, str]:
    """Annotations after some changes: what is not named stays, and None takes one away."""
    texts = isinstance(changes, Mapping) and all(
        isinstance(name, str) and isinstance(value, str | None) for name, value in changes.items()
    )
    if not texts:
        raise InvalidInput("annotations", repr(changes)[:100], "it must be an object of texts, or null, by name")
    assert isinstance(changes, Mapping), "it was checked"
    after = {name: value for name, value in {**present, **changes}.items() if value is not None}
    size = sum(len(name) + len(value) for name, value in after.items())
    if len(after) > ANNOTATIONS_MAX or size > ANNOTATIONS_BYTES_MAX:
        rule = f"a topic has at most {ANNOTATIONS_MAX}, of {ANNOTATIONS_BYTES_MAX} characters together"
        raise InvalidInput("annotations", f"{len(after)} of {size} characters", rule)
    return dict(sorted(after.items()))


def _convert(name: str, value: Any) -> Any:
    if name not in _SETTING_TYPES:
        raise InvalidInput("setting", repr(name), f"known settings are {', '.join(_SETTING_TYPES)}")
    if name == SETTING and isinstance(value, str | Mapping):
        return parse_value_schema(value).text
    try:
        return msgspec.convert(value, _SETTING_TYPES[name])
    except msgspec.ValidationError as error:
        choices = get_args(_SETTING_TYPES[name]) if get_origin(_SETTING_TYPES[name]) is Literal else ()
        rule = f"it must be {' or '.join(choices)}" if choices else str(error)
        raise InvalidInput(name, repr(value)[:100], rule) from None


_SETTING_TYPES: Final = {setting.name: setting.type for setting in msgspec.structs.fields(TopicSettings)}


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None:
        check_whole(name, value, least, most)


DEFAULT_SETTINGS: Final = TopicSettings()
