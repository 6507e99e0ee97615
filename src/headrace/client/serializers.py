"""Serializers: how values and keys become bytes in a producer, and objects again in a consumer.

    "text"      str, as UTF-8
    "json"      whatever JSON can hold: dict, list, str, numbers, datetimes
    "msgspec"   msgspec structs and dataclasses, as JSON; consumers name the type and get objects that match it
    "pydantic"  pydantic models, as JSON; consumers name the type. Needs pydantic
    a callable  from an object to bytes in a producer, from bytes to an object in a consumer

None is null on both sides, and is never given to a serializer: a message without a value is one to the consumer, too.

They work on single messages: `send`, and loops over messages. Arrow batches of `poll` and `read` hold bytes. A producer
also applies them to a column of `send_batch` that does not hold bytes. What a producer cannot serialize is refused
before it is sent. What a consumer cannot is handled as a value that its codec cannot decode: `on_undecodable` says how.
Pure, safe for threads as far as callables are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
import pyarrow as pa

from headrace.client.message import Message
from headrace.client.read.decode import OnUndecodable
from headrace.core.errors import InvalidInput, InvalidMessage, Undecodable

SerializerName = Literal["text", "json", "msgspec", "pydantic"]
Serializer: TypeAlias = SerializerName | Callable[[Any], bytes]
Deserializer: TypeAlias = SerializerName | Callable[[bytes], Any]

_TYPED: Final = ("msgspec", "pydantic")


def serialize_with(field: str, given: Serializer | None) -> Callable[[Any], bytes] | None:
    """The function that makes bytes of a field (`value` or `key`), or none; `given` is checked."""
    if given is None:
        return None
    if callable(given):
        return lambda value: _as_bytes(field, given(value))
    encode = _encoder(field, given)

    def encoded(value: Any) -> bytes:
        try:
            return encode(value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            rule = f"the serializer {given!r} cannot take it: {error}"
            raise InvalidMessage(field, f"a {type(value).__name__}", rule, 0) from None

    return encoded


def _encoder(field: str, name: str) -> Callable[[Any], bytes]:
    if name == "text":
        return str.encode
    if name in ("json", "msgspec"):
        return msgspec.json.encode
    if name == "pydantic":
        _import_pydantic(field)
        from pydantic_core import to_json

        return to_json
    raise _unknown(field, name)


def _as_bytes(field: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidMessage(field, f"a {type(value).__name__}", "the serializer must return bytes", 0)
    return value


def serialized_column(column: pa.Array, serialize: Callable[[Any], bytes]) -> pa.Array:
    """A column of a batch as bytes; one that holds bytes already stays as it is, and nulls stay nulls."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    if is_plain:
        return column
    rows = [None if row is None else serialize(row) for row in column.to_pylist()]
    return pa.array(rows, pa.binary())


def deserialize_with(field: str, given: Deserializer | None, kind: object = None) -> Callable[[bytes], Any] | None:
    """The function that makes an object of a field's bytes, or none; `kind` is the type that it should have."""
    if kind is not None and given not in _TYPED:
        rule = f"only the serializers {' and '.join(_TYPED)} take a type"
        raise InvalidInput(f"{field}_type", repr(kind)[:100], rule)
    if given is None or callable(given):
        return given
    if given in _TYPED and kind is None:
        raise InvalidInput(f"{field}_type", "missing", f"the serializer {given!r} needs the type to read, as in Order")
    if given == "text":
        return bytes.decode
    if given == "json":
        return msgspec.json.decode
    if given == "msgspec":
        return msgspec.json.Decoder(cast(Any, kind)).decode
    if given == "pydantic":
        adapter = _import_pydantic(field).TypeAdapter(kind)
        return adapter.validate_json  # type: ignore[no-any-return]
    raise _unknown(field, given)


def _import_pydantic(field: str) -> Any:
    try:
        import pydantic
    except ImportError:
        raise InvalidInput(_parameter(field), "'pydantic'", "install pydantic to use it") from None
    return pydantic


def _parameter(field: str) -> str:
    return "serializer" if field == "value" else f"{field}_serializer"


def _unknown(field: str, given: object) -> InvalidInput:
    known = ", ".join(map(repr, get_args(SerializerName)))
    return InvalidInput(_parameter(field), repr(given)[:100], f"it must be one of {known}, or a callable")


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Gives messages with objects in place of bytes; none for a message that is skipped."""

    topic: str
    value: Callable[[bytes], Any] | None
    key: Callable[[bytes], Any] | None
    name: str
    on_undecodable: OnUndecodable

    def read(self, message: Message) -> Message | None:
        """The message with its value and key as objects."""
        if message.codec is not None:
            # Its value is as it was stored: it could not be decoded, or should not be.
            return message
        try:
            value = message.value if self.value is None or message.value is None else self.value(message.value)
            key = message.key if self.key is None or message.key is None else self.key(message.key)
        except Exception as error:
            # Whatever a callable raises: the message is at fault, and must not stop a reader that asked to continue.
            if self.on_undecodable == "raise":
                place = (self.topic, message.partition, message.offset)
                raise Undecodable(*place, self.name, str(error)[:200]) from error
            return message if self.on_undecodable == "raw" else None
        return message._replace(value=value, key=key)


def message_reader(
    topic: str,
    serializer: Deserializer | None,
    key_serializer: Deserializer | None,
    value_type: object,
    key_type: object,
    on_undecodable: OnUndecodable,
) -> MessageReader | None:
    """The reader of a consumer, or none if it gives bytes."""
    value = deserialize_with("value", serializer, value_type)
    key = deserialize_with("key", key_serializer, key_type)
    if value is None and key is None:
        return None
    name = next(given if isinstance(given, str) else "callable" for given in (serializer, key_serializer) if given)
    return MessageReader(topic, value, key, name, on_undecodable)
