"""Messages of FastStream made of Headrace's, and commands to publish.

Headers are attributes, as text. `content-type` and `correlation_id` are attributes of these names. None is null: the
body of a message without a value, or the value of a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

from headrace.client.message import Message

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"


@dataclass(slots=True)
class Delivery:
    """A message that was read, and what its handler made of it; without an answer it is handled again."""

    topic: str
    message: Message
    answer: Literal["handled", "again"] | None = None


class HeadraceMessage(StreamMessage[Delivery]):
    """A message as handlers see it; `raw_message.message` has its partition, offset, key and times."""

    async def ack(self) -> None:
        """It is handled."""
        self.raw_message.answer = self.raw_message.answer or "handled"
        await super().ack()

    async def reject(self) -> None:
        """It cannot be handled: pass it over."""
        self.raw_message.answer = self.raw_message.answer or "handled"
        await super().reject()

    async def nack(self) -> None:
        """Handle it again."""
        self.raw_message.answer = self.raw_message.answer or "again"
        await super().nack()


async def parse_message(delivery: Delivery) -> HeadraceMessage:
    """A message of FastStream."""
    message = delivery.message
    headers = {
        name: None if item is None else item.decode(errors="replace")
        for name, item in (message.attributes or {}).items()
    }
    return HeadraceMessage(
        raw_message=delivery,
        body=message.value,
        headers=headers,
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        reply_to=headers.get(REPLY_TO) or "",
        message_id=f"{delivery.topic}-{message.partition}-{message.offset}",
    )


async def decode_body(message: StreamMessage[Any]) -> Any:
    """The body as its content type says."""
    return None if message.body is None else decode_message(message)


class HeadracePublishCommand(PublishCommand):
    """What is to be published, and where."""

    def __init__(
        self,
        body: Any,
        topic: str,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> None:
        super().__init__(
            body=body,
            destination=topic,
            correlation_id=correlation_id,
            headers=dict(headers or {}),
            reply_to=reply_to,
            _publish_type=PublishType.PUBLISH,
        )
        self.key = key
        self.partition = partition

    @classmethod
    def of(cls, command: PublishCommand) -> HeadracePublishCommand:
        """A command of this kind, from what a handler returned."""
        if isinstance(command, cls):
            return command
        return cls(
            command.body,
            command.destination,
            headers=command.headers,
            correlation_id=command.correlation_id,
            reply_to=command.reply_to,
        )
