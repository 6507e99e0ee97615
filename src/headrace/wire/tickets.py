"""What is published where, and what is read from where: the commands of Flight streams, as JSON."""

from __future__ import annotations

import msgspec

from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_DEFAULT
from headrace.core.names import composed


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="read"):
    """Messages of one partition from an offset on, up to an end; with `follow`, those that come too.

    A batch has at most so many messages and about so many bytes. `columns` leaves out all others. With `sparse` the
    stream leaves out columns that its first batch has only nulls in, and ends before a batch that needs one of them:
    whoever reads goes on there. It has no meaning with `follow`.
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


class Follow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="follow"):
    """Messages of several partitions from the next offset of each on, for ever, each partition in its turn.

    A batch is of one partition, and has at most so many messages and about so many bytes. With `mixed`, what a few
    messages of several partitions would need a batch each for may come as one. With `growing`, partitions that have no
    position, those that are added later among them, are followed from their beginning.
    """

    topic: str
    positions: dict[int, int]
    max_messages: int = FETCH_MESSAGES_DEFAULT
    max_bytes: int = FETCH_BYTES_DEFAULT
    mixed: bool = False
    growing: bool = False


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="publish"):
    """A stream of batches to publish, each written whole or not at all, and answered in order.

    The answer is its receipts, or the error that refused it. After a batch whose message is at fault the stream goes
    on; any other error ends it, and nothing after that batch is written. With a writer, batch number n of the stream
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
    """A stream of batches to put into a stage; answered once by the rows that the stage has then."""

    topic: str
    stage: str


Upload = Publish | Stage
Reading = Read | Follow


def name_of(ticket: Reading | Upload) -> str:
    """The operation that a stream is."""
    return str(ticket.__struct_config__.tag)


def producers_of(command: Upload) -> list[str | None]:
    """As whom a stream is published: its producer and its writer of commit keys, none where it names none."""
    if isinstance(command, Stage):
        return [None]
    return [command.producer_id or None, command.writer and composed(command.writer)]


def encode(ticket: Reading | Upload) -> bytes:
    """A ticket as bytes."""
    return msgspec.json.encode(ticket)


def decode_read(body: bytes) -> Reading:
    """The ticket of a read."""
    ticket: Reading = msgspec.json.decode(body, type=Reading)
    return ticket


def decode_upload(body: bytes) -> Upload:
    """The command of an upload."""
    command: Upload = msgspec.json.decode(body, type=Upload)
    return command
