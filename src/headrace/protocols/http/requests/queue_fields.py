"""The fields of a request of the PgQueue HTTP API: in the body or the query, in every spelling of its clients."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from litestar import Request

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX, SEQNO_MAX
from headrace.protocols.http.requests.strict_json import off_loop

_QUERY_FIELDS_MAX: Final = 100
# Longer than any id, and short enough to be read as a number.
_DIGITS_MAX: Final = 100


class QueueRequest(msgspec.Struct):
    """All fields of a request, in every spelling; unknown ones are ignored."""

    topic: str | None = None
    topic_name: str | None = None
    name: str | None = None
    message: str | None = None
    log_message: str | None = None
    producer_id: int | str | None = None
    consumer_id: int | str | None = None
    partition: int | str | None = None
    partitions: int | str | None = None
    offset: int | str | None = None
    id: int | str | None = None
    type: str | None = None
    prod_client: int | str | None = None


_DECODER: Final = msgspec.json.Decoder(QueueRequest)


async def read_fields(request: Request[Any, Any, Any]) -> QueueRequest:
    """Read the fields of a request."""
    body = await request.body()
    query = request.scope["query_string"]
    try:
        given = await off_loop(len(body), _DECODER.decode, body) if body else QueueRequest()
        if query:
            asked = dict(parse_qsl(query.decode("ascii"), True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX))
            for name in QueueRequest.__struct_fields__:
                if getattr(given, name) is None:
                    setattr(given, name, asked.get(name))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput("request", f"{len(body)} bytes", f"it is malformed: {error}") from None
    return given


def topic_in(given: QueueRequest) -> str:
    """The name of the topic."""
    topic = given.topic or given.topic_name or given.name
    if topic is None:
        raise InvalidInput("topic", "missing", "give the name of the topic")
    return topic


def id_in(field: str, value: int | str | None) -> int:
    """An id, which must be given."""
    number = whole(field, value)
    if number is None:
        raise InvalidInput(field, "missing", "register to get one")
    return number


def whole(field: str, value: int | str | None) -> int | None:
    """A whole number, or None."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
            raise InvalidInput(field, repr(value[:_DIGITS_MAX]), "it must be a whole number")
        return int(value)
    return value


def value_in(given: QueueRequest) -> bytes:
    """The message to publish."""
    text = given.message if given.message is not None else given.log_message
    if text is None:
        raise InvalidInput("message", "missing", "give the message to publish")
    return text.encode()


def offset_in(given: QueueRequest) -> int:
    """The offset to continue after; -1 is before the first message."""
    offset = given.offset
    if offset is None:
        raise InvalidInput("offset", "missing", "give the offset to continue after, or -1 for the first message")
    number = -1 if offset == "-1" else whole("offset", offset)
    assert number is not None
    if not -1 <= number <= SEQNO_MAX:
        raise InvalidInput("offset", str(number)[:100], "it must be -1 or more")
    return number


def partition_in(given: QueueRequest) -> int | None:
    """The number of a partition, or None."""
    partition = whole("partition", given.partition)
    if partition is not None and not 0 <= partition < PARTITIONS_MAX:
        raise InvalidInput("partition", str(partition)[:100], "it must be the number of a partition")
    return partition
