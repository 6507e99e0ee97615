"""A request with its head, and an answer with its length: what the schemas of messages are wrapped in.

    request   API key, version, correlation id, client id, tags of flexible versions; then its fields
    answer    length, correlation id, tags of flexible versions; then its fields

Stateless; bytes that are not a request raise `BadRequest`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from headrace.edge.event_loop.frames import SIZE
from headrace.protocols.kafka.messages.reader import ELEMENTS_MAX, FieldReader
from headrace.protocols.kafka.messages.schema import request_schema, response_schema
from headrace.protocols.kafka.messages.writer import Writer

# API key, version, correlation id.
HEAD: Final = struct.Struct(">hhi")
# What an element of a request takes in memory: a topic with a partition 820 together, numbers alone 250.
PARSED_ELEMENT_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class KafkaRequest:
    """A request that was read, the bytes that it holds of the budget, and the elements of all its arrays."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    fields: Any
    size: int
    elements: int


def read_request(frame: bytes | bytearray, elements_max: int = ELEMENTS_MAX) -> KafkaRequest:
    """A request, by its schema; `TooManyElements` if its arrays have more than that together."""
    api_key, version, correlation_id = HEAD.unpack_from(frame)
    schema = request_schema(api_key, version)
    reader = FieldReader(memoryview(frame), elements_max)
    reader.bytes(HEAD.size)
    client_id = reader.text(False) or ""
    if schema.has_flexible_header:
        reader.skip_tags()
    # What is left over is ignored, as Kafka does: librdkafka sends three bytes too many when it wants all topics.
    fields = reader.struct(schema.struct)
    return KafkaRequest(api_key, version, correlation_id, client_id, fields, len(frame), reader.elements)


def encode_answer(api_key: int, version: int, correlation_id: int, answer: dict[str, Any]) -> bytes:
    """The bytes of an answer, with their length before them."""
    schema = response_schema(api_key, version)
    writer = Writer()
    writer.number("int32", correlation_id)
    if schema.has_flexible_header:
        writer.unsigned_varint(0)
    writer.struct(schema.struct, answer)
    writer.parts.insert(0, SIZE.pack(sum(map(len, writer.parts))))
    return writer.join()


def with_correlation_id(encoded: bytes, correlation_id: int) -> bytes:
    """The same answer to another request."""
    return b"".join([encoded[: SIZE.size], SIZE.pack(correlation_id), encoded[2 * SIZE.size :]])
