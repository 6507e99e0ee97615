"""The native wire: frames over one TCP connection, for clients of this library.

    a frame      its length in four bytes (big-endian), one byte that says what it is, its content
    greeting     HELLO ► WELCOME, or REFUSED and the end; nothing else is answered before
    publishing   UPLOAD (a `Publish` ticket), then MESSAGE and BATCH frames, END ► RECEIPT, RECEIPTS or REFUSED for each
                 of them in their order, DONE
    following    FOLLOW (how many bytes may be sent, a `Follow` ticket), then MORE (so many bytes more) ► ROWS, until
                 the client leaves; or BEHIND: there is so much that it should be read over Flight; or REFUSED

A connection does one thing at a time; one that follows does nothing else. MESSAGE is one message in a compact form,
BATCH an Arrow IPC stream, ROWS one batch of `READ_SCHEMA` without it. What cannot be read as a frame ends the
connection: both sides no longer agree on where a frame begins.

Pure. Bytes of a caller that make no sense raise InvalidInput, and never ask for memory that was not sent.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import ATTRIBUTES_PER_MESSAGE_MAX

VERSION: Final = 1
SIZE: Final = struct.Struct(">i")
# What a frame has before its content: its length, and what it is.
HEAD_BYTES: Final = SIZE.size + 1
# What a client may send before it is known.
HELLO_BYTES_MAX: Final = 16 << 10

# From the client.
HELLO, UPLOAD, MESSAGE, BATCH, END, FOLLOW, MORE = b"h", b"u", b"m", b"b", b".", b"f", b"+"
# From the server.
WELCOME, RECEIPT, RECEIPTS, REFUSED, DONE, ROWS, BEHIND = b"w", b"r", b"R", b"e", b"d", b"B", b"l"

# How many bytes of ROWS a client takes, heads included, at first and from then on; more than the most counts as that.
CREDIT: Final = struct.Struct(">q")
CREDIT_BYTES_MAX: Final = 64 << 20
# What a frame that says so has.
MORE_BYTES: Final = 1 + CREDIT.size
# The receipt of one message that was written: its partition and its offset.
WRITTEN: Final = struct.Struct(">iq")

_HAS_VALUE, _HAS_KEY, _HAS_PARTITION, _HAS_TIME, _HAS_SEQNO, _HAS_ATTRIBUTES = (1 << bit for bit in range(6))
_KNOWN: Final = (1 << 6) - 1
_LENGTH: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
_PARTITION: Final = struct.Struct(">i")
_NUMBER: Final = struct.Struct(">q")
_NULL: Final = (1 << 32) - 1


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who connects: `identity` is what a client says of itself, as in the header of Flight's calls."""

    version: int
    token: str | None = None
    identity: str = ""


class Welcome(msgspec.Struct, frozen=True):
    """Which server answers, by the id of its process: a port may lead to another one than the client was told of."""

    server: str


class Offer(msgspec.Struct, frozen=True):
    """Where a Flight server has the native wire: a port of the same host, and the id of the server behind it."""

    port: int
    server: str


# The name among Flight's actions under which the offer is told.
NATIVE_OFFER: Final = "native_wire"

_OFFER: Final = msgspec.json.Decoder(Offer)
_HELLO: Final = msgspec.json.Decoder(Hello)
_WELCOME: Final = msgspec.json.Decoder(Welcome)


class Record(NamedTuple):
    """One message, beside what its stream says of all of them."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    created_us: int | None = None
    seqno: int | None = None
    attributes: dict[str, bytes | None] | None = None


class WrittenAt(NamedTuple):
    """The receipt of one message that was written."""

    partition: int
    offset: int


def frame(kind: bytes, *content: bytes) -> bytes:
    """A frame as bytes."""
    return b"".join((SIZE.pack(1 + sum(map(len, content))), kind, *content))


def encode_offer(offer: Offer) -> str:
    """An offer as text."""
    return msgspec.json.encode(offer).decode()


def decode_offer(text: str) -> Offer | None:
    """An offer; none if this is something else."""
    try:
        offer: Offer = _OFFER.decode(text)
    except msgspec.DecodeError:
        return None
    return offer


def decode_hello(content: bytes) -> Hello:
    """What a client begins with."""
    hello: Hello = _HELLO.decode(content)
    return hello


def decode_welcome(content: bytes) -> Welcome:
    """What a server answers."""
    welcome: Welcome = _WELCOME.decode(content)
    return welcome


def decode_credit(content: bytes) -> int:
    """How many bytes more a client takes."""
    count = int(CREDIT.unpack_from(content)[0]) if len(content) >= CREDIT.size else 0
    if count < 1:
        raise InvalidInput("credit", str(count), f"it must be 1 or more, in {CREDIT.size} bytes")
    return min(count, CREDIT_BYTES_MAX)


def encode_record(record: Record) -> bytes:
    """One message as the content of a frame."""
    value, key, partition, created_us, seqno, attributes = record
    flags, parts = 0, [b""]
    if partition is not None:
        flags |= _HAS_PARTITION
        parts.append(_PARTITION.pack(partition))
    if created_us is not None:
        flags |= _HAS_TIME
        parts.append(_NUMBER.pack(created_us))
    if seqno is not None:
        flags |= _HAS_SEQNO
        parts.append(_NUMBER.pack(seqno))
    if key is not None:
        flags |= _HAS_KEY
        parts += (_LENGTH.pack(len(key)), key)
    if attributes is not None:
        flags |= _HAS_ATTRIBUTES
        parts.append(_SHORT.pack(len(attributes)))
        for name, item in attributes.items():
            encoded = name.encode()
            parts += (_LENGTH.pack(len(encoded)), encoded)
            parts += (_LENGTH.pack(_NULL),) if item is None else (_LENGTH.pack(len(item)), item)
    if value is not None:
        flags |= _HAS_VALUE
        parts.append(value)
    parts[0] = bytes((flags,))
    return b"".join(parts)


def decode_record(content: bytes) -> Record:
    """One message, of which every length is checked."""
    try:
        return _decoded(content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidInput(
            "message", f"{len(content)} bytes", f"it is no message of the native wire: {error}"
        ) from None


def _decoded(content: bytes) -> Record:
    flags, at = content[0], 1
    if flags & ~_KNOWN:
        raise InvalidInput("message", f"flags {flags:#x}", f"known flags are {_KNOWN:#x}")
    partition = created_us = seqno = None
    key: bytes | None = None
    attributes: dict[str, bytes | None] | None = None
    if flags & _HAS_PARTITION:
        (partition,) = _PARTITION.unpack_from(content, at)
        at += _PARTITION.size
    if flags & _HAS_TIME:
        (created_us,) = _NUMBER.unpack_from(content, at)
        at += _NUMBER.size
    if flags & _HAS_SEQNO:
        (seqno,) = _NUMBER.unpack_from(content, at)
        at += _NUMBER.size
    if flags & _HAS_KEY:
        key, at = _bytes(content, at)
    if flags & _HAS_ATTRIBUTES:
        (count,) = _SHORT.unpack_from(content, at)
        at += _SHORT.size
        if count > ATTRIBUTES_PER_MESSAGE_MAX:
            rule = f"a message may have at most {ATTRIBUTES_PER_MESSAGE_MAX}"
            raise InvalidInput("attributes", f"{count} attributes", rule)
        attributes = {}
        for _ in range(count):
            name, at = _bytes(content, at)
            item, at = _bytes(content, at)
            if name is None or name.decode() in attributes:
                raise InvalidInput("attributes", "a name is null or given twice", "each needs a name of its own")
            attributes[name.decode()] = item
    value = content[at:] if flags & _HAS_VALUE else None
    if value is None and at != len(content):
        raise InvalidInput("message", f"{len(content)} bytes", f"it ends after {at}")
    return Record(value, key, partition, created_us, seqno, attributes)


def _bytes(content: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if length == _NULL:
        return None, at
    if at + length > len(content):
        raise InvalidInput("message", f"{len(content)} bytes", f"a part of it claims {length} bytes behind {at}")
    return content[at : at + length], at + length
