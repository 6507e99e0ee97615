"""Inputs of a fuzz campaign: valid requests of every protocol, made from the tables, and spoiled at random.

An input is made from its seed and its number alone, so that any of them can be made again:

    inputs = KafkaInputs(address)
    inputs.made(Random("7 kafka 123456"))
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import msgspec

from headrace.wire import native, tickets
from headrace.wire import operations as wire
from tests.edge.mutations import mutated
from tests.edge.raw_flight import command_field, flight_data, protobuf_field
from tests.edge.streams import seeds
from tests.hostile.flight_requests import KINDS, READING
from tests.hostile.http_requests import ROUTES, Route
from tests.hostile.json_requests import JsonBody, Repeated
from tests.hostile.kafka_requests import every_shape, prepared
from tests.hostile.target import NARROW, Address
from tests.protocols.kafka.raw import login

GROUP: Final = "scratch-fuzz"
COUNTS: Final = (0, 2, 7, 300)
# How many of a hundred inputs are left as they are, have a wrong length, or are several at once.
INTACT, FALSE_LENGTH, PIPELINED = 10, 15, 10
# How many of a hundred calls over Flight are of a method that carries no operation and no ticket; what they send.
OTHER: Final = 5
SERVICE: Final = "/arrow.flight.protocol.FlightService/"
OTHERS: Final = {
    "GetFlightInfo": b"\x08\x01" + protobuf_field(3, NARROW.encode()),
    "ListFlights": protobuf_field(1, b"scratch-*"),
    "ListActions": b"\x00",
    "DoExchange": protobuf_field(1000, b"x"),
    "Handshake": protobuf_field(2, b"x"),
}
SIZE: Final = struct.Struct(">i")
# Numbers at the ends of their range, as Kafka writes them.
BOUNDS: Final = [
    struct.pack(form, number)
    for form, bits in ((">h", 16), (">i", 32), (">q", 64))
    for number in (0, -1, 1, (1 << bits - 1) - 1, -(1 << bits - 1))
]
FALSE_LENGTHS: Final = (0, 1, 2, 100, 64 << 10, 64 << 20, (64 << 20) + 1, (1 << 31) - 1, -1, -(1 << 31))


def spoiled(pool: Sequence[bytes], random: Random) -> bytes:
    """One of the pool, mostly changed."""
    if random.randrange(100) < INTACT:
        return random.choice(pool)
    body = bytearray(mutated(pool, random))
    if random.random() < 0.3 and len(body) > 8:
        bound = random.choice(BOUNDS)
        place = random.randrange(len(body) - len(bound) + 1)
        body[place : place + len(bound)] = bound
    return bytes(body)


class KafkaInputs:
    """Requests after a login, or without one."""

    def __init__(self, address: Address) -> None:
        # Not of a topic with 10,000 partitions and its group: what such a request costs is measured elsewhere.
        requests = prepared(address, GROUP, NARROW, GROUP)
        self._login = b"".join(login(address.tokens["attacker"]))
        whole = []
        for shape in every_shape():
            whole.append(requests.encoded(shape))
            for array in shape.arrays:
                whole += [requests.repeated(shape, array, count, bool(count % 2)) for count in COUNTS]
        self._pool = [request[SIZE.size :] for request in whole]

    def made(self, random: Random) -> bytes:
        """What is sent over one connection."""
        count = random.randrange(2, 6) if random.randrange(100) < PIPELINED else 1
        requests = b"".join(self._framed(spoiled(self._pool, random), random) for _ in range(count))
        return (self._login if random.random() < 0.95 else b"") + requests

    def _framed(self, body: bytes, random: Random) -> bytes:
        is_false = random.randrange(100) < FALSE_LENGTH
        return SIZE.pack(random.choice(FALSE_LENGTHS) if is_false else len(body)) + body


class HttpInputs:
    """Requests with a token, or without one."""

    def __init__(self, address: Address) -> None:
        self._token = address.tokens["attacker"].encode()
        self._routes = [replace(route, topic=NARROW) for route in ROUTES]
        self._bodies = {route: bodies(route.json) for route in self._routes if route.json is not None}

    def made(self, random: Random) -> bytes:
        """What is sent over one connection."""
        count = random.randrange(2, 6) if random.randrange(100) < PIPELINED else 1
        return b"".join(self._request(random.choice(self._routes), random) for _ in range(count))

    def _request(self, route: Route, random: Random) -> bytes:
        body = spoiled(self._bodies[route], random) if route in self._bodies else b""
        length = random.choice(FALSE_LENGTHS) if random.randrange(100) < FALSE_LENGTH else len(body)
        query = {name: random.choice(("0", "-1", "x", "0:1,2:3", str(1 << 63))) for name in route.queries[:3]}
        head = f"{route.method} {route.target(**query)} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n".encode()
        head += b"content-type: application/json\r\n" if route in self._bodies else b""
        head += b"authorization: Bearer %s\r\n" % self._token if random.random() < 0.95 else b""
        head += b"content-length: %d\r\n" % length if body or random.random() < 0.1 else b""
        return (spoiled([head], random) if random.random() < 0.3 else head) + b"\r\n" + body


class NativeInputs:
    """An upload or a follow after a greeting, or without one: each of its frames may be spoiled."""

    def __init__(self, address: Address) -> None:
        self._hello = native.frame(native.HELLO, msgspec.json.encode(native.Hello(1, address.tokens["attacker"])))
        records = [native.Record(b"v"), native.Record(None, b"k", 1, 1_000, 7, {"a": b"1", "n": None})]
        self._tickets = [
            native.UPLOAD + tickets.encode(tickets.Publish(NARROW, *more))
            for more in ((), ("w", 3), (None, 0, "p", "g", 1))
        ]
        follows = [tickets.Follow(NARROW, {0: 0}, mixed=True, growing=True), tickets.Follow(NARROW, {0: 0}, 1, 1)]
        self._tickets += [
            native.FOLLOW + native.CREDIT.pack(credit) + tickets.encode(follow)
            for credit, follow in zip((1 << 20, 1), follows, strict=True)
        ]
        self._pool = [native.MESSAGE + native.encode_record(record) for record in records]
        self._pool += [native.MORE + native.CREDIT.pack(count) for count in (1, 1 << 40)]
        self._pool += [native.BATCH + stream for stream in seeds()]
        self._pool += [native.END, native.HELLO, *self._tickets]

    def made(self, random: Random) -> bytes:
        """What is sent over one connection."""
        hello = self._hello if random.random() < 0.95 else native.SIZE.pack(200) + spoiled([self._hello[4:]], random)
        ticket = random.choice(self._tickets) if random.random() < 0.8 else spoiled(self._tickets, random)
        frames = [ticket, *(spoiled(self._pool, random) for _ in range(random.randrange(1, 6)))]
        return (hello if random.random() < 0.95 else b"") + b"".join(self._framed(each, random) for each in frames)

    def _framed(self, body: bytes, random: Random) -> bytes:
        is_false = random.randrange(100) < FALSE_LENGTH
        return native.SIZE.pack(random.choice(FALSE_LENGTHS) if is_false else len(body)) + body


@dataclass(frozen=True)
class FlightCall:
    """A call: the full name of its method, and the messages that are sent, which may be no Protobuf."""

    method: str
    messages: tuple[bytes, ...]
    has_token: bool


class FlightInputs:
    """Calls with a token, or without one."""

    def __init__(self, address: Address) -> None:
        self._bodies = {name: bodies(JsonBody(kind, name, NARROW)) for name, kind in KINDS.items()}
        self._names = sorted(self._bodies)
        publish = tickets.encode(tickets.Publish(NARROW))
        self._uploads = [tuple(flight_data(publish, stream)) for stream in seeds()]

    def made(self, random: Random) -> FlightCall:
        """One call."""
        has_token = random.random() < 0.95
        if random.randrange(100) < OTHER:
            method = random.choice(sorted(OTHERS))
            return FlightCall(SERVICE + method, (spoiled([OTHERS[method]], random),), has_token)
        name = random.choice(self._names)
        body = spoiled(self._bodies[name], random)
        if name in wire.OPERATIONS:
            message = protobuf_field(1, name.encode()) + protobuf_field(2, body)
            return FlightCall(f"{SERVICE}DoAction", (self._message(message, random),), has_token)
        if name in READING:
            return FlightCall(f"{SERVICE}DoGet", (self._message(protobuf_field(1, body), random),), has_token)
        first, *rest = random.choice(self._uploads)
        if random.random() < 0.5:
            # Of a field that is given twice the last one counts.
            first += command_field(body)
        return FlightCall(f"{SERVICE}DoPut", tuple(self._message(each, random) for each in (first, *rest)), has_token)

    def _message(self, message: bytes, random: Random) -> bytes:
        return spoiled([message], random) if random.random() < 0.2 else message


def bodies(body: JsonBody) -> list[bytes]:
    """JSON of an operation, as it is usual and with containers of a few lengths."""
    repeated = [body.encoded(path, Repeated(count, bool(count % 2))) for path in body.containers for count in COUNTS]
    return [body.encoded(), *repeated]
