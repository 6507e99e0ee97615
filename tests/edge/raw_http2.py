"""HTTP/2 spoken byte by byte: gRPC's own clients send whole messages, and say who they are."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

PATIENCE_SECONDS: Final = 60.0
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
ACKNOWLEDGED, END_STREAM, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
FRAME_BYTES: Final = 16_384
_HEAD: Final = struct.Struct(">BHBBI")


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _header(name: bytes, value: bytes) -> bytes:
    """One that is in no table, and short."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class RawCall:
    """A connection with one call of a method of gRPC; before it one of another method, if given, with no arguments."""

    def __init__(
        self,
        port: int,
        method: str,
        *headers: tuple[bytes, bytes],
        first: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), patience_seconds)
        self._window = self._initial = self._connection_window = 65_535
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, b""))
        self._stream = 1
        if first is not None:
            self._open(first, headers)
            self._socket.sendall(_frame(DATA, END_STREAM, self._stream, bytes(5)))
            self._stream += 2
        self._open(method, headers)

    def _open(self, method: str, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        named = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", method.encode()), (b":authority", b"raw"))
        more = ((b"te", b"trailers"), (b"content-type", b"application/grpc"), *headers)
        block = b"".join(_header(*each) for each in named + more)
        self._socket.sendall(_frame(HEADERS, END_HEADERS, self._stream, block))

    def send(self, size: int) -> int:
        """Send a part of a message that is one byte longer, as fast as it is taken, if it is; how much was."""
        sent, data = 0, b"\x00" + struct.pack(">I", size + 1) + bytes(FRAME_BYTES)
        with suppress(ConnectionError, EOFError, TimeoutError):
            while sent < size:
                some = min(self._connection_window, self._window, FRAME_BYTES, size - sent)
                if some <= 0:
                    self._receive()
                    continue
                self._socket.sendall(_frame(DATA, 0, self._stream, data[:some]))
                data = bytes(FRAME_BYTES)
                self._connection_window -= some
                self._window -= some
                sent += some
        return sent

    def _receive(self) -> None:
        high, low, kind, flags, stream = _HEAD.unpack(self._exactly(_HEAD.size))
        body = self._exactly(high << 16 | low)
        if kind == WINDOW_UPDATE and stream == self._stream:
            self._window += int.from_bytes(body)
        elif kind == WINDOW_UPDATE and not stream:
            self._connection_window += int.from_bytes(body)
        elif kind == PING and not flags & ACKNOWLEDGED:
            self._socket.sendall(_frame(PING, ACKNOWLEDGED, 0, body))
        elif kind == SETTINGS and not flags & ACKNOWLEDGED:
            changes = dict(struct.iter_unpack(">HI", body))
            if INITIAL_WINDOW in changes:
                self._window += changes[INITIAL_WINDOW] - self._initial
                self._initial = changes[INITIAL_WINDOW]
            self._socket.sendall(_frame(SETTINGS, ACKNOWLEDGED, 0, b""))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
