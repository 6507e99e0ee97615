"""Publishing: one producer for each topic, opened when it is first needed, and the publishers of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faststream._internal.configs import BrokerConfig, PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException
from faststream.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from headrace.aio import AsyncClient
from headrace.aio.producer import AsyncProducer
from headrace.client.producer.receipt import Receipt
from headrace.faststream.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    HeadracePublishCommand,
    decode_body,
    parse_message,
)

_NO_REPLIES = "Headrace has no requests with replies: publish, and subscribe to the topic of the answers"


class TopicProducers(ProducerProto[HeadracePublishCommand]):
    """The producers of a broker by topic. Belongs to one event loop."""

    def __init__(self) -> None:
        self._parser, self._decoder = parse_message, decode_body
        self.codec = DefaultCodec()
        self.serializer: Any = None
        self._client: AsyncClient | None = None
        self._producers: dict[str, AsyncProducer] = {}
        self._opening = asyncio.Lock()

    def connect(self, client: AsyncClient, serializer: Any, codec: Any) -> None:
        """Publish through this client."""
        self._client, self.serializer, self.codec = client, serializer, codec or DefaultCodec()

    async def close(self) -> None:
        """Wait until everything is on disk."""
        producers, self._producers, self._client = list(self._producers.values()), {}, None
        for producer in producers:
            await producer.close()

    async def publish(self, cmd: HeadracePublishCommand) -> Receipt:
        """Publish one message; returns once it is on disk."""
        value, content_type = None, None
        if cmd.body is not None:
            value, content_type = await self.codec.encode(cmd.body, self.serializer)
        attributes = {name: None if item is None else str(item).encode() for name, item in cmd.headers.items()}
        if content_type:
            attributes[CONTENT_TYPE] = content_type.encode()
        if cmd.correlation_id:
            attributes[CORRELATION_ID] = cmd.correlation_id.encode()
        producer = await self._producer(cmd.destination)
        return await producer.send(value, cmd.key, attributes, cmd.partition)

    async def _producer(self, topic: str) -> AsyncProducer:
        async with self._opening:
            if topic not in self._producers:
                if self._client is None:
                    raise RuntimeError("the broker is not connected: start it first")
                self._producers[topic] = await self._client.producer(topic)
        return self._producers[topic]

    async def request(self, cmd: HeadracePublishCommand) -> Any:
        """Not supported."""
        raise FeatureNotSupportedException(_NO_REPLIES)

    async def publish_batch(self, cmd: HeadracePublishCommand) -> Any:
        """Not supported: messages that are published at the same time share a batch anyway."""
        raise FeatureNotSupportedException("publish messages one by one, by asyncio.gather: they share their batches")


@dataclass(kw_only=True)
class HeadracePublisherConfig(PublisherUsecaseConfig):
    """Where a publisher sends."""

    _outer_config: BrokerConfig
    topic: str


@dataclass(kw_only=True)
class HeadracePublisherSpecificationConfig(PublisherSpecificationConfig):
    """What AsyncAPI says of a publisher."""

    topic: str


class HeadracePublisherSpecification(PublisherSpecification[BrokerConfig, HeadracePublisherSpecificationConfig]):
    """The channel of a publisher in AsyncAPI."""

    @property
    def topic(self) -> str:
        """The topic with the prefix of its router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """What the channel is called."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=MessageSpec(title=f"{self.name}:Message", payload=payload), bindings=None)
        spec = PublisherSpec(
            address=self.topic, description=self.config.description_, operation=operation, bindings=None
        )
        return {self.name: spec}


class HeadracePublisher(PublisherUsecase):
    """Publishes to one topic: as a decorator what a handler returns, or by `publish`."""

    def __init__(self, config: HeadracePublisherConfig, specification: Any) -> None:
        super().__init__(config, specification)
        self._topic = config.topic

    @property
    def topic(self) -> str:
        """The topic with the prefix of its router."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: Any,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
    ) -> Any:
        """Publish one message; returns its receipt once it is on disk."""
        command = HeadracePublishCommand(
            message,
            self.topic,
            key=key,
            partition=partition,
            headers=headers,
            correlation_id=correlation_id or self._outer_config.id_generator(),
        )
        return await self._publish(command, _extra_middlewares=())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        command = HeadracePublishCommand.of(cmd)
        command.destination = command.destination or self.topic
        producer = self._outer_config.producer
        return await self._basic_publish(command, producer=producer, _extra_middlewares=_extra_middlewares)

    async def request(self, message: Any, /, *, correlation_id: str | None = None) -> Any:
        """Not supported."""
        raise FeatureNotSupportedException(_NO_REPLIES)
