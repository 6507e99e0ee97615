"""The tickets and commands of Flight streams, as JSON: what is read or published."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_DEFAULT
from headrace.core.names import composed


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="read"):
    """Messages of one partition from an offset on, up to an end; with `follow`, also future ones.

    With `ranges`, of several partitions, each from an offset up to an end, in place of one: a batch has rows of many of
    them, those of one partition in their order. With `topic_id`, only of that topic and not of another of its name.

    A batch has at most `max_messages` messages and about `max_bytes` bytes. `columns` selects columns. With `sparse`
    the stream omits columns that are all null in its first batch, and ends before a batch that needs one of them:
    continue with another read there. It is ignored with `follow`.
    """

    topic: str
    partition: int
    offset: int
    end: int | None = None
    follow: bool = False
    max_messages: int = FETCH_MESSAGES_DEFAULT
    max_bytes: int = FETCH_BYTES_DEFAULT
    columns: list[str] | None = None
    sparse: bool = False
    ranges: dict[int, tuple[int, int]] | None = None
    topic_id: int | None = None


class Follow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="follow"):
    """Messages of several partitions from the next offset of each on, without end, partitions taking turns.

    A batch is of one partition, and has at most `max_messages` messages and about `max_bytes` bytes. With `mixed`, few
    messages of several partitions may be sent as one batch. With `growing`, partitions without a position, including
    those added later, are followed from their beginning.
    """

    topic: str
    positions: dict[int, int]
    max_messages: int = FETCH_MESSAGES_DEFAULT
    max_bytes: int = FETCH_BYTES_DEFAULT
    mixed: bool = False
    growing: bool = False


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="publish"):
    """A stream of batches to publish, each written atomically, and answered in order.

    The answer is its receipts or its error. After a batch with an invalid message the stream continues; any other
    error ends it, and nothing after that batch is written. With a writer, batch number n of the stream
    has the commit key (writer, first_number + n). With an epoch, the batches are written only as long as no other
    producer of the source was opened.
    """

    topic: str
    writer: str | None = None
    first_number: int = 0
    producer_id: str = ""
    message_group_id: str = ""
    epoch: int | None = None


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stage"):
    """A stream of batches for a stage; answered once, with the number of rows in the stage."""

    topic: str
    stage: str


Upload = Publish | Stage
Reading = Read | Follow
# Made at import, as those of operations.
_UPLOAD: Final = msgspec.json.Decoder(Upload)
_READING: Final = msgspec.json.Decoder(Reading)


def name_of(ticket: Reading | Upload) -> str:
    """The operation of a stream."""
    return str(ticket.__struct_config__.tag)


def producers_of(command: Upload) -> list[str | None]:
    """The ids that a stream publishes as: its producer and its writer of commit keys, or None for each."""
    if isinstance(command, Stage):
        return [None]
    return [command.producer_id or None, command.writer and composed(command.writer)]


def encode(ticket: Reading | Upload) -> bytes:
    """A ticket as bytes."""
    return msgspec.json.encode(ticket)


def decode_read(body: bytes) -> Reading:
    """The ticket of a read."""
    ticket: Reading = _READING.decode(body)
    return ticket


def decode_upload(body: bytes) -> Upload:
    """The command of an upload."""
    command: Upload = _UPLOAD.decode(body)
    return command
