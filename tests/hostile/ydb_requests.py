"""Requests of YDB's clients: sessions as SDKs hold them, and every unary call, with all fields filled.

`SESSIONS` and `CALLS` are bytes by the full name of their method. A method that is added without a place here is
found by `test_every_method_is_tried`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.protocols.ydb.services.table import METHODS
from headrace.protocols.ydb.stubs import topic
from tests.edge.mutations import mutated
from tests.hostile.target import GROUP, NARROW, Address

TOPIC: Final = "/Ydb.Topic.V1.TopicService/"
PATH: Final = f"/local/{NARROW}"
CONSUMER: Final = GROUP
# How deep messages are filled.
_DEPTH_MAX: Final = 4
# How many of a hundred messages are left as they are, and how many of a hundred calls have no token.
_INTACT, _STRANGE = 40, 5
# Names by the fields that have them; other texts are short.
_TEXTS: Final = {"path": PATH, "consumer": CONSUMER, "database": "/local", "name": CONSUMER, "topic": PATH}

_Read: Final = topic.StreamReadMessage
_Write: Final = topic.StreamWriteMessage


def filled(kind: type[Message], depth: int = 0) -> Any:
    """A message with something in each of its fields; of those that exclude each other the last one stays."""
    message = kind()
    if depth == _DEPTH_MAX:
        return message
    for field in kind.DESCRIPTOR.fields:
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        if is_message and field.message_type.GetOptions().map_entry:
            continue
        value = filled(field.message_type._concrete_class, depth + 1) if is_message else _scalar(field)
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        elif is_message:
            getattr(message, field.name).CopyFrom(value)
        else:
            setattr(message, field.name, value)
    return message


def _scalar(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXTS.get(field.name, "x")
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"value"
    return 1.0 if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT) else 1


def writing() -> list[bytes]:
    """A write session as Python's SDK holds it."""
    data = [_Write.WriteRequest.MessageData(seq_no=number, data=b"value" * number) for number in range(1, 4)]
    data[0].metadata_items.add(key="kind", value=b"\xff")
    data[0].created_at.GetCurrentTime()
    init = _Write.InitRequest(path=PATH, producer_id="scratch-p", message_group_id="scratch-p")
    sent = [
        _Write.FromClient(init_request=init),
        _Write.FromClient(write_request=_Write.WriteRequest(messages=data, codec=1)),
        _Write.FromClient(write_request=_Write.WriteRequest(messages=data[2:], codec=2)),
        _Write.FromClient(update_token_request=topic.UpdateTokenRequest(token="x")),
        _Write.FromClient(write_request=filled(_Write.WriteRequest)),
    ]
    return [each.SerializeToString() for each in sent]


def reading(partitions: tuple[int, ...] = ()) -> list[bytes]:
    """A read session: credit, the start of a partition, commits, and everything else that a client may send."""
    settings = _Read.InitRequest.TopicReadSettings(path=PATH, partition_ids=partitions)
    offsets = [topic.OffsetsRange(start=0, end=1), topic.OffsetsRange(start=2, end=3)]
    part = _Read.CommitOffsetRequest.PartitionCommitOffset(partition_session_id=1, offsets=offsets)
    sent = [
        _Read.FromClient(init_request=_Read.InitRequest(topics_read_settings=[settings], consumer=CONSUMER)),
        _Read.FromClient(read_request=_Read.ReadRequest(bytes_size=1 << 20)),
        *(
            _Read.FromClient(
                start_partition_session_response=_Read.StartPartitionSessionResponse(partition_session_id=id_)
            )
            for id_ in (1, 2)
        ),
        _Read.FromClient(commit_offset_request=_Read.CommitOffsetRequest(commit_offsets=[part])),
        *(
            _Read.FromClient(**{field.name: filled(field.message_type._concrete_class)})
            for field in _Read.FromClient.DESCRIPTOR.fields
            if field.name != "init_request"
        ),
    ]
    return [each.SerializeToString() for each in sent]


SESSIONS: Final = {
    f"{TOPIC}StreamWrite": [writing()],
    f"{TOPIC}StreamRead": [reading(), reading((0, 1))],
}
CALLS: Final = {
    name: filled(method.request).SerializeToString() for name, method in METHODS.items() if not method.is_stream
}


@dataclass(frozen=True)
class YdbCallInput:
    """A call: its method, and what is sent, which may be no Protobuf."""

    method: str
    messages: tuple[bytes, ...]
    has_token: bool


class YdbInputs:
    """Sessions and calls, spoiled, with a token or without one."""

    def __init__(self, address: Address) -> None:
        self._pool = [message for sessions in SESSIONS.values() for each in sessions for message in each]
        self._pool += CALLS.values()

    def made(self, random: Random) -> YdbCallInput:
        """One call."""
        has_token = random.randrange(100) >= _STRANGE
        if random.random() < 0.3:
            name = random.choice(sorted(CALLS))
            return YdbCallInput(name, (self._spoiled(CALLS[name], random),), has_token)
        name = random.choice(sorted(SESSIONS))
        return YdbCallInput(name, tuple(self._changed(random.choice(SESSIONS[name]), random)), has_token)

    def _changed(self, session: list[bytes], random: Random) -> Iterator[bytes]:
        """The messages of a session, some of them spoiled, left out, said twice, or from elsewhere."""
        for message in session:
            way = random.randrange(10)
            if way == 0:
                continue
            yield random.choice(self._pool) if way == 1 else self._spoiled(message, random)
            if way == 2:
                yield message

    def _spoiled(self, message: bytes, random: Random) -> bytes:
        if not message or random.randrange(100) < _INTACT:
            return message
        return mutated([message], random)
