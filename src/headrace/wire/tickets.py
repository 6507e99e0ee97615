"""What is published where, and what is read from where: the commands of Flight streams, as JSON."""

from __future__ import annotations

import msgspec

from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_DEFAULT


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="read"):
    """Messages of one partition from an offset on, up to an end; with `follow`, those that come too.

    A batch has at most so many messages and about so many bytes. `columns` leaves out all others.
    """

    topic: str
    partition: int
    offset: int
    end: int | None = None
    follow: bool = False
    max_messages: int = FETCH_MESSAGES_DEFAULT
    max_bytes: int = FETCH_BYTES_DEFAULT
    columns: list[str] | None = None


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="publish"):
    """A stream of batches to publish, each in one commit and answered by its receipts, in order.

    With a writer, batch number n of the stream has the commit key (writer, first_number + n).
    """

    topic: str
    writer: str | None = None
    first_number: int = 0


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stage"):
    """A stream of batches to put into a stage; answered once by the rows that the stage has then."""

    topic: str
    stage: str


Upload = Publish | Stage


def encode(ticket: Read | Upload) -> bytes:
    """A ticket as bytes."""
    return msgspec.json.encode(ticket)


def decode_read(body: bytes) -> Read:
    """The ticket of a read."""
    return msgspec.json.decode(body, type=Read)


def decode_upload(body: bytes) -> Upload:
    """The command of an upload."""
    command: Upload = msgspec.json.decode(body, type=Upload)
    return command
