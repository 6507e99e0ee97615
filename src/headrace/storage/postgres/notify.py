"""Notifications between servers by LISTEN and NOTIFY, each on its own thread and connection.

Announcing returns at once. The announcing thread sends what was collected since it last sent, without duplicates, after
the commit and outside of it: NOTIFY inside a transaction locks the whole database until the commit is on the device.
Notifications need not be durable, so sending does not wait for the device. Under load they are sent a hundred times a
second, for any number of commits. If one is lost, because a connection broke or this process died, it only delays: a
listener gets None after each reconnection, which means that anything may have happened, and it polls too.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from headrace.core.limits import STOP_SECONDS
from headrace.storage.postgres.errors import reason_of
from headrace.storage.postgres.pool import Connection, ConnectionPool

CHANNEL: Final = "'headrace_' || md5(current_schema())"
RECONNECT_SECONDS: Final = 0.5
# How often a listener checks that its connection works.
LISTEN_SECONDS: Final = 0.5
# The minimum time between two sendings.
GATHERING_SECONDS: Final = 0.01

logger = logging.getLogger(__name__)


class PostgresSignals:
    """The notifications of one store. Thread-safe; threads are started when they are first needed."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._lock = threading.Condition()
        self._pending: dict[str, None] = {}
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        # Closing one end makes the other readable, which wakes the listener.
        self._end, self._ending = socket.socketpair()
        self._is_announcing = False

    def announce(self, notification: str) -> None:
        """Notify all servers, including this one."""
        with self._lock:
            if self._closed.is_set():
                return
            self._pending[notification] = None
            if not self._is_announcing:
                self._is_announcing = True
                self._start("headrace-announcer", self._announce)
            self._lock.notify()

    def listen(self, receive: Callable[[str | None], None]) -> None:
        """Call `receive` with every notification, and with None when some may have been missed."""
        with self._lock:
            self._start("headrace-listener", lambda: self._listen(receive))

    def close(self) -> None:
        """Send what is pending, and end the threads."""
        with self._lock:
            self._closed.set()
            self._end.close()
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        self._ending.close()

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _announce(self) -> None:
        connection: Connection | None = None
        while (notifications := self._gathered()) is not None:
            try:
                connection = connection or self._connect()
                connection.execute(
                    f"SELECT pg_notify({CHANNEL}, each) FROM unnest(%s::text[]) AS each", [notifications]
                )
            except psycopg.Error as error:
                logger.info(
                    "NOTIFY failed; other servers will catch up by polling: %s",
                    reason_of(error, self._connections.address),
                )
                _close(connection)
                connection = None
                self._closed.wait(RECONNECT_SECONDS)
            self._closed.wait(GATHERING_SECONDS)
        _close(connection)

    def _connect(self) -> Connection:
        connection = self._connections.connect()
        connection.execute("SET synchronous_commit = off")
        return connection

    def _gathered(self) -> list[str] | None:
        """The notifications to send; None once all are sent and the store is closed."""
        with self._lock:
            while not self._pending and not self._closed.is_set():
                self._lock.wait()
            notifications = list(self._pending)
            self._pending.clear()
            return notifications or None

    def _listen(self, receive: Callable[[str | None], None]) -> None:
        while not self._closed.is_set():
            try:
                with self._connections.connect() as connection:
                    channel = connection.execute(f"SELECT quote_ident({CHANNEL})").fetchone()
                    assert channel is not None
                    connection.execute(f"LISTEN {channel[0]}")
                    _tell(receive, None)
                    self._receive(connection, receive)
            except psycopg.Error as error:
                reason = reason_of(error, self._connections.address)
                logger.info("lost the LISTEN connection, will reconnect: %s", reason)
                self._closed.wait(RECONNECT_SECONDS)

    def _receive(self, connection: Connection, receive: Callable[[str | None], None]) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(connection, selectors.EVENT_READ)
            waiting.register(self._ending, selectors.EVENT_READ)
            while not self._closed.is_set():
                waiting.select(LISTEN_SECONDS)
                for notification in connection.notifies(timeout=0):
                    _tell(receive, notification.payload)


def _tell(receive: Callable[[str | None], None], notification: str | None) -> None:
    """An error in one listener must not affect the others."""
    try:
        receive(notification)
    except Exception:
        logger.exception("cannot apply a notification from another server")


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
