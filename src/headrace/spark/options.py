"""The options of the data source: their names, values and parsing.

Names are case-insensitive, as everywhere in Spark. An unknown option is an error that suggests similar names: a
misspelled limit must not be silently ignored. All validation happens before the first request to a server.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec

from headrace.client.connection import TOKEN_VARIABLE
from headrace.client.read.decode import OnUndecodable
from headrace.core.checks import check_whole
from headrace.core.errors import InvalidInput
from headrace.core.limits import FETCH_BYTES_MAX, PARTITIONS_MAX, SEQNO_MAX
from headrace.core.names import check_group_name, check_id, check_topic_name, topic_key
from headrace.core.positions import EARLIEST, LATEST, Position
from headrace.core.publish.state import FINGERPRINT_BITS
from headrace.core.topics.settings import TopicSettings
from headrace.spark.connection import Connection, default_url
from headrace.spark.positions import place_of
from headrace.spark.reader.topic_selection import PerTopic, TopicSelection, check_pattern
from headrace.spark.schema import METADATA, READ_COLUMNS, Metadata

Delivery = Literal["exactly-once", "at-least-once"]

SPLIT_MESSAGES_DEFAULT: Final = 1_000_000
TIMEOUT_SECONDS_DEFAULT: Final = 120
TRIGGER_DELAY_SECONDS: Final = 900

_CONNECTION: Final = ("url", "token", "rootCertificates", "timeoutSeconds")
_READ: Final = (
    *_CONNECTION,
    "topic",
    "topicPattern",
    "columns",
    "decode",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "group",
    "important",
    "maxBytesPerTrigger",
    "maxMessagesPerSplit",
    "maxMessagesPerTrigger",
    "maxTriggerDelaySeconds",
    "metadata",
    "minMessagesPerTrigger",
    "minPartitions",
    "onInvalid",
    "onUndecodable",
    "rowsAreSplits",
    "startingOffsets",
    "startingTimestamp",
    "values",
)
_WRITE: Final = (
    *_CONNECTION,
    "topic",
    "batchId",
    "createTopic",
    "delivery",
    "partitions",
    "sinkId",
    "topicSettings",
    "values",
)
# Options that Spark itself adds: to those of a sink, and to those of a table in its catalog, which it also repeats with
# a prefix.
_CHECKPOINT: Final = "checkpointlocation"
_QUERY_NAME: Final = "queryname"
_OF_SPARK: Final = frozenset(
    {
        _CHECKPOINT,
        _QUERY_NAME,
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "location",
        "owner",
        "provider",
        "table_type",
    }
)
_OF_TABLES: Final = "option."
_NONE_ALIKE: Final = "no option is similar: docs/spark.md lists all of them"
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a reader.

    subscription: the topics to read.
    start, end: where reading starts and ends; a stream has no end.
    columns: the columns of a row, in this order: those of messages, and fields of values.
    all_fields: all fields of values follow.
    fails_on_invalid: a value that does not fit the schema of its topic is an error, not NULL.
    split_messages_max: the maximum number of messages that one task reads.
    on_undecodable: what to do with a value that cannot be decoded by its codec.
    trigger_messages_min, trigger_delay_seconds: a micro-batch waits for so many messages, but no longer than that.
    rows_are_splits: the rows of a stream say what to fetch; `headrace.spark.read_stream` sets it.
    """

    connection: Connection
    subscription: TopicSelection
    columns: tuple[str, ...]
    all_fields: bool
    fails_on_invalid: bool
    decode: bool
    start: Position | PerTopic | None
    end: Position | PerTopic
    partitions_min: int
    split_messages_max: int
    trigger_messages_max: int | None
    trigger_bytes_max: int | None
    trigger_messages_min: int | None
    trigger_delay_seconds: float
    group: str | None
    important: bool | None
    fail_on_data_loss: bool
    on_undecodable: OnUndecodable
    metadata: Metadata | None
    rows_are_splits: bool

    @property
    def is_typed(self) -> bool:
        """Whether rows have fields of values."""
        return self.all_fields or not set(self.columns) <= set(READ_COLUMNS)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a writer.

    topic: the topic of all rows; if omitted, each row names its topic.
    sink_id, batch_id: identify a write, so that a repeated one publishes nothing.
    partitions, topic_settings: of a topic that is created, if createTopic is set.
    checkpoint: where Spark keeps the offsets of a stream, if it was given as an option.
    query_name: the name of a stream, which is that of its checkpoint in the session's default location.
    is_typed: whether values are made of columns by the schema of the topic.
    """

    connection: Connection
    topic: str | None
    delivery: Delivery
    sink_id: str | None
    batch_id: int | None
    create_topic: bool
    partitions: int | None
    topic_settings: Mapping[str, Any]
    checkpoint: str | None
    query_name: str | None
    is_typed: bool = False


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a reader."""
    options = _Options(given, _READ)
    metadata = options.choice("metadata", METADATA)
    topic, pattern = options.text("topic"), options.text("topicPattern")
    options.refuse_both("topic", "topicPattern")
    if topic is None and pattern is None and metadata is None:
        raise InvalidInput("topic", "not given", "set the topic to read with .option('topic', …)")
    start, start_time = options.text("startingOffsets"), options.text("startingTimestamp")
    end, end_time = options.text("endingOffsets"), options.text("endingTimestamp")
    options.refuse_both("startingOffsets", "startingTimestamp")
    options.refuse_both("endingOffsets", "endingTimestamp")
    group, connection = options.text("group"), options.connection()
    checked = None if pattern is None else check_pattern("topicPattern", pattern)
    topics = TopicSelection(connection, _topics(topic), checked)
    is_typed = options.is_typed()
    columns = _columns(options.text("columns"), is_typed)
    on_invalid = options.choice("onInvalid", ("null", "raise"))
    parsed = ReadOptions(
        connection=connection,
        subscription=topics,
        columns=columns,
        all_fields=is_typed and options.text("columns") is None,
        fails_on_invalid=on_invalid == "raise",
        decode=options.boolean("decode", True),
        start=place_of("startingOffsets", start, "startingTimestamp", start_time, topics),
        end=place_of("endingOffsets", end, "endingTimestamp", end_time, topics) or LATEST,
        partitions_min=options.whole("minPartitions", 1, 100_000) or 1,
        split_messages_max=options.whole("maxMessagesPerSplit", 1, SEQNO_MAX) or SPLIT_MESSAGES_DEFAULT,
        trigger_messages_max=options.whole("maxMessagesPerTrigger", 1, SEQNO_MAX),
        trigger_bytes_max=options.whole("maxBytesPerTrigger", 1, SEQNO_MAX),
        trigger_messages_min=options.whole("minMessagesPerTrigger", 1, SEQNO_MAX),
        trigger_delay_seconds=float(options.whole("maxTriggerDelaySeconds", 1, 7 * 86_400) or TRIGGER_DELAY_SECONDS),
        group=None if group is None else check_group_name(group),
        important=options.boolean_or_none("important"),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        on_undecodable=options.choice("onUndecodable", get_args(OnUndecodable)) or "raise",  # type: ignore[arg-type]
        metadata=metadata,  # type: ignore[arg-type]
        rows_are_splits=options.boolean("rowsAreSplits", False),
    )
    if on_invalid is not None and not parsed.is_typed:
        raise InvalidInput("onInvalid", repr(on_invalid), "it applies to fields of values: set values=typed too")
    return parsed


def write_options(given: Mapping[str, str], is_stream: bool) -> WriteOptions:
    """The options of a writer."""
    options = _Options(given, _WRITE)
    topic, sink_id = options.text("topic"), options.text("sinkId")
    # A write to several topics needs a fingerprint, which goes with a shorter number.
    batch_id = options.whole("batchId", 0, SEQNO_MAX if topic is not None else SEQNO_MAX >> FINGERPRINT_BITS)
    partitions = options.whole("partitions", 1, PARTITIONS_MAX)
    create_topic = options.boolean("createTopic", False)
    delivery = options.choice("delivery", ("exactly-once", "at-least-once")) or "exactly-once"
    if is_stream and batch_id is not None:
        raise InvalidInput("batchId", str(batch_id), "Spark numbers the batches of a stream itself: omit it")
    if not is_stream and (sink_id is None) != (batch_id is None):
        given_one = "sinkId" if batch_id is None else "batchId"
        raise InvalidInput(given_one, "given alone", "a batch write needs both sinkId and batchId, or neither")
    if sink_id is not None and delivery == "at-least-once":
        raise InvalidInput(
            "sinkId", repr(sink_id)[:100], "it has no effect with delivery=at-least-once: omit one of them"
        )
    if partitions is not None and not create_topic:
        raise InvalidInput(
            "partitions", str(partitions), "it applies to a topic that is created: set createTopic=true too"
        )
    settings = _topic_settings(options.text("topicSettings"))
    if settings and not create_topic:
        raise InvalidInput("topicSettings", "given", "it applies to a topic that is created: set createTopic=true too")
    return WriteOptions(
        connection=options.connection(),
        topic=None if topic is None else check_topic_name(topic),
        delivery=delivery,  # type: ignore[arg-type]
        sink_id=None if sink_id is None else check_id("sinkId", sink_id),
        batch_id=batch_id,
        create_topic=create_topic,
        partitions=partitions,
        topic_settings=settings,
        checkpoint=_of_spark(given, _CHECKPOINT),
        query_name=_of_spark(given, _QUERY_NAME),
        is_typed=options.is_typed(),
    )


def _topic_settings(text: str | None) -> dict[str, Any]:
    """Settings of a topic to create, checked before anything is written."""
    if text is None:
        return {}
    try:
        settings = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        rule = f'it must be JSON such as {{"retention_seconds": 86400}}: {error}'
        raise InvalidInput("topicSettings", repr(text)[:100], rule) from None
    TopicSettings.make(**settings)
    return settings


def _columns(text: str | None, is_typed: bool) -> tuple[str, ...]:
    """The named columns; which fields values have is known when the topics are."""
    if text is None:
        return READ_COLUMNS
    names = tuple(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in READ_COLUMNS and not is_typed:
            rule = f"known columns are {', '.join(READ_COLUMNS)}; fields of values need values=typed"
            raise InvalidInput("columns", repr(name)[:100], rule)
        if names.count(name) > 1:
            raise InvalidInput("columns", repr(name), "it is named more than once")
    return names


def _topics(text: str | None) -> tuple[str, ...]:
    """Names divided by commas, each once."""
    if text is None:
        return ()
    names = [name.strip(" ") for name in text.split(",")]
    named = {topic_key(name): name for name in names}
    return tuple(check_topic_name(name) for name in named.values())


def check_batch(options: ReadOptions) -> None:
    """Reject options that only a stream has."""
    for name, value in {
        "group": options.group,
        "important": options.important,
        "maxMessagesPerTrigger": options.trigger_messages_max,
        "maxBytesPerTrigger": options.trigger_bytes_max,
        "minMessagesPerTrigger": options.trigger_messages_min,
        "rowsAreSplits": options.rows_are_splits or None,
    }.items():
        if value is not None:
            raise InvalidInput(name, repr(value), "it applies to streams only: omit it in a batch read")


def check_stream(options: ReadOptions) -> None:
    """Reject options that a stream does not have."""
    if options.metadata is not None:
        raise InvalidInput("metadata", repr(options.metadata), "it can be read as a batch only")
    if options.end != LATEST:
        raise InvalidInput(
            "endingOffsets", "given", "a stream has no end: read a batch, or use trigger(availableNow=True)"
        )
    if options.important is not None and options.group is None:
        raise InvalidInput("important", "given without a group", "set the option group too")


def default_start(options: ReadOptions, is_stream: bool) -> Position | PerTopic:
    """The default start: as in Spark's Kafka source, a stream starts at the end, a batch at the oldest message."""
    return options.start or (LATEST if is_stream else EARLIEST)


def _is_of_spark(name: str) -> bool:
    return name in _OF_SPARK or name.startswith(_OF_TABLES)


def _of_spark(given: Mapping[str, str], named: str) -> str | None:
    """The value of an option that Spark adds."""
    return next((value for name, value in given.items() if name.lower() == named), None)


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """What a table of Spark's catalog must remember of its options: all but the token, if they are of a table."""
    if not any(name.lower().startswith(_OF_TABLES) for name in given):
        return {}
    return {name: value for name, value in given.items() if not _is_of_spark(name.lower()) and name.lower() != "token"}


class _Options:
    """Options by lower-case name."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        self._given = {name.lower(): value for name, value in given.items() if not _is_of_spark(name.lower())}
        for name in self._given:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=3)
                alike = f"similar options are {', '.join(names[other] for other in close)}" if close else _NONE_ALIKE
                raise InvalidInput("option", repr(name)[:100], f"it is unknown; {alike}")

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        if value is not None and not value.strip():
            raise InvalidInput(name, repr(value)[:100], "it is empty: omit it, or give it a value")
        return value

    def whole(self, name: str, least: int, most: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return check_whole(name, int(value), least, most)
        except ValueError:
            return check_whole(name, value, least, most)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.boolean_or_none(name)
        return default if value is None else value

    def boolean_or_none(self, name: str) -> bool | None:
        value = self.text(name)
        if value is None:
            return None
        if value.strip().lower() not in _BOOLEANS:
            raise InvalidInput(name, repr(value)[:100], "it must be true or false")
        return _BOOLEANS[value.strip().lower()]

    def choice(self, name: str, known: Iterable[str]) -> str | None:
        value = self.text(name)
        if value is not None and value.strip().lower() not in known:
            raise InvalidInput(name, repr(value)[:100], f"it must be one of {', '.join(known)}")
        return None if value is None else value.strip().lower()

    def is_typed(self) -> bool:
        return self.choice("values", ("raw", "typed")) == "typed"

    def refuse_both(self, one: str, other: str) -> None:
        if one.lower() in self._given and other.lower() in self._given:
            raise InvalidInput(one, repr(self._given[one.lower()])[:100], f"it cannot be combined with {other}")

    def connection(self) -> Connection:
        token, certificates = self.text("token"), self.text("rootCertificates")
        seconds = self.whole("timeoutSeconds", 1, 24 * 3600)
        return Connection(
            # The environment is read in the driver: executors have another one.
            url=self.text("url") or default_url(),
            token=token if token is not None else os.environ.get(TOKEN_VARIABLE),
            root_certificates=None if certificates is None else _pem(certificates),
            timeout_seconds=float(TIMEOUT_SECONDS_DEFAULT if seconds is None else seconds),
        )


def _pem(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            content = opened.read(FETCH_BYTES_MAX)
    except OSError as error:
        raise InvalidInput("rootCertificates", repr(file)[:100], f"it cannot be read: {error.strerror}") from None
    if b"-----BEGIN" not in content:
        raise InvalidInput("rootCertificates", repr(file)[:100], "it has no certificate: it must be a PEM file")
    return content
