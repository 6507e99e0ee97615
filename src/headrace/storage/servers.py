"""The servers that share a store, as rows of its database.

A server writes a row when it starts and renews it by heartbeats; one that stopped renewing is no longer listed, and its
row is deleted by the others. One without addresses hears members of groups, and is not listed either. All times are the
database's, so clocks of servers may differ. Only a shared store has these rows: the server of any other store knows
itself. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, literal_column, select, tuple_
from sqlalchemy.dialects.postgresql import insert as upsert

from headrace.core.limits import MICROSECONDS, SERVER_EXPIRY_SECONDS
from headrace.core.reports.descriptions import ServerDescription
from headrace.storage.group_row import DATABASE_US
from headrace.storage.tables import all_claims, all_servers
from headrace.storage.transactions import SHORT_PATIENCE_SECONDS, Transactions

_NOW_US: Final[Any] = literal_column(DATABASE_US)
_EXPIRED_US: Final[Any] = _NOW_US - int(SERVER_EXPIRY_SECONDS * MICROSECONDS)

_NO_ADDRESSES: Final = "{}"


class ServerRows:
    """The servers of a shared store."""

    def __init__(self, transactions: Transactions) -> None:
        self._do = transactions.do

    def put(self, server_id: str, version: str, addresses: dict[str, str]) -> None:
        """Register a running server with its addresses; expired ones are removed."""
        values = {"addresses": msgspec.json.encode(addresses).decode(), "heartbeat_us": _NOW_US}
        row = upsert(all_servers).values(serverid=server_id, version=version, started_us=_NOW_US, **values)
        row = row.on_conflict_do_update(index_elements=["serverid"], set_=values)

        def put(connection: Connection) -> None:
            connection.execute(row)
            connection.execute(delete(all_servers).where(all_servers.c.heartbeat_us < _EXPIRED_US))
            connection.execute(delete(all_claims).where(all_claims.c.serverid.not_in(select(all_servers.c.serverid))))

        self._do(put, SHORT_PATIENCE_SECONDS)

    def all(self) -> list[ServerDescription]:
        """The servers that run, in the order they started."""
        columns = all_servers.c
        query = select(all_servers).where(columns.heartbeat_us >= _EXPIRED_US, columns.addresses != _NO_ADDRESSES)
        query = query.order_by(columns.started_us, columns.serverid)
        rows = self._do(lambda connection: connection.execute(query).all(), SHORT_PATIENCE_SECONDS)
        return [
            ServerDescription(
                row.serverid,
                row.version,
                msgspec.json.decode(row.addresses, type=dict[str, str]),
                row.started_us,
                row.heartbeat_us,
            )
            for row in rows
        ]

    def running(self) -> set[str]:
        """The ids of all servers that run, listed or not."""
        query = select(all_servers.c.serverid).where(all_servers.c.heartbeat_us >= _EXPIRED_US)
        return set(self._do(lambda connection: connection.execute(query).scalars().all(), SHORT_PATIENCE_SECONDS))

    def remove(self, server_id: str) -> None:
        """Remove a server that stopped, with its claims."""

        def remove(connection: Connection) -> None:
            for table in (all_claims, all_servers):
                connection.execute(delete(table).where(table.c.serverid == server_id))

        self._do(remove, SHORT_PATIENCE_SECONDS)

    def claims(self) -> list[tuple[int, str]]:
        """The groups that a running server claims, by id of the topic and name."""
        running = select(all_servers.c.serverid).where(all_servers.c.heartbeat_us >= _EXPIRED_US)
        query = select(all_claims.c.topicid, all_claims.c.groupname).where(all_claims.c.serverid.in_(running))
        rows = self._do(lambda connection: connection.execute(query).all(), SHORT_PATIENCE_SECONDS)
        return [(row.topicid, row.groupname) for row in rows]

    def release_claims(self, server_id: str, groups: Collection[tuple[int, str]]) -> None:
        """Give up the claims of a server on some groups, by topic and name."""
        columns = all_claims.c
        are_named = tuple_(columns.topicid, columns.groupname).in_(groups)
        statement = delete(all_claims).where(columns.serverid == server_id, are_named)
        self._do(lambda connection: connection.execute(statement), SHORT_PATIENCE_SECONDS)
