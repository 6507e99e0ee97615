"""The port of Flight: one server at a time, replaced when its certificate is renewed.

gRPC servers of pyarrow keep the certificate they were made with, and two of them cannot share a port. So a new one is
made: the old one stops to listen, which takes milliseconds, the new one takes the port, and calls that run on the old
one continue there. Those that have not ended after a grace period, such as followers, are ended as they are when a
server stops: clients come back to the new one by themselves. The files are read once, and a pair that gRPC does not
take is found out on another port first: then nothing changes.

`reload` returns at once, for signal handlers; a thread does the work. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headrace.protocols.flight.server import FlightServer

Certificates = list[tuple[bytes, bytes]]

_TRIAL: Final = "grpc+tls://127.0.0.1:0"
_TRIAL_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.02
# After this many failures it is logged that another process has the port.
_FAILURES_TOLD: Final = 50

logger = logging.getLogger(__name__)


class FlightListener:
    """A Flight server that can be replaced while it runs.

    `load` reads certificates with their keys, `make` creates a server with them at a location.
    """

    def __init__(
        self,
        load: Callable[[], Certificates],
        make: Callable[[str, Certificates], FlightServer],
        location: str,
        grace_seconds: float = 30.0,
    ) -> None:
        self._load = load
        self._make = make
        self._location = location
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._server: FlightServer | None = make(location, load())
        self._retired: list[FlightServer] = []

    def reload(self) -> None:
        """Start to replace the server."""
        threading.Thread(target=self._replace, name="headrace-flight-reload", daemon=True).start()

    def stop(self, timeout_seconds: float) -> bool:
        """End all streams and stop; returns whether all ended in time."""
        self._is_stopping.set()
        with self._lock:
            servers = [*self._retired, *([] if self._server is None else [self._server])]
        deadline = time.monotonic() + timeout_seconds
        for server in servers:
            server.stop(0.0)
        ended = [server.wait_for_calls(max(0.0, deadline - time.monotonic())) for server in servers]
        return all(ended)

    def _replace(self) -> None:
        with self._lock:
            old = self._server
            certificates = self._renewed()
            if self._is_stopping.is_set() or old is None or certificates is None:
                return
            old.retire()
            self._retired.append(old)
            self._server = self._bound(certificates)
        if old.wait_for_calls(self._grace_seconds) or old.stop(self._grace_seconds):
            with self._lock:
                self._retired.remove(old)

    def _renewed(self) -> Certificates | None:
        """What the files hold now, if gRPC takes it."""
        try:
            certificates = self._load()
            self._make(_TRIAL, certificates).stop(_TRIAL_SECONDS)
        except (OSError, pa.ArrowException) as error:
            logger.error("Flight keeps the certificate it has: %s", error)
            return None
        return certificates

    def _bound(self, certificates: Certificates) -> FlightServer | None:
        """A server on the port that the old one releases; None if everything stops."""
        failures = 0
        while not self._is_stopping.is_set():
            try:
                made = self._make(self._location, certificates)
            except (OSError, pa.ArrowException) as error:
                failures += 1
                if failures % _FAILURES_TOLD == 0:
                    logger.error("Flight cannot listen on %s again, trying on: %s", self._location, error)
                self._is_stopping.wait(_AGAIN_SECONDS)
            else:
                logger.info("Flight uses the renewed certificate")
                return made
        return None
