"""A socket of the native wire with TLS, and what Flight is given of certificates as a context of Python's own TLS.

OpenSSL allows no two calls for one connection at once, so each of them is made under a lock and never waits there: what
waits is a poll of the socket.
"""

from __future__ import annotations

import os
import select
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing

from headrace.client.transport.native_socket import READ_BYTES, NativeSocket


class TlsSocket(NativeSocket):
    """One connection."""

    def __init__(self, host: str, port: int, patience_seconds: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, patience_seconds)
        # Reentrant: a signal handler may use it in the middle of a method, though never of a call of OpenSSL.
        self._lock = threading.RLock()
        try:
            self._tls = context.wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise
        self._socket = self._tls
        self.set_patience(patience_seconds)

    def set_patience(self, seconds: float | None) -> None:
        """How long to wait for the peer from now on."""
        self._patience_ms = None if seconds is None else int(seconds * 1_000)
        self._socket.settimeout(0.0)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        view = memoryview(data)
        while view:
            try:
                with self._lock:
                    sent = self._tls.send(view)
                view = view[sent:]
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)

    def has_arrived(self, timeout_seconds: float) -> bool:
        """Whether something arrives in time, be it the end or a part of TLS itself."""
        with self._lock:
            is_decrypted = self._tls.pending() > 0
        return is_decrypted or super().has_arrived(timeout_seconds)

    def close(self) -> None:
        """Close it."""
        with self._lock:
            super().close()

    def receive_some(self) -> bytes:
        """What arrives next; nothing at the end."""
        while True:
            try:
                return self._receive()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)

    def receive_now(self) -> bytes | None:
        """What has arrived; nothing at the end, None if nothing has."""
        try:
            return self._receive()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def _receive(self) -> bytes:
        with self._lock:
            return self._tls.recv(READ_BYTES)

    def _wait(self, event: int) -> None:
        if not self.is_ready(event, self._patience_ms):
            raise TimeoutError("it does not answer")


def client_context(given: Mapping[str, bytes]) -> ssl.SSLContext:
    """A context for clients from the PEM of Flight's options; OSError or ValueError for what it does not take.

    Python reads certificates of clients from files only: they are given as one that is in memory and nowhere else.
    """
    roots = given.get("tls_root_certs")
    context = ssl.create_default_context(cadata=None if roots is None else roots.decode("ascii"))
    if "cert_chain" in given:
        with closing(_Memory(given["cert_chain"] + b"\n" + given["private_key"])) as pem:
            context.load_cert_chain(pem.path)
    return context


class _Memory:
    """Bytes that can be read as a file, by this process."""

    def __init__(self, data: bytes) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no files in memory")
        self._descriptor = os.memfd_create("headrace-certificate", os.MFD_CLOEXEC)
        self.path = f"/proc/self/fd/{self._descriptor}"
        try:
            os.write(self._descriptor, data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._descriptor)
