"""A client that says what it is told to, bytes and all."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

from headrace.protocols.kafka.messages.reader import FieldReader
from headrace.protocols.kafka.messages.schema import request_schema, response_schema
from headrace.protocols.kafka.messages.writer import Writer

PATIENCE_SECONDS = 60.0
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class RawClient:
    """One connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        connected = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._socket = connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
        self._asked: list[tuple[int, int]] = []

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, api_key: int, version: int, **fields: Any) -> None:
        """Send a request without waiting for its answer."""
        self.send(self.encoded(api_key, version, **fields))

    def encoded(self, api_key: int, version: int, **fields: Any) -> bytes:
        """The bytes of the next request."""
        schema = request_schema(api_key, version)
        writer = Writer()
        writer.parts.append(struct.pack(">hhih3s", api_key, version, len(self._asked), 3, b"raw"))
        if schema.has_flexible_header:
            writer.unsigned_varint(0)
        writer.struct(schema.struct, fields)
        self._asked.append((api_key, version))
        body = writer.join()
        return struct.pack(">i", len(body)) + body

    def answer(self, correlation_id: int = -1, version: int | None = None) -> SimpleNamespace:
        """The next answer, which must be to the request of this number."""
        (size,) = struct.unpack(">i", self.receive(4))
        reader = FieldReader(memoryview(self.receive(size)))
        number = reader.number("int32")
        assert correlation_id in (-1, number)
        api_key, asked = self._asked[number]
        schema = response_schema(api_key, asked if version is None else version)
        if schema.has_flexible_header:
            reader.skip_tags()
        answer = reader.struct(schema.struct)
        assert reader.left == 0
        return answer

    def sign_in(self, token: str) -> None:
        """By SASL/PLAIN; EOFError if the server closes the connection instead."""
        assert self.call(_SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        assert self.call(_SASL_AUTHENTICATE, 2, auth_bytes=b"\x00user\x00" + token.encode()).error_code == 0

    def call(self, api_key: int, version: int, **fields: Any) -> SimpleNamespace:
        self.request(api_key, version, **fields)
        return self.answer(len(self._asked) - 1)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

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
