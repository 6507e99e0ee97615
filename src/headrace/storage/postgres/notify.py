"""Words between servers through LISTEN and NOTIFY, each on a thread and a connection of its own.

Announcing returns at once. The announcing thread sends what gathered since it last sent, each word once, after the
commit and outside of it: NOTIFY inside a transaction takes a lock of the whole database until that transaction is on
the device. Nothing of a word has to survive, so sending one does not wait for the device. Under load words go out a
hundred times a second, however many commits there are. A word that is lost, because a connection broke or this process
died before it was sent, only delays: whoever listens hears None after each new connection, which says that anything may
have happened, and polls besides.
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
# How long a listener waits before it looks whether its connection is still there.
HEARING_SECONDS: Final = 0.5
# How long words gather at least from one sending to the next.
GATHERING_SECONDS: Final = 0.01

logger = logging.getLogger(__name__)


class PostgresSignals:
    """The words of one store. Safe for threads; threads are started when they are first needed."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._lock = threading.Condition()
        self._words: dict[str, None] = {}
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        # Closing one end makes the other readable: so a listener need not wait for its time to be over.
        self._end, self._ending = socket.socketpair()
        self._is_announcing = False

    def announce(self, word: str) -> None:
        """Say a word to all servers, this one included."""
        with self._lock:
            if self._closed.is_set():
                return
            self._words[word] = None
            if not self._is_announcing:
                self._is_announcing = True
                self._start("headrace-announcer", self._announce)
            self._lock.notify()

    def listen(self, hear: Callable[[str | None], None]) -> None:
        """Call `hear` with every word, and with None when words may have been missed."""
        with self._lock:
            self._start("headrace-listener", lambda: self._listen(hear))

    def close(self) -> None:
        """Say what is still to be said, and end the threads."""
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
        while (words := self._gathered()) is not None:
            try:
                connection = connection or self._connect()
                connection.execute(f"SELECT pg_notify({CHANNEL}, word) FROM unnest(%s::text[]) AS word", [words])
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
        """The words to send; none once all is said and the store is closed."""
        with self._lock:
            while not self._words and not self._closed.is_set():
                self._lock.wait()
            words = list(self._words)
            self._words.clear()
            return words or None

    def _listen(self, hear: Callable[[str | None], None]) -> None:
        while not self._closed.is_set():
            try:
                with self._connections.connect() as connection:
                    channel = connection.execute(f"SELECT quote_ident({CHANNEL})").fetchone()
                    assert channel is not None
                    connection.execute(f"LISTEN {channel[0]}")
                    _tell(hear, None)
                    self._hear(connection, hear)
            except psycopg.Error as error:
                reason = reason_of(error, self._connections.address)
                logger.info("lost the LISTEN connection, will reconnect: %s", reason)
                self._closed.wait(RECONNECT_SECONDS)

    def _hear(self, connection: Connection, hear: Callable[[str | None], None]) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(connection, selectors.EVENT_READ)
            waiting.register(self._ending, selectors.EVENT_READ)
            while not self._closed.is_set():
                waiting.select(HEARING_SECONDS)
                for notification in connection.notifies(timeout=0):
                    _tell(hear, notification.payload)


def _tell(hear: Callable[[str | None], None], word: str | None) -> None:
    """One who fails at a word must not keep the others from being heard."""
    try:
        hear(word)
    except Exception:
        logger.exception("cannot apply a notification from another server")


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
