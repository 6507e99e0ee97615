"""Translates errors of the database into those of Headrace.

A lost connection is not a failure yet: `is_lost` recognises it, and the caller decides whether to retry. The text of an
error never has the password: it is removed wherever it occurs.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from headrace.core.errors import DiskFull, HeadraceError, StoreUnavailable
from headrace.storage.postgres.options import DatabaseAddress

# The server is stopping, or not ready yet: another connection may work.
_GOODBYES = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    errors.TransactionTimeout,
)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost or could not be established, without an error of the statement itself."""
    if isinstance(error, _GOODBYES):
        return True
    # Errors of libpq itself have no SQLSTATE; class 08 is what poolers use instead.
    code = error.sqlstate
    return isinstance(error, psycopg.OperationalError) and (code is None or code.startswith("08"))


def has_ended_connection(error: psycopg.Error) -> bool:
    """Whether the server ended the connection with this error, so that a COMMIT may have been done."""
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def failure_of(error: psycopg.Error, address: DatabaseAddress, topic: str = "") -> HeadraceError:
    """The error to raise instead."""
    if isinstance(error, errors.DiskFull):
        return DiskFull(topic, reason_of(error, address))
    return StoreUnavailable(address.name, reason_of(error, address))


def reason_of(error: BaseException, address: DatabaseAddress) -> str:
    """The reason in one line, and what to do if that is known."""
    if isinstance(error, errors.LockNotAvailable):
        return "a lock was held too long by another transaction: look for sessions that are idle in transaction"
    if isinstance(error, errors.QueryCanceled):
        return "a statement took too long and was cancelled: see statement_timeout_seconds in the URL"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "the database is read-only, as a standby is: give the address of the primary"
    text = " ".join(str(error).split()) or type(error).__name__
    password = address.parameters.get("password")
    return text.replace(str(password), "***") if password else text
