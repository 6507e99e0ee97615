"""`headrace table`: sql, infer, iceberg."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions, Topic, text_of_file
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.errors import HeadraceError
from headrace.core.retry import is_transient
from headrace.core.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.tables.iceberg import IcebergSync

app = typer.Typer(
    help="Query topics as tables with SQL, infer the schema of values, and offer archives as Iceberg tables.",
    no_args_is_help=True,
)

Schema = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="File with a JSON or Avro schema of the values, instead of the topic's own: its fields are columns.",
        metavar="FILE",
    ),
]


@app.command("sql", epilog="Example: headrace table sql 'SELECT count(*), max(timestamp) FROM orders'")
@with_option_groups
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT of DuckDB; each topic is a table.", metavar="QUERY")],
    *,
    schema: Schema = None,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Query the whole history of topics: what is archived from the archive, the rest from the broker.

    Columns are those of a message: partition, "offset", timestamp, key, value, attributes, … Quote "offset", and names
    of topics that are not plain words. Topics with a schema of their values have its fields as columns. This machine
    must reach the archive. The query reads topics only: no files, no network, no extensions of DuckDB. Needs
    pip install "headrace[duckdb]".
    """
    from headrace.tables.sql import run_sql

    with server.connected(timeout_seconds=60.0) as client:
        rows = run_sql(client, query, None if schema is None else text_of_file("--schema", str(schema)))
    names = rows.schema.names
    columns = [_values(rows.column(place)) for place in range(len(names))]
    if as_json:
        print_json([dict(zip(names, map(_plain, row), strict=True)) for row in zip(*columns, strict=True)])
    else:
        print_table(names, [[_shown(value) for value in row] for row in zip(*columns, strict=True)])


@app.command("infer", epilog="Example: headrace table infer orders > orders.json")
@with_option_groups
def infer(
    topic: Topic,
    *,
    messages: Annotated[
        int, typer.Option(help="How many of the newest messages are looked at.", min=1, max=1_000_000, metavar="N")
    ] = 10_000,
    apply: Annotated[bool, typer.Option("--apply", help="Also make it the schema of the topic.")] = False,
    server: ServerOptions,
) -> None:
    """Print a JSON Schema that the newest messages fit, for `headrace topic alter --value-schema`.

    Values that are no JSON objects are passed over. A property that all of them have is required: look at it before a
    topic has it, since a schema may only grow by optional fields.
    """
    from headrace.tables.infer import infer_value_schema

    with server.connected(timeout_seconds=60.0) as client:
        offsets = client.offsets(topic)
        share = -(-messages // len(offsets))
        starts = {partition: max(start, end - share) for partition, (start, end) in offsets.items()}
        newest = client.to_arrow(topic, starts, columns=["value"], on_undecodable="skip")
        inferred = infer_value_schema(newest["value"].to_pylist())
        if apply:
            client.alter_topic(topic, value_schema=inferred)
    print_json(inferred)


@app.command("iceberg", epilog="Example: headrace table iceberg orders --catalog-uri sqlite:///catalog.db")
@with_option_groups
def iceberg(
    topics: Annotated[list[str], typer.Argument(help="Topics with an archive.", metavar="TOPIC...")],
    *,
    catalog: Annotated[
        str | None, typer.Option(help="Catalog in the configuration of pyiceberg, such as a REST one.", metavar="NAME")
    ] = None,
    catalog_uri: Annotated[
        str | None, typer.Option(help="Or the SQL database of a catalog, such as sqlite:///FILE.", metavar="URI")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(help="Where metadata of new tables is written, such as file:///DIRECTORY.", metavar="URL"),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the tables.", metavar="NAME")] = "headrace",
    every: Annotated[
        float | None,
        typer.Option(help="Sync again after this time, until Ctrl-C. Prints what changed.", min=1.0, metavar="SECONDS"),
    ] = None,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Sync the Iceberg tables of topics with their archives. Files are not copied; each table changes in one commit.

    Sync more often than every archive.stray_seconds (an hour by default): after that time the server deletes files that
    a merge replaced, and a table that still lists them cannot be read. Needs pip install "headrace[iceberg]".
    """
    from headrace.tables.iceberg import open_catalog, sync_iceberg

    if catalog is None and catalog_uri is None:
        raise Failure(Exit.USAGE, "name the catalog: --catalog NAME, or --catalog-uri URI")
    with server.connected(timeout_seconds=60.0) as client:
        opened = open_catalog(catalog, catalog_uri, warehouse)
        if every is None:
            _print_syncs([sync_iceberg(client, topic, opened, namespace) for topic in topics], as_json)
            return
        while True:
            for topic in topics:
                try:
                    sync = sync_iceberg(client, topic, opened, namespace)
                except HeadraceError as error:
                    if not is_transient(error):
                        raise
                    print_note(f"{topic}: {error}; trying again in {every:g} s")
                else:
                    if sync.added or sync.removed:
                        _print_syncs([sync], as_json)
            time.sleep(every)


def _print_syncs(done: list[IcebergSync], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    for sync in done:
        now = f"{counted(sync.rows, 'row')} in {counted(sync.files, 'file')}"
        print_line(f"{sync.table}: {now}, {sync.added} added, {sync.removed} removed")


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column; maps as dictionaries if their keys can be such."""
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except TypeError:
        found = column.to_pylist()
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it; bytes as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _shown(value: Any) -> Any:
    plain = _plain(value)
    if isinstance(plain, list | dict):
        return msgspec.json.encode(plain, enc_hook=str).decode()
    return plain.isoformat(sep=" ") if hasattr(plain, "isoformat") else plain
