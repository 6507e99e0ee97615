"""Topics as views in DuckDB: `headrace.table("orders")`, and `headrace table sql "SELECT …"`.

    archive(topic) ──► files ──► read_parquet, or Arrow's reader for object stores ──┐
                         └─────► tail ──► an Arrow table in memory ──────────────────┴──► view

A view is of one moment, that of its creation. Filters on time, offset, partition and key reach the statistics of the
files. The tail is what the archive does not have yet, at most `archive_after_seconds` old, and must fit into memory; so
must a topic without an archive. `offset` is a keyword of DuckDB, so the column is quoted: `SELECT "offset" …`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from headrace.client import Client, connect
from headrace.client.read.decode import Decoder
from headrace.client.read.table import table_of
from headrace.core.codecs.columns import decode_known
from headrace.core.errors import InvalidInput
from headrace.core.messages import READ_SCHEMA
from headrace.tables.files import encoded_files, local_directory, open_archive
from headrace.tables.snapshot import TableSnapshot, table_snapshot
from headrace.tables.values import (
    ERROR_COLUMN,
    ObjectOf,
    ValueField,
    duckdb_structure,
    duckdb_type,
    parse_value_schema,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

COLUMNS: Final = tuple(READ_SCHEMA.names)
_DECODE: Final = "headrace_decode"
_NUMBERS: Final = "'BIGINT', 'UBIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE'"


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
    views = TopicViews(_duckdb(connection))
    if client is not None:
        views.add(client, topic, value_schema)
    else:
        with connect(url, token) as made:
            views.add(made, topic, value_schema)
    return views.connection.table(quoted(topic))


def run_sql(client: Client, query: str, value_schema: str | Mapping[str, Any] | None = None) -> pa.Table:
    """The rows of a query over topics, each a view of its name, all looked up before the query starts."""
    import duckdb

    with _duckdb(None) as connection:
        views = TopicViews(connection)
        try:
            for name in sorted(connection.get_table_names(query)):
                views.add(client, name, value_schema)
            rows = connection.sql(query)
        except duckdb.Error as error:
            raise InvalidInput("query", query[:100], " ".join(str(error).split())) from None
        # DuckDB has no relation for statements that return no rows.
        if rows is None:
            raise InvalidInput("query", query[:100], "it must be a SELECT")
        return rows.to_arrow_table()


class TopicViews:
    """The views of topics in a connection of DuckDB."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection

    def add(self, client: Client, topic: str, value_schema: str | Mapping[str, Any] | None = None) -> None:
        """Create the view of a topic as it is now."""
        schema = None if value_schema is None else parse_value_schema(value_schema)
        snapshot = table_snapshot(client.archive(topic))
        parts = [*self._archived(topic, snapshot), self._tail(client, topic, snapshot)]
        rows = " UNION ALL ".join(parts)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(topic)} AS {_typed(rows, schema)}")

    def _archived(self, topic: str, snapshot: TableSnapshot) -> Iterator[str]:
        """Queries of the rows in files: of those without codecs as they are, of the others decoded."""
        if not snapshot.files:
            return
        encoded = encoded_files(snapshot.url, snapshot.files)
        where = _within(snapshot.clips)
        plain = [file.path for file in snapshot.files if file.path not in encoded]
        if plain:
            yield f"SELECT {_columns()} FROM {self._files(topic, snapshot.url, plain, 'plain')}{where}"
        if encoded:
            self._add_decoding()
            decoded = {"value": f"{_DECODE}(value, codec) AS value", "codec": "NULL::VARCHAR AS codec"}
            source = self._files(topic, snapshot.url, sorted(encoded), "encoded")
            yield f"SELECT {_columns(decoded)} FROM {source}{where}"

    def _files(self, topic: str, url: str, paths: Sequence[str], kind: str) -> str:
        """What a query reads files from: DuckDB's own reader where it can open them, else that of Arrow."""
        directory = local_directory(url)
        if directory is not None:
            names = ", ".join(_text(f"{directory}/{path}") for path in paths)
            return f"read_parquet([{names}])"
        system, base = open_archive(url)
        dataset = ds.dataset([f"{base}/{path}" for path in paths], filesystem=system, format="parquet")
        return self._registered(f"headrace_{kind}_{topic}", dataset)

    def _tail(self, client: Client, topic: str, snapshot: TableSnapshot) -> str:
        def scan(partition: int, first: int, stop: int, wanted: list[str] | None) -> Iterator[pa.RecordBatch]:
            return client.scan(topic, partition, first, stop, columns=wanted, topic_id=snapshot.archive.topic_id)

        starts, ends = ({of: bounds[place] for of, bounds in snapshot.tail.items()} for place in (0, 1))
        rows = table_of(scan, starts, ends, None, Decoder(topic))
        return f"SELECT {_columns()} FROM {self._registered(f'headrace_tail_{topic}', rows)}"

    def _registered(self, name: str, rows: Any) -> str:
        self.connection.register(name, rows)
        return quoted(name)

    def _add_decoding(self) -> None:
        """The function that decodes values, once in a connection."""
        known = "SELECT 1 FROM duckdb_functions() WHERE function_name = ?"
        if not self.connection.execute(known, [_DECODE]).fetchall():
            self.connection.create_function(  # type: ignore[call-overload]
                _DECODE, decode_values, ["BLOB", "VARCHAR"], "BLOB", type="arrow", null_handling="special"
            )


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


def _columns(instead: Mapping[str, str] | None = None) -> str:
    return ", ".join((instead or {}).get(name, quoted(name)) for name in COLUMNS)


def _within(clips: Mapping[int, tuple[int, int]]) -> str:
    """The condition that a row is within the bounds of its partition; partitions without bounds are whole."""
    terms = (
        f'("partition" <> {number} OR ("offset" >= {start} AND "offset" < {end}))'
        for number, (start, end) in sorted(clips.items())
    )
    return f" WHERE {' AND '.join(terms)}" if clips else ""


def _typed(rows: str, schema: ObjectOf | None) -> str:
    """The rows with the columns of their values, and the reason where a value does not fit."""
    if schema is None:
        return rows
    text = f"SELECT *, TRY(decode(value)) AS _text FROM ({rows})"
    parsed = f"SELECT *, CASE WHEN json_valid(_text) THEN _text::JSON END AS _json FROM ({text})"
    fields = ", ".join(f"{_value(field)} AS {quoted(f'_{number}')}" for number, field in enumerate(schema.fields))
    judged = f"SELECT *, {fields} FROM ({parsed})"
    reasons = f"SELECT *, {_reason(schema.fields)} AS {ERROR_COLUMN} FROM ({judged})"
    columns = (
        f"CASE WHEN {ERROR_COLUMN} IS NULL THEN {quoted(f'_{number}')} END AS {quoted(field.column)}"
        for number, field in enumerate(schema.fields)
    )
    return f"SELECT {_columns()}, {', '.join(columns)}, {ERROR_COLUMN} FROM ({reasons})"


def _value(field: ValueField) -> str:
    """A property with its type; NULL if it is missing, null, or of another type."""
    path = _path(field)
    of, text = f"json_type(_json, {path})", f"(_json ->> {path})"
    if not isinstance(field.type, str):
        structure = _text(msgspec.json.encode(duckdb_structure(field.type)).decode())
        kind = "'OBJECT'" if isinstance(field.type, ObjectOf) else "'ARRAY'"
        return f"CASE WHEN {of} = {kind} THEN json_transform(json_extract(_json, {path}), {structure}) END"
    if field.type == "string":
        return f"CASE WHEN {of} <> 'NULL' THEN {text} END"
    kinds = {"integer": "'BIGINT', 'UBIGINT'", "number": _NUMBERS, "boolean": "'BOOLEAN'"}.get(field.type, "'VARCHAR'")
    return f"TRY_CAST(CASE WHEN {of} IN ({kinds}) THEN {text} END AS {duckdb_type(field.type)})"


def _path(field: ValueField) -> str:
    return _text(f'$."{field.name}"')


def _reason(fields: Iterable[ValueField]) -> str:
    cases = [
        "WHEN value IS NULL THEN 'the value is null'",
        "WHEN _text IS NULL THEN 'the value is not valid UTF-8'",
        "WHEN _json IS NULL OR json_type(_json) <> 'OBJECT' THEN 'the value is not a JSON object'",
    ]
    for number, field in enumerate(fields):
        of = f"json_type(_json, {_path(field)})"
        if field.is_required:
            cases.append(f"WHEN COALESCE({of}, 'NULL') = 'NULL' THEN {_text(f'the field {field.name} is missing')}")
        told = _text(f"the field {field.name} does not match the schema")
        cases.append(f"WHEN COALESCE({of}, 'NULL') <> 'NULL' AND {quoted(f'_{number}')} IS NULL THEN {told}")
    return f"CASE {' '.join(cases)} END"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _duckdb(connection: DuckDBPyConnection | None) -> DuckDBPyConnection:
    if connection is not None:
        return connection
    try:
        import duckdb
    except ImportError:
        raise InvalidInput("duckdb", "missing", 'it is not installed: pip install "headrace[duckdb]"') from None
    return duckdb.connect()
