"""`headrace spark`: what an operator of Spark's queries asks without a Spark that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headrace.cli.terminal.output import print_line, print_note
from headrace.extras import needing

app = typer.Typer(help="Look into the checkpoints of streaming queries.", no_args_is_help=True)


@app.callback()
def spark() -> None:
    """Look into the checkpoints of streaming queries."""


@app.command("checkpoint", epilog="Example: headrace spark checkpoint ./state/large-orders")
def checkpoint(
    path: Annotated[
        Path,
        typer.Argument(help="Directory of a checkpoint, or one of the files in its folder offsets.", metavar="FILE"),
    ],
) -> None:
    """Print where a query goes on, as the option startingOffsets of another query.

    Use it to move a query to a new checkpoint. It reads files of this machine; it needs no server and no Spark.
    """
    with needing("spark"):
        from headrace.spark.reader.checkpoint_offsets import checkpoint_offsets
    found = checkpoint_offsets(path)
    print_line(msgspec.json.encode(found.topics).decode())
    if found.is_repeated:
        print_note(
            f"these are the offsets after batch {found.batch}. Batch {found.batch + 1} was begun and is not complete: "
            "a query that starts here reads its messages again, and its sink may have them already"
        )
