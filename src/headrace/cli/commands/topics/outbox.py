"""`headrace outbox`: publish the messages that a program leaves in a table of its own database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions
from headrace.cli.terminal.output import print_line
from headrace.core.text import counted
from headrace.extras import needing

if TYPE_CHECKING:
    import sqlalchemy as sa

app = typer.Typer(help="Publish messages that a program wrote in a transaction of its own.", no_args_is_help=True)

Database = Annotated[
    str, typer.Option(help="URL of your database, as SQLAlchemy takes it.", metavar="URL", envvar="HEADRACE_DATABASE")
]
Table = Annotated[str, typer.Option(help="Name of the table.", metavar="NAME")]
_TABLE = "headrace_outbox"
_PATIENCE_SECONDS = 60.0


@app.command("create", epilog="Example: headrace outbox create --database sqlite:///shop.db")
@with_option_groups
def create(*, database: Database, table: Table = _TABLE) -> None:
    """Create the tables, unless they exist. You insert topic, key, value and attributes; the relay needs the rest."""
    with needing("broker"):
        from headrace.outbox import outbox_table
    outbox_table(name=table).metadata.create_all(_engine(database))
    print_line(f"tables {table} and {table}_numbers are ready")


@app.command(
    "relay",
    epilog="Examples: headrace outbox relay --database sqlite:///shop.db; headrace outbox relay --database "
    "postgresql+psycopg://app@db.example/shop --every 0.2",
)
@with_option_groups
def relay(
    *,
    database: Database,
    table: Table = _TABLE,
    producer_id: Annotated[
        str, typer.Option(help="Producer id of the relay: one for each table.", metavar="ID")
    ] = "outbox",
    every: Annotated[
        float, typer.Option(help="How long to wait when there is nothing to publish.", min=0.01, metavar="SECONDS")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Publish what is there, and end.")] = False,
    server: ServerOptions,
) -> None:
    """Publish rows in the order in which they were committed, each exactly once, and delete them.

    Rows get their numbers when they are visible, since ids of a sequence may be committed out of order. Stop it at any
    time: the next run continues. One relay runs for a table; a second takes over.
    """
    with needing("broker"):
        from headrace.outbox import Relay, outbox_table
    engine = _engine(database)
    published = 0
    with (
        server.connected(_PATIENCE_SECONDS) as client,
        Relay(engine, client, table=outbox_table(name=table), producer_id=producer_id) as running,
    ):
        while True:
            done = _run(running, database)
            published += done
            if not done:
                if once:
                    break
                time.sleep(every)
    print_line(f"published {counted(published, 'message')}")


def _run(running: Any, database: str) -> int:
    """One round; what the database refuses is one line."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return int(running.run_once())
    except SQLAlchemyError as error:
        raise Failure(Exit.FAILING, f"the database does not do it: {str(error).splitlines()[0]}") from None


def _engine(database: str) -> sa.Engine:
    import sqlalchemy as sa
    from sqlalchemy.exc import ArgumentError

    try:
        return sa.create_engine(database)
    except (ArgumentError, ModuleNotFoundError) as error:
        raise Failure(Exit.USAGE, f"--database cannot be used: {error}") from None
