"""Topics over HTTP: create, list, describe, alter, delete, and delete their oldest messages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType

from headrace.core.limits import (
    MESSAGE_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    PARTITIONS_MAX,
    RETENTION_BYTES_MAX,
    RETENTION_SECONDS_MAX,
    WINDOW_MESSAGES_MAX,
    WINDOW_SECONDS_MAX,
    WRITE_BYTES_MAX,
)
from headrace.core.topics.settings import CODECS, Deduplication, KeyHash, Scope, Switch, TimestampType, TopicSettings
from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import answer, perform
from headrace.protocols.http.openapi.document import Docs, name_schema
from headrace.protocols.http.requests.positions import Position, Positions, listed, mapped
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import read
from headrace.wire.descriptions import PartitionOut, TopicOut
from headrace.wire.operations import AlterTopic, CreateTopic, DeleteMessages, DeleteTopic, DescribeTopic, ListTopics

# The core rejects invalid names; this only documents the rule.
Name = Annotated[str, Meta(extra_json_schema=name_schema(NAME_CHARACTERS_MAX))]
Codec = Annotated[str, Meta(extra_json_schema={"enum": list(CODECS)})]
Partitions = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]


class SettingsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a topic; omitted ones stay unchanged."""

    retention_seconds: Annotated[int, Meta(ge=1, le=RETENTION_SECONDS_MAX)] | UnsetType | None = UNSET
    retention_bytes: Annotated[int, Meta(ge=1, le=RETENTION_BYTES_MAX)] | UnsetType | None = UNSET
    deduplication: Deduplication | UnsetType = UNSET
    deduplication_window_seconds: Annotated[int, Meta(ge=1, le=WINDOW_SECONDS_MAX)] | UnsetType = UNSET
    deduplication_window_messages: Annotated[int, Meta(ge=1, le=WINDOW_MESSAGES_MAX)] | UnsetType = UNSET
    deduplication_scope: Scope | UnsetType = UNSET
    codecs: Annotated[list[Codec], Meta(min_length=1, max_length=len(CODECS))] | UnsetType = UNSET
    message_bytes_max: Annotated[int, Meta(ge=1, le=MESSAGE_BYTES_MAX)] | UnsetType = UNSET
    key_hash: KeyHash | UnsetType = UNSET
    timestamp_type: TimestampType | UnsetType = UNSET
    archive: Switch | UnsetType = UNSET
    archive_after_seconds: Annotated[int, Meta(ge=0, le=RETENTION_SECONDS_MAX)] | UnsetType = UNSET
    archive_retention_seconds: Annotated[int, Meta(ge=1, le=RETENTION_SECONDS_MAX)] | UnsetType | None = UNSET
    local_retention_seconds: Annotated[int, Meta(ge=1, le=RETENTION_SECONDS_MAX)] | UnsetType | None = UNSET
    local_retention_bytes: Annotated[int, Meta(ge=1, le=RETENTION_BYTES_MAX)] | UnsetType | None = UNSET
    value_schema: str | dict[str, Any] | UnsetType | None = UNSET
    partition_write_bytes_per_second: Annotated[int, Meta(ge=1, le=WRITE_BYTES_MAX)] | UnsetType | None = UNSET
    partition_write_burst_bytes: Annotated[int, Meta(ge=1, le=WRITE_BYTES_MAX)] | UnsetType | None = UNSET
    kafka_configs: dict[str, str | None] | UnsetType = UNSET
    annotations: dict[str, str | None] | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """Only the given settings."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


class TopicIn(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create."""

    name: Name
    partitions: Partitions | None = None
    settings: SettingsIn = msgspec.field(default_factory=SettingsIn)


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a topic: settings, and more partitions."""

    partitions: Partitions | None = None
    settings: SettingsIn = msgspec.field(default_factory=SettingsIn)


class DeletionIn(msgspec.Struct, forbid_unknown_fields=True):
    """By partition the offset below which messages are deleted."""

    before: Positions


class StartsOut(msgspec.Struct):
    """The start offset of each partition that was named."""

    starts: list[Position]


class TopicList(msgspec.Struct):
    """The names of topics."""

    topics: list[str]


_TOPIC = TopicOut(
    name="orders",
    id=12,
    created_us=1767323045678901,
    settings=TopicSettings(),
    partitions=[PartitionOut(0, 0, 42), PartitionOut(1, 0, 17)],
    bytes_stored=16384,
    groups=["billing"],
)


@get(
    "/topics",
    opt={"operation": "list_topics", "docs": Docs(answer=TopicList, example=TopicList(["orders", "payments"]))},
    tags=["topics"],
    summary="List topics",
)
async def list_topics(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> TopicList:
    """List the topics on which the caller has any right."""
    return TopicList(await perform(request, bridge, ListTopics("*")))


@post(
    "/topics",
    opt={
        "operation": "create_topic",
        "checked_inside": True,
        "docs": Docs(body=TopicIn, given=TopicIn("orders", 2), answer=TopicOut, example=_TOPIC, errors=(409,)),
    },
    tags=["topics"],
    summary="Create a topic",
)
async def create_topic(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> Response[bytes]:
    """Create a topic. An existing one stays unchanged; more partitions are added, fewer are an error."""
    data = await read(request, TopicIn)
    create = CreateTopic(data.name, data.partitions, data.settings.given())
    return await answer(request, bridge, create, TopicOut.of)


@put(
    "/topics/{topic:str}",
    opt={
        "operation": "create_topic",
        "docs": Docs(body=TopicChange, given=TopicChange(2), answer=TopicOut, example=_TOPIC, errors=(409,)),
    },
    tags=["topics"],
    summary="Create a topic by its name",
)
async def put_topic(
    request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Create a topic. An existing one stays unchanged; more partitions are added, fewer are an error."""
    data = await read(request, TopicChange)
    create = CreateTopic(unquoted(topic), data.partitions, data.settings.given())
    return await answer(request, bridge, create, TopicOut.of)


@get(
    "/topics/{topic:str}",
    opt={"operation": "describe_topic", "docs": Docs(answer=TopicOut, example=_TOPIC, errors=(404,))},
    tags=["topics"],
    summary="Describe a topic",
)
async def describe_topic(
    request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Show the partitions with their offsets, the settings, the size and the groups of a topic."""
    return await answer(request, bridge, DescribeTopic(unquoted(topic)), TopicOut.of)


@patch(
    "/topics/{topic:str}",
    opt={
        "operation": "alter_topic",
        "docs": Docs(body=TopicChange, given=TopicChange(4), answer=TopicOut, example=_TOPIC, errors=(404,)),
    },
    tags=["topics"],
    summary="Alter a topic",
)
async def alter_topic(
    request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Change settings or add partitions."""
    data = await read(request, TopicChange)
    alter = AlterTopic(unquoted(topic), data.partitions, data.settings.given())
    return await answer(request, bridge, alter, TopicOut.of)


@delete(
    "/topics/{topic:str}",
    opt={"operation": "delete_topic", "docs": Docs(errors=(404,))},
    tags=["topics"],
    summary="Delete a topic",
)
async def delete_topic(request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]) -> None:
    """Delete a topic and free its disk space."""
    await perform(request, bridge, DeleteTopic(unquoted(topic)))


@post(
    "/topics/{topic:str}/delete-messages",
    status_code=200,
    opt={
        "operation": "delete_messages",
        "docs": Docs(
            body=DeletionIn,
            given=DeletionIn([Position(0, 40)]),
            answer=StartsOut,
            example=StartsOut([Position(0, 40)]),
            errors=(404, 409),
        ),
    },
    tags=["topics"],
    summary="Delete the oldest messages",
)
async def delete_messages(
    request: Request[Any, Any, Any], topic: FromPath[str], bridge: NamedDependency[Bridge]
) -> Response[bytes]:
    """Delete the messages of partitions below an offset each. Nobody can read them any more when this returns.

    Nothing is deleted if an important group has not read up to one of the offsets.
    """
    before = mapped("before", (await read(request, DeletionIn)).before)
    return await answer(
        request, bridge, DeleteMessages(unquoted(topic), before), lambda starts: StartsOut(listed(starts))
    )


HANDLERS = [list_topics, create_topic, put_topic, describe_topic, alter_topic, delete_topic, delete_messages]
