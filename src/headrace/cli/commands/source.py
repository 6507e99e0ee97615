"""`headrace source`: list, reset."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import DEFAULT_URL, Ca, Json, Token, Url, connected
from headrace.cli.output import print_json, print_line, print_table, time_shown
from headrace.cli.remote.paths import path_of

app = typer.Typer(
    help="List and reset the sources (producer id and message group id) of a topic.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="Name of the topic that the sources write to.")]


@app.command("list", epilog="Example: headrace source list orders --producer-id till-7")
def list_sources(
    topic: Topic,
    producer_id: Annotated[str | None, typer.Option(help="Only the sources of this producer.", metavar="ID")] = None,
    limit: Annotated[
        int, typer.Option(help="Maximum number of sources, the most recent first.", min=1, max=100_000)
    ] = 1_000,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """List sources with last seqno, partition and time of last use, the most recent first."""
    with connected(url, token, ca) as client:
        path = path_of("topics", topic, "sources")
        sources = client.get(path, producer_id=producer_id, max_sources=limit)["sources"]
    if as_json:
        print_json(sources)
    elif not sources:
        print_line(f"topic {topic} has no sources: nothing was published with a producer id")
    else:
        print_table(
            ("producer id", "message group id", "last seqno", "partition", "last seen"),
            [
                (
                    each["producer_id"],
                    each["message_group_id"],
                    "" if each["last_seqno"] is None else str(each["last_seqno"]),
                    each["partition"],
                    time_shown(each["last_seen_us"]),
                )
                for each in sources
            ],
        )


@app.command("reset", epilog="Example: headrace source reset orders --producer-id till-7 --yes")
def reset(
    topic: Topic,
    producer_id: Annotated[str, typer.Option(help="Id of the producer.", metavar="ID")],
    message_group_id: Annotated[
        str, typer.Option(help="Id of the message group, if the source has one.", metavar="ID")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Reset the last seqno of a source, so that its next message may have any seqno. Asks first on a terminal.

    After a reset, messages that the source sends again are written again. Needs the right to manage the topic.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                Exit.USAGE, "after a reset, messages that are sent again are written again: add --yes to confirm"
            )
        typer.confirm(f"Reset the last seqno of producer {producer_id} of topic {topic}?", abort=True)
    with connected(url, token, ca) as client:
        path = path_of("topics", topic, "sources", producer_id)
        reset = client.delete(path, message_group_id=message_group_id or None)
    if as_json:
        print_json(reset)
    elif reset["forgotten_seqno"] is None:
        print_line(f"producer {producer_id} of topic {topic} had no seqno to reset")
    else:
        forgotten = reset["forgotten_seqno"]
        print_line(f"reset producer {producer_id} of topic {topic}: its last seqno was {forgotten}")
