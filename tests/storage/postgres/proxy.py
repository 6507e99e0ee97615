"""A TCP proxy before the database that can cut a connection at a given word, before or after the database has it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Literal


class Proxy:
    """Passes bytes on to one port until it is told to cut. `closing` refuses whoever comes after."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._word: bytes | None = None
        self._when: Literal["before", "after"] = "before"
        self._stays_down = False
        self._farewell = b""
        self._is_down = False
        self.has_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut_at(
        self, word: bytes, when: Literal["before", "after"], stays_down: bool = False, farewell: bytes = b""
    ) -> None:
        """Cut every connection when a client next sends this word: before it is passed on, or once it was answered.

        The answer itself is swallowed; a farewell may come in its place.
        """
        with self._lock:
            self.has_cut.clear()
            self._word, self._when, self._stays_down, self._farewell = word, when, stays_down, farewell

    def cut(self) -> None:
        """Cut every connection now."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
            self._word = None
            self._is_down = self._stays_down
        for open_socket in sockets:
            _end(open_socket)
        self.has_cut.set()

    def come_back(self) -> None:
        """Let clients in again; a cut that is planned stays so."""
        with self._lock:
            self._is_down = False
            self._stays_down &= self._word is not None

    def close(self) -> None:
        _end(self._listener)
        # A connection that it has just let in is cut too.
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_down:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._port))
            with self._lock:
                self._sockets += [near, far]
            for work in (self._send, self._answer):
                thread = threading.Thread(target=work, args=(near, far), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _send(self, near: socket.socket, far: socket.socket) -> None:
        """From the client to the database."""
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                with self._lock:
                    is_due = self._word is not None and self._word in data
                if is_due and self._when == "before":
                    self.cut()
                    return
                if is_due:
                    # Nothing more comes back to the client; the answer is awaited in `_answer`.
                    self._swallow(near)
                far.sendall(data)
        _end(near)
        _end(far)

    def _swallow(self, near: socket.socket) -> None:
        with self._lock:
            self._word = None
            self._swallowed = near

    _swallowed: socket.socket | None = None

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        """From the database to the client."""
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if self._swallowed is near:
                    near.sendall(self._farewell)
                    self.cut()
                    return
                near.sendall(data)
        _end(near)
        _end(far)


def error_message(severity: bytes, code: bytes, text: bytes) -> bytes:
    """An error as the database sends it."""
    fields = b"S%s\0V%s\0C%s\0M%s\0\0" % (severity, severity, code, text)
    return b"E" + struct.pack(">i", len(fields) + 4) + fields


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
