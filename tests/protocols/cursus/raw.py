"""A client that says what it is told to, bytes and all."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from typing import Any, Self

from cursus.protocol.decoder import decode_batch
from cursus.protocol.encoder import encode_batch
from cursus.types import Message

PATIENCE_SECONDS = 60.0


def framed(body: bytes) -> bytes:
    """A body with its length before it."""
    return struct.pack(">I", len(body)) + body


def envelope(text: str, name: str = "") -> bytes:
    """A command as clients send it."""
    return framed(struct.pack(">H", len(name)) + name.encode() + text.encode())


def records(
    count: int, first: int = 1, producer: str = "p", epoch: int = 7, key: str = "", size: int = 0
) -> list[Message]:
    """Messages with consecutive numbers, each with its number as payload."""
    return [
        Message(
            offset=0, seq_num=number, payload=f"{number}".ljust(size, "."), producer_id=producer, key=key, epoch=epoch
        )
        for number in range(first, first + count)
    ]


def batch(
    topic: str, messages: list[Message], partition: int = 0, acks: str = "1", is_idempotent: bool = False
) -> bytes:
    """A batch as clients send it, without its length."""
    return encode_batch(topic, partition, acks, is_idempotent, messages)


class RawCursus:
    """One connection."""

    def __init__(self, port: int, receive_bytes: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._socket = socket.socket()
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.connect(("127.0.0.1", port))
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> bytes:
        """The next frame; ConnectionError if there is none any more."""
        return self._exactly(struct.unpack(">I", self._exactly(4))[0])

    def ask(self, text: str) -> str:
        """The answer to a command."""
        self.send(envelope(text))
        return self.frame().decode()

    def publish(self, body: bytes) -> str:
        """The answer to a batch."""
        self.send(framed(body))
        return self.frame().decode()

    def acknowledged(self, body: bytes) -> Any:
        """The answer to a batch that is written."""
        answer = json.loads(self.publish(body))
        assert answer["status"] == "OK", answer
        return answer

    def read(self, text: str) -> list[Message]:
        """The messages that answer a command."""
        self.send(envelope(text))
        return self.messages()

    def messages(self) -> list[Message]:
        """The messages of the next frame."""
        return self.decoded(self.frame())

    def decoded(self, data: bytes) -> list[Message]:
        """The messages of a frame."""
        assert data[:2] == b"\xba\x7c", data
        return decode_batch(data)[0]

    def stream(self, fields: str) -> None:
        """Begin a stream."""
        self.send(envelope(f"STREAM {fields}"))

    def is_closed(self) -> bool:
        """Whether the server ends the connection, without another answer."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def shutdown(self) -> None:
        """Send nothing more."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the server has closed the connection")
            data += part
        return data
