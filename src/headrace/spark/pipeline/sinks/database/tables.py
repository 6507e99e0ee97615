"""The tables in the database of a sink: the target, the rows that wait, and which batch of each writer was the last.

    headrace_batches             writer, target, number and fingerprint of the last batch; a load is a writer
    headrace_stage_<writer>_…    rows of one batch, of all attempts of its tasks

All of them are in the schema of the target. Nothing here knows Spark. A connection that is lost is `StoreUnavailable`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, LiteralString

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.extras import needing
from headrace.spark.pipeline.sinks.database.copying import PART

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_CONNECT_SECONDS: Final = 10
_BATCHES: Final = "headrace_batches"
_SAME_ROW_TWICE: Final = "21000"
_CREATE_BATCHES: Final[LiteralString] = (
    "CREATE TABLE IF NOT EXISTS {} (writer text, target text, batch bigint NOT NULL, fingerprint bigint,"
    " PRIMARY KEY (writer, target))"
)
_COLUMNS: Final[LiteralString] = (
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
    " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
)
_UNIQUE: Final[LiteralString] = (
    "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
    " WHERE indrelid = %s AND indisunique AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid"
)


@dataclass(frozen=True)
class TargetTable:
    """A table, with the types of its columns and what identifies a row of it."""

    schema: str
    name: str
    columns: Mapping[str, str]
    unique: Sequence[frozenset[str]]

    def beside(self, name: str) -> sql.Identifier:
        """Another table of its schema."""
        from psycopg import sql

        return sql.Identifier(self.schema, name)


class Database:
    """One database, with the field of the pipeline that errors are about."""

    def __init__(self, url: str, field: str) -> None:
        self._url = url
        self._field = field

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """A connection whose work is committed together, or not at all."""
        with needing("postgres"):
            import psycopg
        try:
            with psycopg.connect(self._url, connect_timeout=_CONNECT_SECONDS, client_encoding="utf8") as connection:
                yield connection
        except psycopg.ProgrammingError as error:
            if error.sqlstate is None:
                raise InvalidInput(f"{self._field}.database", "not shown", _told(error)) from None
            raise self._refused(error) from None
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise StoreUnavailable(f"the database of {self._field}", _told(error)) from None
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _refused(self, error: psycopg.Error) -> InvalidInput:
        if error.sqlstate == _SAME_ROW_TWICE:
            rule = (
                f'one batch has several rows of a key: set {self._field}.order_by, such as ["message.timestamp"], so '
                "that the last one counts; nothing of this batch was written"
            )
            return InvalidInput(f"{self._field}.keys", "several rows", rule)
        rule = f"the database refuses it: {_told(error)}; nothing of this batch was written"
        return InvalidInput(f"{self._field}.table", "these rows", rule)

    def target(self, connection: psycopg.Connection, table: str) -> TargetTable:
        """A table as SQL names it."""
        query = (
            "SELECT c.oid, nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE c.oid = to_regclass(%s)"
        )
        row = connection.execute(query, [table]).fetchone()
        if row is None:
            raise InvalidInput(f"{self._field}.table", table[:200], "it does not exist in this database: create it")
        oid, schema, name = row
        columns: dict[str, str] = dict(connection.execute(_COLUMNS, [oid]).fetchall())
        unique = [frozenset(names) for (names,) in connection.execute(_UNIQUE, [oid]).fetchall()]
        return TargetTable(schema, name, columns, unique)


class Batches:
    """Which batch a writer has written to a table last."""

    def __init__(self, target: TargetTable, writer: str) -> None:
        self._target = target
        self._writer = writer

    def create(self, connection: psycopg.Connection) -> None:
        """Create the table, unless it exists."""
        from psycopg import errors, sql

        try:
            with connection.transaction():
                connection.execute(sql.SQL(_CREATE_BATCHES).format(self._target.beside(_BATCHES)))
        except (errors.UniqueViolation, errors.DuplicateTable):
            # Another run created it in this moment.
            pass

    def last(self, connection: psycopg.Connection) -> tuple[int, int | None]:
        """Number and fingerprint of the last batch; -1 before the first."""
        from psycopg import sql

        found = connection.execute("SELECT to_regclass(%s)", [f'"{self._target.schema}".{_BATCHES}']).fetchone()
        if found == (None,):
            return -1, None
        query = "SELECT batch, fingerprint FROM {} WHERE writer = %s AND target = %s"
        row = connection.execute(self._named(sql.SQL(query)), [self._writer, self._target.name]).fetchone()
        return (-1, None) if row is None else (row[0], row[1])

    def lock(self, connection: psycopg.Connection) -> tuple[int, int | None]:
        """The same, and no other run of this writer goes on before this transaction has ended."""
        from psycopg import sql

        names = [self._writer, self._target.name]
        connection.execute(
            self._named(sql.SQL("INSERT INTO {} VALUES (%s, %s, -1, NULL) ON CONFLICT DO NOTHING")), names
        )
        query = "SELECT batch, fingerprint FROM {} WHERE writer = %s AND target = %s FOR UPDATE"
        row = connection.execute(self._named(sql.SQL(query)), names).fetchone()
        assert row is not None, "it was inserted"
        return row[0], row[1]

    def put(self, connection: psycopg.Connection, number: int, fingerprint: int | None) -> None:
        """This batch is the last one, once the transaction is committed."""
        from psycopg import sql

        statement = self._named(sql.SQL("UPDATE {} SET batch = %s, fingerprint = %s WHERE writer = %s AND target = %s"))
        connection.execute(statement, [number, fingerprint, self._writer, self._target.name])

    def _named(self, statement: sql.SQL) -> sql.Composed:
        return statement.format(self._target.beside(_BATCHES))


class StagingTable:
    """The rows of one batch; dropped with it, or when its writer begins again."""

    def __init__(self, target: TargetTable, writer: str, types: Mapping[str, LiteralString]) -> None:
        self._target = target
        self._types = types
        self._prefix = f"headrace_stage_{sha256(writer.encode()).hexdigest()[:12]}_"
        self._name = f"{self._prefix}{uuid.uuid4().hex[:12]}"

    def create(self, connection: psycopg.Connection) -> None:
        """Create it; what it holds need not survive a crash of the database, since rows are counted."""
        from psycopg import sql

        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in self._all.items()]
        statement = sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(self._table, sql.SQL(", ").join(columns))
        connection.execute(statement)

    def copy_statement(self, connection: psycopg.Connection) -> str:
        """How tasks copy to it."""
        from psycopg import sql

        return sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(self._table).as_string(connection)

    def insert(self, connection: psycopg.Connection, parts: Sequence[str], keys: Sequence[str]) -> int:
        """Insert what these parts hold into the target; with keys a row replaces the one that has them."""
        from psycopg import sql

        names = [sql.Identifier(name) for name in self._types]
        values = [
            sql.SQL("{}::{}").format(name, sql.SQL(self._target.columns[column]))
            for name, column in zip(names, self._types, strict=True)
        ]
        statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} = ANY(%s)").format(
            self._target.beside(self._target.name),
            sql.SQL(", ").join(names),
            sql.SQL(", ").join(values),
            self._table,
            sql.Identifier(PART),
        )
        if keys:
            statement += sql.SQL(" ON CONFLICT ({}) DO ").format(sql.SQL(", ").join(map(sql.Identifier, keys)))
            others = [sql.Identifier(name) for name in self._types if name not in keys]
            changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others or [sql.Identifier(keys[0])]]
            statement += sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes))
        return connection.execute(statement, [list(parts)]).rowcount

    def has_null(self, connection: psycopg.Connection, parts: Sequence[str], keys: Sequence[str]) -> bool:
        """Whether a row of these parts has no value in one of these columns."""
        from psycopg import sql

        missing = sql.SQL(" OR ").join([sql.SQL("{} IS NULL").format(sql.Identifier(key)) for key in keys])
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} = ANY(%s) AND ({}))")
        found = connection.execute(query.format(self._table, sql.Identifier(PART), missing), [list(parts)]).fetchone()
        return found == (True,)

    def drop(self, connection: psycopg.Connection) -> None:
        """Drop it."""
        from psycopg import sql

        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))

    def drop_all(self, connection: psycopg.Connection) -> None:
        """Drop those of batches that were interrupted."""
        from psycopg import sql

        query = (
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = %s AND starts_with(relname, %s) AND relkind = 'r'"
        )
        for (name,) in connection.execute(query, [self._target.schema, self._prefix]).fetchall():
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._target.beside(name)))

    @property
    def _all(self) -> dict[str, LiteralString]:
        return {PART: "text", **self._types}

    @property
    def _table(self) -> sql.Identifier:
        return self._target.beside(self._name)


def _told(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
