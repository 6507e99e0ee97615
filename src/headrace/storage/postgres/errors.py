"""What goes wrong with the database, as the errors that the rest of Headrace knows.

A connection that is lost is no failure yet: `is_lost` tells those errors apart, and whoever holds the work decides
whether it may be done again. No text of an error has the password: it is taken out wherever it stands.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from headrace.core.errors import DiskFull, HeadraceError, StoreUnavailable
from headrace.storage.postgres.options import DatabaseAddress

# The server says goodbye, or is not ready yet: another connection may work.
_GOODBYES = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    errors.TransactionTimeout,
)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or was never there, and the database said nothing against the work itself."""
    if isinstance(error, _GOODBYES):
        return True
    # What libpq says itself has no code of the server; class 08 is what poolers say in its place.
    code = error.sqlstate
    return isinstance(error, psycopg.OperationalError) and (code is None or code.startswith("08"))


def has_ended_connection(error: psycopg.Error) -> bool:
    """Whether the server ended the connection with this error, whatever it says: so a COMMIT may have been done."""
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def failure_of(error: psycopg.Error, address: DatabaseAddress, topic: str = "") -> HeadraceError:
    """The error to raise instead."""
    if isinstance(error, errors.DiskFull):
        return DiskFull(topic, reason_of(error, address))
    return StoreUnavailable(address.name, reason_of(error, address))


def reason_of(error: BaseException, address: DatabaseAddress) -> str:
    """Why, in one line, and what to do where that is known."""
    if isinstance(error, errors.LockNotAvailable):
        return "a lock was held too long by another transaction: look for sessions that are idle in transaction"
    if isinstance(error, errors.QueryCanceled):
        return "a statement took too long and was cancelled: see statement_timeout_seconds in the URL"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "the database is read-only, as a standby is: give the address of the primary"
    text = " ".join(str(error).split()) or type(error).__name__
    password = address.parameters.get("password")
    return text.replace(str(password), "***") if password else text
