"""How a PostgreSQL store is opened: options for Headrace, options for libpq, and what may be shown of the URL.

A URL holds a password. Nothing here shows the URL: `DatabaseAddress.name` has host, port, database and schema only,
and a URL that cannot be parsed is never quoted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.core.errors import InvalidInput
from headrace.core.limits import SEGMENT_BYTES_MAX

FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME"
_IDENTIFIER_BYTES_MAX: Final = 63

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the PostgreSQL engine.

    schema: where the tables are; created if it does not exist.
    connections: how many connections topics may use at once; the catalog has some of its own.
    segment_bytes: a topic's table is complete above this many bytes of messages; retention drops whole tables.
    segment_commits: or above this number of commits.
    lock_timeout_seconds: how long to wait for a lock that another client of the database holds.
    statement_timeout_seconds: how long one statement may take.
    retry_seconds: how long to try to reconnect to the database.
    """

    schema: str = "headrace"
    connections: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 16
    segment_bytes: Annotated[int, msgspec.Meta(ge=1, le=SEGMENT_BYTES_MAX)] = 256 << 20
    segment_commits: Annotated[int, msgspec.Meta(ge=1)] = 1 << 40
    lock_timeout_seconds: Seconds = 10.0
    statement_timeout_seconds: Seconds = 60.0
    retry_seconds: Seconds = 10.0


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where the database is. Safe to print: the connection string is omitted."""

    name: str
    parameters: dict[str, Any] = field(repr=False)


def parse(url: str) -> tuple[DatabaseAddress, PostgresOptions]:
    """Parse a store URL."""
    # From the right: a password may hold a question mark that should have been written as %3F.
    location, mark, query = url.rpartition("?")
    if not mark:
        location, query = url, ""
    ours: dict[str, str] = {}
    theirs: dict[str, Any] = {}
    try:
        for option, value in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
            (ours if option in PostgresOptions.__struct_fields__ else theirs)[option] = value
        parameters = conninfo_to_dict(make_conninfo(location, **theirs))
    except (ValueError, psycopg.Error):
        raise _refused(f"write it as {FORM}") from None
    # A misplaced part may belong to the password, and the name is shown.
    if any("@" in str(parameters.get(place, "")) for place in ("host", "port", "dbname")):
        raise _refused(f"write it as {FORM}, and in the password %40 for @, %2F for /, %3A for :, %3F for ?")
    if not str(parameters.get("port", "1")).isdecimal():
        raise _refused(f"write it as {FORM}, with a number as port")
    try:
        options = msgspec.convert(ours, PostgresOptions, strict=False)
    except msgspec.ValidationError as error:
        raise _refused(f"{error}; options are {', '.join(PostgresOptions.__struct_fields__)}") from None
    if not 1 <= len(options.schema.encode()) <= _IDENTIFIER_BYTES_MAX or "\0" in options.schema:
        raise _refused(f"the name of a schema must have 1 to {_IDENTIFIER_BYTES_MAX} bytes")
    if options.schema.startswith("pg_"):
        raise _refused("schemas that begin with pg_ belong to PostgreSQL")
    return DatabaseAddress(_name(parameters, options.schema), parameters), options


def _name(parameters: dict[str, Any], schema: str) -> str:
    port = f":{parameters['port']}" if "port" in parameters else ""
    database = parameters.get("dbname", "")
    return f"postgresql://{parameters.get('host', '')}{port}/{database}?schema={schema}"


def _refused(rule: str) -> InvalidInput:
    return InvalidInput("store", "a PostgreSQL URL", rule)
