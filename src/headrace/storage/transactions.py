"""Transactions of the catalog: one at a time on SQLite, retried on PostgreSQL if their connection breaks.

On SQLite a lock orders the calls of this process, so that the one in-memory connection of the memory engine can serve
many threads too; on PostgreSQL the database orders them. Work is retried until a deadline if its connection broke or
was refused, or the database aborted it to end a deadlock, and also if its COMMIT got no answer: work must be safe to do
twice. If its disk is full, that is `DiskFull`; whatever else the database reports is `StoreUnavailable`. Thread-safe.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.core.errors import Closed, DiskFull, StoreUnavailable
from headrace.core.limits import STOP_SECONDS

Result = TypeVar("Result")

# How long a transaction is retried after its connection broke, and the pause before each attempt.
PATIENCE_SECONDS: Final = 10.0
# The same where a caller must not be blocked for long, or tries again soon.
SHORT_PATIENCE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1
# SQLSTATEs worth a retry: the connection broke (08), the server stops or starts (57P0), a deadlock (40).
_PASSING: Final = ("08", "57P0", "40")
_DISK_FULL_STATE: Final = "53100"


class Transactions:
    """Runs work in transactions of one database, until it is closed."""

    def __init__(
        self, engine: Engine, name: str, patience_seconds: float, reason_of: Callable[[BaseException], str]
    ) -> None:
        """`name` is the store's, for errors; `reason_of` describes an error in words that may be shown."""
        self._engine = engine
        self._name = name
        self._patience_seconds = patience_seconds
        self._reason_of = reason_of
        self.is_postgres = engine.dialect.name == "postgresql"
        # The INSERT of this database that can update, or do nothing.
        self.upsert: Any = postgresql.insert if self.is_postgres else sqlite.insert
        self._lock: AbstractContextManager[object] = nullcontext() if self.is_postgres else threading.Lock()
        self._idle = threading.Condition()
        self._at_work = 0
        self._closed = False

    def do(self, work: Callable[[Connection], Result], patience_seconds: float = math.inf) -> Result:
        """Do work in one transaction, retried if its connection broke, up to a deadline."""
        deadline = time.monotonic() + min(patience_seconds, self._patience_seconds)
        is_repeated = False
        while True:
            try:
                with self._working(), self._lock, self._engine.begin() as connection:
                    return work(connection)
            except (DBAPIError, PoolTimeout) as error:
                cause = error.orig if isinstance(error, DBAPIError) else None
                reason = "all connections are in use" if cause is None else self._reason_of(cause)
                # Not after another attempt: that one may have been written.
                if _is_full(cause) and not is_repeated:
                    raise DiskFull("", reason) from error
                if not self._may_pass(error) or time.monotonic() >= deadline:
                    raise StoreUnavailable(self._name, reason) from error
                is_repeated = True
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Close all connections; later calls are refused, because the engine would open new ones.

        Waits for running transactions, but not longer than the stop timeout.
        """
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._at_work, STOP_SECONDS)
        self._engine.dispose()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keeps the connections open while work is running."""
        with self._idle:
            if self._closed:
                raise Closed("the store")
            self._at_work += 1
        try:
            yield
        finally:
            with self._idle:
                self._at_work -= 1
                self._idle.notify_all()

    def _may_pass(self, error: DBAPIError | PoolTimeout) -> bool:
        """Whether a retry may succeed: the connection broke or was refused, or there was a deadlock."""
        if not self.is_postgres or isinstance(error, PoolTimeout):
            return False
        state = getattr(error.orig, "sqlstate", None)
        return error.connection_invalidated or (state or "08").startswith(_PASSING)


def _is_full(error: BaseException | None) -> bool:
    """Whether the database says that its disk is full."""
    # The lowest byte of SQLite's code; the rest says what it was doing.
    number = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return number == sqlite3.SQLITE_FULL or getattr(error, "sqlstate", None) == _DISK_FULL_STATE
