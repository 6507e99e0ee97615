"""The broker and its routers: where handlers and publishers are declared, and what opens and closes the client."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import FeatureNotSupportedException
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec

import headrace.aio
from headrace.aio import AsyncClient
from headrace.client.producer.receipt import Receipt
from headrace.client.read.start import Start
from headrace.core.errors import HeadraceError
from headrace.faststream.message import Delivery, HeadracePublishCommand
from headrace.faststream.publisher import (
    HeadracePublisher,
    HeadracePublisherConfig,
    HeadracePublisherSpecification,
    HeadracePublisherSpecificationConfig,
    TopicProducers,
)
from headrace.faststream.subscriber import (
    HeadraceSpecification,
    HeadraceSpecificationConfig,
    HeadraceSubscriber,
    HeadraceSubscriberConfig,
)


@dataclass(kw_only=True)
class HeadraceConfig(BrokerConfig):
    """What subscribers and publishers take from their broker."""

    producer: TopicProducers = field(default_factory=TopicProducers)
    client: AsyncClient | None = None


class _LogColumns(DefaultLoggerStorage):
    """A logger whose lines have the topic and the id of the message."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Columns have no width of their own."""

    def get_logger(self, *, context: ContextRepo) -> Any:
        """The logger, made once."""
        known = self._get_logger_ref()
        if known is None:
            form = "%(asctime)s %(levelname)-8s - %(topic)s | %(message_id)s - %(message)s"
            columns = {"topic": ""}
            known = get_broker_logger(
                name="headrace",
                default_context=columns,
                message_id_ln=10,
                fmt=form,
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(known)
        return known


class HeadraceRegistrator(Registrator[Delivery, HeadraceConfig]):
    """Where handlers and publishers are declared."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str | None = None,
        start: Start = "earliest",
        ack_policy: AckPolicy = EMPTY,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> HeadraceSubscriber:
        """Call a function for each message of a topic: of all partitions, or shared with the others of a group."""
        config: Any = self.config
        calls = CallsCollection[Delivery]()
        described = HeadraceSpecificationConfig(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        subscriber = HeadraceSubscriber(
            HeadraceSubscriberConfig(
                topic=topic, group=group, start=start, no_reply=True, _outer_config=config, _ack_policy=ack_policy
            ),
            HeadraceSpecification(config, described, calls),
            calls,
        )
        super().subscriber(subscriber)
        return subscriber.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, dependencies_=dependencies
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> HeadracePublisher:
        """Publish what a handler returns to a topic."""
        config: Any = self.config
        described = HeadracePublisherSpecificationConfig(
            topic=topic, schema_=schema, title_=title, description_=description, include_in_schema=include_in_schema
        )
        publisher = HeadracePublisher(
            HeadracePublisherConfig(topic=topic, _outer_config=config),
            HeadracePublisherSpecification(config, described),
        )
        super().publisher(publisher)
        return publisher


class HeadraceRouter(HeadraceRegistrator):
    """Handlers that are included in a broker, with a prefix for their topics."""

    def __init__(self, prefix: str = "", *, dependencies: Sequence[Any] = (), middlewares: Sequence[Any] = ()) -> None:
        config = HeadraceConfig(prefix=prefix, broker_dependencies=dependencies, broker_middlewares=middlewares)
        super().__init__(config=config, routers=())


class HeadraceBroker(HeadraceRegistrator, BrokerUsecase[Delivery, AsyncClient, HeadraceConfig]):
    """A Headrace server as a broker of FastStream.

    `client` is one that exists already, such as `headrace_async_client` in a test; it is not closed here.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        client: AsyncClient | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[HeadraceRegistrator] = (),
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        description: str | None = None,
    ) -> None:
        self._given, self._url, self._token = client, url, token
        shown = url if isinstance(url, str) else "headrace://127.0.0.1:7071" if not url else url[0]
        super().__init__(
            routers=routers,
            config=HeadraceConfig(
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_LogColumns),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=dependency_provider,
                    context=ContextRepo(),
                ),
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description, url=[shown], protocol="headrace", protocol_version=None, tags=(), security=None
            ),
        )

    async def _connect(self) -> AsyncClient:
        client = headrace.aio.connect(self._url, self._token) if self._given is None else self._given
        config: Any = self.config
        # The configuration of a broker is composed of those of its routers; its own is the first.
        config.broker_config.client = client
        config.producer.connect(client, config.fd_config._serializer, config.broker_codec)
        return client

    async def start(self) -> None:
        """Connect, and let the handlers work."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Finish what is at hand, commit it, and close the client."""
        await super().stop(exc_type, exc_val, exc_tb)
        producers: Any = self.config.producer
        await producers.close()
        if self._connection is not None and self._given is None:
            await self._connection.close()
        self._connection = None

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether the server answers."""
        if self._connection is None:
            return False
        try:
            await self._connection.whoami()
        except HeadraceError:
            return False
        return True

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
    ) -> Receipt:
        """Publish one message; returns its receipt once it is on disk."""
        command = HeadracePublishCommand(
            message,
            topic,
            key=key,
            partition=partition,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
        )
        receipt: Receipt = await self._basic_publish(command, producer=self.config.producer)
        return receipt

    async def request(self, message: Any, topic: str, /, timeout: float = 0.5) -> Any:
        """Not supported."""
        raise FeatureNotSupportedException(
            "Headrace has no requests with replies: publish, and subscribe to the topic of the answers"
        )
