"""A socket of the native wire: frames in and out. `tls_socket` has the same with TLS.

One thread may send while another receives, and any may `cancel`, which ends both. A peer that acknowledges nothing is
given up by the kernel.
"""

from __future__ import annotations

import math
import select
import socket
from contextlib import suppress
from typing import Final

from headrace.wire.native import SIZE

READ_BYTES: Final = 64 << 10
_KEEPALIVE_SECONDS: Final = 60
_UNACKNOWLEDGED_MS: Final = 20_000
# A server that announces more is none of ours.
_FRAME_BYTES_MAX: Final = 1 << 30


class NativeSocket:
    """One connection."""

    def __init__(self, host: str, port: int, patience_seconds: float) -> None:
        """Connect; every wait for the peer ends after the patience with an OSError, until it is changed."""
        self._buffer = bytearray()
        self._socket = socket.create_connection((host, port), patience_seconds)
        _keep_alive(self._socket)

    def set_patience(self, seconds: float | None) -> None:
        """How long to wait for the peer from now on."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(data)

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame: what it is, and its content. EOFError if the peer has closed."""
        self._fill(SIZE.size)
        (size,) = SIZE.unpack_from(self._buffer)
        if not 1 <= size <= _FRAME_BYTES_MAX:
            raise EOFError(f"it announced a frame of {size} bytes")
        end = SIZE.size + int(size)
        self._fill(end)
        with memoryview(self._buffer) as view:
            kind, content = bytes(view[SIZE.size : SIZE.size + 1]), bytes(view[SIZE.size + 1 : end])
        del self._buffer[:end]
        return kind, content

    def has_frame(self) -> bool:
        """Whether `receive` does not wait: a whole frame has arrived, or the end; takes what has arrived of it."""
        while not self._is_whole():
            data = self.receive_now()
            if not data:
                # At the end `receive` finds the same again.
                return data is not None
            self._buffer += data
        return True

    def is_silent(self) -> bool:
        """Whether nothing has arrived that nobody waits for, such as the end."""
        return not self.has_arrived(0.0)

    def has_arrived(self, timeout_seconds: float) -> bool:
        """Whether something arrives in time, be it the end."""
        return bool(self._buffer) or self.is_ready(select.POLLIN, math.ceil(timeout_seconds * 1_000))

    def cancel(self) -> None:
        """End what other threads do with it."""
        with suppress(OSError):
            # Of the TCP connection: TLS has a say of its own.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; no other thread uses it any more."""
        self.cancel()
        self._socket.close()

    def __del__(self) -> None:
        # Not cancelled: a forked process has the same connection.
        connected = getattr(self, "_socket", None)
        if connected is not None:
            connected.close()

    def _fill(self, count: int) -> None:
        while len(self._buffer) < count:
            data = self.receive_some()
            if not data:
                raise EOFError("the connection was closed")
            self._buffer += data

    def _is_whole(self) -> bool:
        if len(self._buffer) < SIZE.size:
            return False
        (size,) = SIZE.unpack_from(self._buffer)
        # What is no frame is not waited for.
        return not 1 <= size <= _FRAME_BYTES_MAX or len(self._buffer) >= SIZE.size + int(size)

    def receive_now(self) -> bytes | None:
        """What has arrived; nothing at the end, None if nothing has. Without a patience: with one it would wait."""
        try:
            return self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def receive_some(self) -> bytes:
        """What arrives next; nothing at the end."""
        return self._socket.recv(READ_BYTES)

    def is_ready(self, event: int, milliseconds: int | None) -> bool:
        """Whether an event comes in time; if another thread has closed it, what is done next says so."""
        poll = select.poll()
        try:
            poll.register(self._socket, event)
        except ValueError:
            return True
        return bool(poll.poll(milliseconds))


def _keep_alive(connected: socket.socket) -> None:
    """Send at once, and notice a peer that vanished."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _KEEPALIVE_SECONDS), ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS)):
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
