"""What YDB keeps with a topic or a consumer and Headrace has no setting for: annotations of the topic, as JSON.

`ydb.topic` holds the fields of CreateTopic that only clients look at, `ydb.consumer.NAME` those of a consumer. They are
given back as they came. What cannot be read, since another program changed it, counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from google.protobuf.message import Message

from headrace.protocols.ydb.names import CODEC_NUMBERS, CODECS, CUSTOM_CODECS, RAW
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import topic

M = TypeVar("M", bound=Message)

_TOPIC: Final = "ydb.topic"
_CONSUMER: Final = "ydb.consumer."
# What clients are told where no speed is set, and nothing is limited: YDB's own default.
SPEED_DEFAULT: Final = 1 << 20
# A topic has these unless its creator says otherwise.
RETENTION_SECONDS_DEFAULT: Final = 24 * 3600
MESSAGE_BYTES_MAX: Final = 12 << 20


def kept_topic(annotations: Mapping[str, str]) -> topic.CreateTopicRequest:
    """The fields that are kept of a topic."""
    return _parsed(topic.CreateTopicRequest(), annotations.get(_TOPIC, ""))


def kept_consumer(annotations: Mapping[str, str], name: str) -> topic.Consumer:
    """The fields that are kept of a consumer."""
    found = _parsed(topic.Consumer(), annotations.get(_CONSUMER + name, ""))
    found.name = name
    return found


def annotated_topic(given: topic.CreateTopicRequest) -> dict[str, str | None]:
    """The annotation that keeps a topic's fields, without those that are settings."""
    kept = topic.CreateTopicRequest()
    kept.CopyFrom(given)
    for name in (
        "operation_params",
        "path",
        "retention_period",
        "consumers",
        "partition_write_speed_bytes_per_second",
        "partition_write_burst_bytes",
    ):
        kept.ClearField(name)
    return {_TOPIC: _text(kept)}


def annotated_consumer(given: topic.Consumer) -> dict[str, str | None]:
    """The same of a consumer."""
    kept = topic.Consumer()
    kept.CopyFrom(given)
    for name in ("name", "important", "consumer_stats"):
        kept.ClearField(name)
    return {_CONSUMER + given.name: _text(kept) if kept.ByteSize() else None}


def dropped_consumer(name: str) -> dict[str, str | None]:
    """The annotation of a consumer that is dropped."""
    return {_CONSUMER + name: None}


def codecs_of(numbers: list[int]) -> list[str]:
    """The codecs of a topic's settings that stand for those of YDB, or all for none.

    Custom codecs are stored as raw bytes, with the codec as an attribute.
    """
    unknown = [number for number in numbers if number not in CODECS and number not in CUSTOM_CODECS]
    if unknown:
        rule = "1 (raw), 2 (gzip), 3 (lzop), 4 (zstd) and 10000 to 19999 are known"
        raise YdbRefusal(Status.BAD_REQUEST, f"codec {unknown[0]}: {rule}")
    chosen = dict.fromkeys(CODECS.get(number, CODECS[RAW]) for number in numbers)
    return list(chosen) or list(CODECS.values())


def codec_numbers(kept: topic.CreateTopicRequest, codecs: tuple[str, ...]) -> list[int]:
    """The codecs that clients may use: as they were given, without those that the topic's settings allow no more."""
    given = list(kept.supported_codecs.codecs)
    allowed = {CODEC_NUMBERS[codec] for codec in codecs}
    if given and allowed <= {RAW, *given}:
        return [number for number in given if number in allowed or number in CUSTOM_CODECS]
    return [] if len(allowed) == len(CODECS) else sorted(allowed)


def _text(message: Message) -> str:
    return str(MessageToJson(message, preserving_proto_field_name=True, indent=None))


def _parsed(message: M, text: str) -> M:
    if not text:
        return message
    try:
        Parse(text, message, ignore_unknown_fields=True)
    except ParseError:
        message.Clear()
    return message
