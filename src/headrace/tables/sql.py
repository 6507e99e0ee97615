"""Topics as views in DuckDB: `headrace.table("orders")`, and `headrace table sql "SELECT …"`.

    archive(topic) ──► files ──► read_parquet, or Arrow's reader for object stores ──┐
                         └─────► tail ──► an Arrow table in memory ──────────────────┴──► view

A view is of one moment, that of its creation. Filters on time, offset, partition and key reach the statistics of the
files. The tail is what the archive does not have yet, at most `archive_after_seconds` old, and must fit into memory; so
must a topic without an archive. `offset` is a keyword of DuckDB, so the column is quoted: `SELECT "offset" …`.

Of a topic with a schema of its values a view has their columns too: from files that have them as they are, so filters
on them reach the statistics as well; of other files, and of the tail, the values are parsed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from headrace.client import Client, connect
from headrace.client.read.decode import Decoder
from headrace.client.read.table import table_of
from headrace.core.codecs.columns import decode_known
from headrace.core.errors import InvalidInput, OffsetOutOfRange
from headrace.core.messages import READ_SCHEMA
from headrace.core.values.columns import ValueParser, parser_of
from headrace.core.values.schema import parse_value_schema
from headrace.extras import needing
from headrace.tables.files import files_by_kind, local_directory, open_archive
from headrace.tables.snapshot import TableSnapshot, table_snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

COLUMNS: Final = tuple(READ_SCHEMA.names)
_DECODE: Final = "headrace_decode"
_PARSE: Final = "headrace_values"
_PARSED: Final = "_values"
# A query cannot undo these once the connection is locked.
_CLOSED: Final = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_ONLY_TOPICS: Final = "it may read topics only; for files beside them, use headrace.table with a connection of yours"
# How often a view is tried whose messages are deleted meanwhile.
_TRIES: Final = 5
_TYPES: Final = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.timestamp("us"): "TIMESTAMP",
    pa.date32(): "DATE",
    pa.binary(): "BLOB",
}


def table(
    topic: str,
    *,
    url: str | None = None,
    token: str | None = None,
    client: Client | None = None,
    value_schema: str | Mapping[str, Any] | None = None,
    connection: DuckDBPyConnection | None = None,
) -> DuckDBPyRelation:
    """The whole history of a topic as a relation of DuckDB: from the archive, and what is newer from the broker.

    Give a `client`, or `url` and `token` of the server; otherwise HEADRACE_URL and HEADRACE_TOKEN are used when set.
    With a `connection`, the view of the topic is created there under its name, for SQL that joins it.
    """
    views = TopicViews(_duckdb().connect() if connection is None else connection)
    if client is not None:
        views.add(client, topic, value_schema)
    else:
        with connect(url, token) as made:
            views.add(made, topic, value_schema)
    return views.connection.table(quoted(topic))


def run_sql(client: Client, query: str, value_schema: str | Mapping[str, Any] | None = None) -> pa.Table:
    """The rows of a SELECT over topics, each a view of its name, all looked up before the query starts.

    The query reaches the topics it names and nothing else: no files, no network, no extensions, no settings.
    """
    duckdb = _duckdb()
    try:
        with duckdb.connect(config={**_CLOSED, "enable_external_access": False}) as parser:
            topics = _topics_of(parser, query)
        with duckdb.connect(config=_CLOSED) as connection:
            views = TopicViews(connection)
            for topic in topics:
                views.add(client, topic, value_schema)
            views.lock()
            return connection.sql(query).to_arrow_table()
    except duckdb.PermissionException as error:
        raise InvalidInput("query", query[:100], f"{_ONLY_TOPICS} ({_line(error)})") from None
    except duckdb.Error as error:
        raise InvalidInput("query", query[:100], _line(error)) from None


def _topics_of(parser: DuckDBPyConnection, query: str) -> list[str]:
    """The names of the tables in a query, which must be one SELECT."""
    import duckdb

    kinds = [statement.type for statement in parser.extract_statements(query)]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(kind.name for kind in kinds) or "nothing"
        raise InvalidInput("query", query[:100], f"it must be one SELECT, not {found}")
    return sorted(parser.get_table_names(query))


class TopicViews:
    """The views of topics in a connection of DuckDB."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection
        self._paths: list[str] = []

    def lock(self) -> None:
        """Close the connection to everything but the files of these views."""
        paths = ", ".join(map(_text, self._paths))
        self.connection.execute(f"SET allowed_paths = [{paths}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def add(self, client: Client, topic: str, value_schema: str | Mapping[str, Any] | None = None) -> None:
        """Create the view of a topic as it is now.

        If messages are deleted between the snapshot and the read of its tail, both are done again.
        """
        for _ in range(_TRIES - 1):
            with suppress(OffsetOutOfRange):
                self._add(client, topic, value_schema)
                return
        self._add(client, topic, value_schema)

    def _add(self, client: Client, topic: str, value_schema: str | Mapping[str, Any] | None) -> None:
        snapshot = table_snapshot(client.archive(topic))
        schema = snapshot.archive.value_schema if value_schema is None else value_schema
        parser = None if schema is None else parser_of(parse_value_schema(schema).text)
        parts = [*self._archived(topic, snapshot, parser), self._tail(client, topic, snapshot, parser)]
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(topic)} AS {' UNION ALL '.join(parts)}")

    def _archived(self, topic: str, snapshot: TableSnapshot, parser: ValueParser | None) -> Iterator[str]:
        """Queries of the rows in files, by kind: values are decoded and parsed only where they must be."""
        where = _within(snapshot.clips)
        by_kind = files_by_kind(snapshot.url, snapshot.files) if snapshot.files else {}
        for number, (kind, paths) in enumerate(by_kind.items()):
            instead = {}
            if kind.has_codecs:
                self._add_function(_DECODE, decode_values, ["BLOB", "VARCHAR"], "BLOB")
                instead = {"value": f"{_DECODE}(value, codec) AS value", "codec": "NULL::VARCHAR AS codec"}
            is_typed = parser is not None and kind.value_schema == parser.schema.text
            typed = parser.columns.names if parser is not None and is_typed else []
            source = self._files(f"headrace_{number}_{topic}", snapshot.url, paths, parser if is_typed else None)
            rows = f"SELECT {_columns(instead, typed)} FROM {source}{where}"
            yield rows if parser is None or is_typed else self._parsed(rows, parser)

    def _files(self, name: str, url: str, paths: Sequence[str], parser: ValueParser | None) -> str:
        """What a query reads files from: DuckDB's own reader where it can open them, else that of Arrow."""
        directory = local_directory(url)
        if directory is not None:
            whole = [f"{directory}/{path}" for path in paths]
            self._paths += whole
            return f"read_parquet([{', '.join(map(_text, whole))}])"
        system, base = open_archive(url)
        columns = pa.schema([*READ_SCHEMA, *(() if parser is None else parser.columns)])
        names_there = [f"{base}/{path}" for path in paths]
        return self._registered(name, ds.dataset(names_there, columns, filesystem=system, format="parquet"))

    def _parsed(self, rows: str, parser: ValueParser) -> str:
        """The rows with the columns of their values, which are parsed when they are read."""
        kind = pa.struct(list(parser.columns))
        name = f"{_PARSE}_{hashlib.sha256(parser.schema.text.encode()).hexdigest()[:16]}"

        def parse(values: pa.ChunkedArray) -> pa.Array:
            return parser.parse(_one(values, pa.binary())).to_struct_array()

        import duckdb

        self._add_function(name, parse, ["BLOB"], duckdb.sqltype(_sql_type(kind)))
        fields = ", ".join(f"{_PARSED}.{quoted(field)} AS {quoted(field)}" for field in parser.columns.names)
        return f"SELECT {_columns()}, {fields} FROM (SELECT *, {name}(value) AS {_PARSED} FROM ({rows}))"

    def _tail(self, client: Client, topic: str, snapshot: TableSnapshot, parser: ValueParser | None) -> str:
        def scan(partition: int, first: int, stop: int, wanted: list[str] | None) -> Iterator[pa.RecordBatch]:
            return client.scan(topic, partition, first, stop, columns=wanted, topic_id=snapshot.archive.topic_id)

        starts, ends = ({of: bounds[place] for of, bounds in snapshot.tail.items()} for place in (0, 1))
        rows = table_of(scan, starts, ends, None, Decoder(topic))
        typed: list[str] = []
        if parser is not None:
            typed = parser.columns.names
            batches = [parser.parse(chunk) for chunk in rows.column("value").chunks]
            columns = pa.Table.from_batches(batches, parser.columns)
            for name in typed:
                rows = rows.append_column(parser.columns.field(name), columns.column(name))
        return f"SELECT {_columns(typed=typed)} FROM {self._registered(f'headrace_tail_{topic}', rows)}"

    def _registered(self, name: str, rows: Any) -> str:
        self.connection.register(name, rows)
        return quoted(name)

    def _add_function(self, name: str, function: Any, given: list[Any], result: Any) -> None:
        """A function on whole columns, once in a connection."""
        known = "SELECT 1 FROM duckdb_functions() WHERE function_name = ?"
        if not self.connection.execute(known, [name]).fetchall():
            self.connection.create_function(name, function, given, result, type="arrow", null_handling="special")  # type: ignore[call-overload]


def decode_values(values: pa.ChunkedArray, codecs: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as they were before they were compressed; raises for one that its codec does not accept."""
    whole, named = _one(values, pa.binary()), _one(codecs, pa.string())
    decoded: list[pa.Array] = []
    begin = 0
    while begin < len(whole):
        known = decode_known(whole.slice(begin), named.slice(begin), until_fault=True)
        if known.faults:
            raise known.faults[0]
        decoded.append(known.values)
        begin += known.rows
    return pa.chunked_array(decoded, pa.binary())


def _one(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([chunk.cast(kind) for chunk in column.chunks]) if column.num_chunks else pa.array([], kind)


def _columns(instead: Mapping[str, str] | None = None, typed: Sequence[str] = ()) -> str:
    return ", ".join((instead or {}).get(name, quoted(name)) for name in (*COLUMNS, *typed))


def _within(clips: Mapping[int, tuple[int, int]]) -> str:
    """The condition that a row is within the bounds of its partition; partitions without bounds are whole."""
    terms = (
        f'("partition" <> {number} OR ("offset" >= {start} AND "offset" < {end}))'
        for number, (start, end) in sorted(clips.items())
    )
    return f" WHERE {' AND '.join(terms)}" if clips else ""


def _sql_type(kind: pa.DataType) -> str:
    """A type of Arrow in DuckDB's SQL."""
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({_sql_type(kind.key_type)}, {_sql_type(kind.item_type)})"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quoted(field.name)} {_sql_type(field.type)}' for field in kind)})"
    return _TYPES[kind]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _duckdb() -> ModuleType:
    with needing("duckdb"):
        import duckdb
    return duckdb
