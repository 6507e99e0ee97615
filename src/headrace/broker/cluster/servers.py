"""The servers of a store: this one, and in a shared store the others.

    broker.servers.advertise({"http": "http://10.0.0.5:7070"})      at start, once the ports are known
    broker.servers.list()                                           all that run

A broker without addresses, such as one inside a test, is no server and is not listed. In a shared store each server
has a row that it renews every few seconds (`storage.servers`); elsewhere there is one server, which knows itself and
stores nothing. A heartbeat that fails is logged and repeated; until then the others may miss this server.

A broker without addresses has a row, too, once members are attached to it: they are its own as long as the row is
renewed in time (`check_seen`). After that others give their partitions away, so it refuses to hear them. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from headrace.broker.clock import Clock
from headrace.core.errors import HeadraceError
from headrace.core.limits import MICROSECONDS, SERVER_EXPIRY_SECONDS
from headrace.core.reports.descriptions import ServerDescription
from headrace.storage.interface import Store

logger = logging.getLogger(__name__)

_VERSION: Final = version("headrace")


class Servers:
    """The servers of a store, seen by one of them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._stored = None if store.signals is None else store.catalog.servers
        self._clock = clock
        self._lock = threading.Lock()
        self.id = uuid.uuid4().hex[:12]
        self._version = _VERSION
        self._started_us = clock.now_us()
        self._addresses: dict[str, str] = {}
        # Held while the row is renewed because somebody needs it; and when it was, by the monotonic clock.
        self._renewing = threading.Lock()
        self._seen_us: int | None = None

    @property
    def attached_as(self) -> str:
        """The name of this server by which members are attached to it; empty on a store of one server."""
        return self.id if self.is_shared else ""

    @property
    def is_shared(self) -> bool:
        """Whether other servers may use the same store."""
        return self._stored is not None

    def advertise(self, addresses: Mapping[str, str | None]) -> None:
        """Have this server listed with these URLs by protocol; None withdraws one."""
        with self._lock:
            known = {**self._addresses, **addresses}
            self._addresses = {protocol: url for protocol, url in known.items() if url is not None}
        try:
            self.beat()
        except HeadraceError as error:
            logger.warning("cannot add this server to the list of servers, will retry: %s", error)

    def address(self, protocol: str) -> str | None:
        """The URL of this server for a protocol."""
        return self._addresses.get(protocol)

    def beat(self) -> None:
        """Renew this server's row, if it has one."""
        if self._addresses or self._seen_us is not None:
            self._renew()

    def _renew(self) -> None:
        if self._stored is not None:
            asked_us = self._clock.monotonic_us()
            self._stored.put(self.id, self._version, self._addresses)
            self._seen_us = asked_us

    def check_seen(self) -> None:
        """Raise if the other servers may take this one for gone: its row was not renewed in time, nor can be now."""
        if self._stored is not None and not self._is_seen():
            with self._renewing:
                if not self._is_seen():
                    self._renew()

    def _is_seen(self) -> bool:
        """Whether the row was renewed in time."""
        latest_us = self._clock.monotonic_us() - int(SERVER_EXPIRY_SECONDS * MICROSECONDS)
        return self._seen_us is not None and self._seen_us > latest_us

    def running(self) -> set[str]:
        """The ids of the servers to which members may be attached."""
        return set() if self._stored is None else self._stored.running()

    def list(self) -> list[ServerDescription]:
        """All servers that run, in the order they started."""
        if self._stored is not None:
            return self._stored.all()
        addresses, now_us = self._addresses, self._clock.now_us()
        own = ServerDescription(self.id, self._version, addresses, self._started_us, now_us)
        return [own] if addresses else []

    def leave(self) -> None:
        """Be listed no more; if the store does not answer, the row expires by itself."""
        is_listed = bool(self._addresses) or self._seen_us is not None
        self._addresses, self._seen_us = {}, None
        if self._stored is not None and is_listed:
            try:
                self._stored.remove(self.id)
            except HeadraceError as error:
                logger.info("cannot remove this server from the list of servers, it expires by itself: %s", error)
