"""`headrace source`: list, reset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions, Topic, Yes, confirm
from headrace.cli.terminal.output import print_json, print_line, print_table
from headrace.core.text import time_shown

app = typer.Typer(
    help="List and reset the sources (producer id and message group id) of a topic.",
    no_args_is_help=True,
)


@app.command("list", epilog="Example: headrace source list orders --producer-id till-7")
@with_option_groups
def list_sources(
    topic: Topic,
    *,
    producer_id: Annotated[str | None, typer.Option(help="Only the sources of this producer.", metavar="ID")] = None,
    limit: Annotated[
        int, typer.Option(help="Maximum number of sources, the most recent first.", min=1, max=100_000, metavar="N")
    ] = 1_000,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """List sources with last seqno, partition and time of last use, the most recent first."""
    with server.connected() as client:
        sources = client.list_sources(topic, producer_id, limit)
    if as_json:
        print_json([asdict(each) for each in sources])
    elif not sources:
        print_line(f"topic {topic} has no sources: nothing was published with a producer id")
    else:
        print_table(
            ("producer id", "message group id", "last seqno", "partition", "last seen"),
            [
                (
                    each.producer_id,
                    each.message_group_id,
                    "" if each.last_seqno is None else str(each.last_seqno),
                    each.partition,
                    time_shown(each.last_seen_us),
                )
                for each in sources
            ],
        )


@app.command("reset", epilog="Example: headrace source reset orders --producer-id till-7 --yes")
@with_option_groups
def reset(
    topic: Topic,
    *,
    producer_id: Annotated[str, typer.Option(help="Id of the producer.", metavar="ID")],
    message_group_id: Annotated[
        str, typer.Option(help="Id of the message group, if the source has one.", metavar="ID", show_default=False)
    ] = "",
    yes: Yes = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Reset the last seqno of a source, so that its next message may have any seqno. Asks first on a terminal.

    After a reset, messages that the source sends again are written again. Needs the right to manage the topic.
    """
    question = f"Reset the last seqno of producer {producer_id} of topic {topic}?"
    confirm(question, "after a reset, messages that are sent again are written again", yes)
    with server.connected() as client:
        forgotten = client.reset_source(topic, producer_id, message_group_id)
    if as_json:
        print_json(
            {"producer_id": producer_id, "message_group_id": message_group_id, "forgotten_seqno": forgotten},
        )
    elif forgotten is None:
        print_line(f"producer {producer_id} of topic {topic} had no seqno to reset")
    else:
        print_line(f"reset producer {producer_id} of topic {topic}: its last seqno was {forgotten}")
