"""Subscribers: a loop that reads a topic and calls the handlers, and what becomes of messages that fail.

The loop alone reads, commits and closes the consumer, so nothing is committed that was not handled. A stop is a flag
that the loop looks at after each message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from faststream._internal.configs import BrokerConfig, SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream.exceptions import FeatureNotSupportedException
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from headrace.aio import AsyncClient
from headrace.aio.consumer import AsyncConsumer
from headrace.client.message import Message
from headrace.client.read.start import Start
from headrace.faststream.message import Delivery, decode_body, parse_message

# What was handled is committed after this time without a message, and at most this often while there are messages.
_IDLE_SECONDS: Final = 0.2
_COMMIT_SECONDS: Final = 1.0
# How long a message waits that is to be handled again.
_AGAIN_SECONDS: Final = 0.5


@dataclass(kw_only=True)
class HeadraceSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber reads."""

    _outer_config: BrokerConfig
    topic: str
    group: str | None
    start: Start

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, else of the broker, else: a message that fails is passed over."""
        for given in (self._ack_policy, self._outer_config.ack_policy):
            if given is not EMPTY:
                return given
        return AckPolicy.REJECT_ON_ERROR


@dataclass(kw_only=True)
class HeadraceSpecificationConfig(SubscriberSpecificationConfig):
    """What AsyncAPI says of a subscriber."""

    topic: str


class HeadraceSpecification(SubscriberSpecification[BrokerConfig, HeadraceSpecificationConfig]):
    """The channel of a subscriber in AsyncAPI."""

    @property
    def topic(self) -> str:
        """The topic with the prefix of its router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        """What the channel is called."""
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channel."""
        message = MessageSpec(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        operation = Operation(message=message, bindings=None)
        spec = SubscriberSpec(address=self.topic, description=self.description, operation=operation, bindings=None)
        return {self.name: spec}


class HeadraceSubscriber(TasksMixin):
    """Reads one topic, alone or in a group, and handles one message after another."""

    def __init__(self, config: HeadraceSubscriberConfig, specification: Any, calls: Any) -> None:
        config.parser = parse_message
        config.decoder = decode_body
        super().__init__(config, specification, calls)
        self._topic, self._group, self._start = config.topic, config.group, config.start
        self._ended: asyncio.Event | None = None
        self._loop_task: asyncio.Task[Any] | None = None
        self._is_stopping = False

    @property
    def topic(self) -> str:
        """The topic with the prefix of its router."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def start(self) -> None:
        """Open the consumer, and handle messages from now on."""
        await super().start()
        if self.calls:
            outer: Any = self._outer_config
            client: AsyncClient = outer.client
            consumer = await client.consumer(self.topic, self._group, start=self._start)
            self._ended, self._is_stopping = asyncio.Event(), False
            self._post_start()
            self.add_task(self._work, (consumer, self._ended), restart_on_failure=False)
            return
        self._post_start()

    async def stop(self) -> None:
        """Finish the message at hand, commit, leave the group."""
        self._is_stopping = True
        if asyncio.current_task() is self._loop_task and self._loop_task is not None:
            # A handler asked for it: the loop ends after this message.
            return
        if self._ended is not None:
            try:
                await asyncio.wait_for(self._ended.wait(), self._outer_config.graceful_timeout)
            except TimeoutError:
                self._log(None, "a handler did not end in time: its message will be handled again")
        await super().stop()

    async def _work(self, consumer: AsyncConsumer, ended: asyncio.Event) -> None:
        self._loop_task = asyncio.current_task()
        current: Message | None = None
        committed_at = time.monotonic()
        try:
            while not self._is_stopping:
                async for current in consumer.messages(_IDLE_SECONDS):
                    delivery = Delivery(self.topic, current)
                    await self.consume(delivery)
                    if delivery.answer != "handled":
                        await consumer.seek({current.partition: current.offset})
                        await asyncio.sleep(_AGAIN_SECONDS)
                    current = None
                    if self._is_stopping or time.monotonic() - committed_at >= _COMMIT_SECONDS:
                        break
                await self._commit(consumer)
                committed_at = time.monotonic()
        finally:
            try:
                if current is not None:
                    # Its handler was cancelled, so it comes again.
                    await consumer.seek({current.partition: current.offset})
            finally:
                await consumer.close()
                self.running = False
                ended.set()

    async def _commit(self, consumer: AsyncConsumer) -> None:
        if self._group is not None:
            await consumer.commit()

    def _make_response_publisher(self, message: Any) -> Sequence[Any]:
        """Replies are not supported: what a handler returns goes where `@broker.publisher` says."""
        return ()

    async def get_one(self, *, timeout: float = 5) -> Any:
        """Not supported."""
        raise FeatureNotSupportedException("HeadraceBroker has no get_one(): use a consumer of headrace.aio")

    def __aiter__(self) -> AsyncIterator[Any]:
        raise FeatureNotSupportedException("HeadraceBroker has no iteration: use a consumer of headrace.aio")

    def get_log_context(self, message: Any) -> dict[str, str]:
        """What a line of the log says of a message."""
        return {"topic": self.topic, "message_id": getattr(message, "message_id", "")}
