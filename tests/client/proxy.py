"""A small TCP proxy that can hold answers back, and cut all its connections, at once or after so many bytes."""

from __future__ import annotations

import contextlib
import socket
import threading

# Less than what a frame of the native wire has before its content.
_PART_BYTES = 2


class Proxy:
    """Passes bytes between whoever connects and one port, until it is told to cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._bytes_left: int | None = None
        self.cuts = 0
        # Whether what the server sends gets through.
        self.answers = threading.Event()
        self.answers.set()
        # Whether it gets through whole: otherwise its first bytes do.
        self.rests = threading.Event()
        self.rests.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections now; new ones are let through."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
            self._bytes_left = None
            self.cuts += 1
        for open_socket in sockets:
            _end(open_socket)

    def cut_after(self, count: int) -> None:
        """Break all connections once so many more bytes came from the client."""
        with self._lock:
            self._bytes_left = count

    def close(self) -> None:
        self.answers.set()
        self.rests.set()
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                with contextlib.suppress(OSError, UnboundLocalError):
                    near.close()
                continue
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [near, far]
            threading.Thread(target=self._pass_on, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(65536):
                if counts and self._is_due(len(data)):
                    sink.sendall(data[: len(data) // 2])
                    self.cut()
                    return
                if not counts:
                    self.answers.wait()
                    if not self.rests.is_set():
                        sink.sendall(data[:_PART_BYTES])
                        data = data[_PART_BYTES:]
                        self.rests.wait()
                sink.sendall(data)
        except OSError:
            pass
        _end(source)
        _end(sink)

    def _is_due(self, count: int) -> bool:
        with self._lock:
            if self._bytes_left is None:
                return False
            self._bytes_left -= count
            return self._bytes_left <= 0


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
