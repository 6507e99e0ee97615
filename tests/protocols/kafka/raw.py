"""A client that says what it is told to, bytes and all."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, Self

from headrace.protocols.kafka.messages.reader import FieldReader
from headrace.protocols.kafka.messages.schema import request_schema, response_schema
from headrace.protocols.kafka.messages.writer import Writer

PATIENCE_SECONDS = 60.0
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def framed(
    api_key: int, version: int, fields: Mapping[str, Any], number: int = 0, writer: Writer | None = None
) -> bytes:
    """The bytes of a request, with their length before them."""
    schema = request_schema(api_key, version)
    writer = writer or Writer()
    writer.parts.append(struct.pack(">hhih3s", api_key, version, number, 3, b"raw"))
    if schema.has_flexible_header:
        writer.unsigned_varint(0)
    writer.struct(schema.struct, fields)
    body = writer.join()
    return struct.pack(">i", len(body)) + body


def login(token: str) -> list[bytes]:
    """The requests that come before any other on a server with tokens, from number 0 on."""
    credentials = b"\x00user\x00" + token.encode()
    return [
        framed(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        framed(SASL_AUTHENTICATE, 2, {"auth_bytes": credentials}, 1),
    ]


class RawClient:
    """One connection."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", token: str | None = None
    ) -> None:
        connected = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._socket = connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
        self._asked: list[tuple[int, int]] = []
        if token is not None:
            with ExitStack() as failed:
                failed.callback(self.close)
                self._log_in(token)
                failed.pop_all()

    def _log_in(self, token: str) -> None:
        self._asked = [(SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 2)]
        self.send(b"".join(login(token)))
        assert [self.answer(number).error_code for number in range(2)] == [0, 0]

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, api_key: int, version: int, **fields: Any) -> None:
        """Send a request without waiting for its answer."""
        self.send(self.encoded(api_key, version, **fields))

    def encoded(self, api_key: int, version: int, **fields: Any) -> bytes:
        """The bytes of the next request."""
        return framed(api_key, version, fields, self.expect(api_key, version))

    def expect(self, api_key: int, version: int) -> int:
        """The number of a request that is sent as bytes."""
        self._asked.append((api_key, version))
        return len(self._asked) - 1

    def frame(self) -> bytes:
        """The bytes of the next answer, without their length."""
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def answer(self, correlation_id: int = -1, version: int | None = None) -> SimpleNamespace:
        """The next answer, which must be to the request of this number."""
        reader = FieldReader(memoryview(self.frame()))
        number = reader.number("int32")
        assert correlation_id in (-1, number)
        api_key, asked = self._asked[number]
        schema = response_schema(api_key, asked if version is None else version)
        if schema.has_flexible_header:
            reader.skip_tags()
        answer = reader.struct(schema.struct)
        assert reader.left == 0
        return answer

    def call(self, api_key: int, version: int, **fields: Any) -> SimpleNamespace:
        self.request(api_key, version, **fields)
        return self.answer(len(self._asked) - 1)

    def receive(self, size: int) -> bytes:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            count = self._socket.recv_into(left)
            if not count:
                raise EOFError
            left = left[count:]
        return bytes(data)

    def answer_size(self) -> int:
        """The length of the next answer, which is received and not kept."""
        (size,) = struct.unpack(">i", self.receive(4))
        place, left = memoryview(bytearray(1 << 20)), size
        while left:
            count = self._socket.recv_into(place[:left])
            if not count:
                raise EOFError
            left -= count
        return int(size)

    def patience(self, seconds: float) -> None:
        """How long to wait for what is sent or received."""
        self._socket.settimeout(seconds)

    def receive_little(self) -> None:
        """Let the kernel keep almost nothing of what arrives."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def finish(self) -> None:
        """Say that nothing more comes, and wait until the server is done too."""
        with suppress(ConnectionError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16):
                pass

    def is_closed(self) -> bool:
        """Whether the server closes the connection, without an answer."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
