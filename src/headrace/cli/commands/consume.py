"""`headrace consume`: print messages to stdout. The work is in messages/consumption.py, imported only for this command.

Without a group it reads the partitions directly and commits nothing. With a group it joins as a member and commits what
it has printed, so each message is printed at least once.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import parse_from
from headrace.cli.options import DEFAULT_URL, AnyUrl, Ca, Json, Token

DEFAULT_FORMAT: Final = "{value}"
FIELDS: Final = (
    "partition", "offset", "timestamp", "key", "value", "attributes", "codec", "created_at",
    "producer_id", "message_group_id", "seqno", "topic",
)  # fmt: skip

EXAMPLES: Final = f"""
Fields of --format: {", ".join(FIELDS)}.

Examples:

  headrace consume orders

  headrace consume orders --from -10 --format '{{partition}} {{offset}} {{key}} {{value}}'

  headrace consume orders --from 2026-07-01T12:00:00Z --json --max 100

  headrace consume orders --group billing --follow --url headrace://127.0.0.1:7071
"""


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic to read.")],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start at earliest, latest, N, -N, a time, or 15m (15 minutes ago). \\[earliest]",
            metavar="PLACE",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group and commit offsets.", metavar="NAME")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep waiting for new messages until Ctrl-C.")] = False,
    count: Annotated[int | None, typer.Option("--max", help="Stop after N messages.", metavar="N", min=1)] = None,
    format: Annotated[str, typer.Option(help="Output format of a message.", metavar="TEXT")] = DEFAULT_FORMAT,
    decode: Annotated[
        bool, typer.Option("--decode/--no-decode", help="Decompress values, or print them as they are stored.")
    ] = True,
    on_undecodable: Annotated[
        str,
        typer.Option(
            help="If a value cannot be decoded by its codec: raise (stop), raw (print it as stored) or skip.",
            metavar="CHOICE",
        ),
    ] = "raise",
    as_json: Json = False,
    url: AnyUrl = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Print the messages of a topic. With --follow, wait for new messages too."""
    place = parse_from(begin) if begin is not None else None
    if group is not None and partition:
        raise Failure(
            Exit.USAGE, "--partition cannot be combined with --group: the group assigns partitions to its members"
        )
    from headrace.cli.messages.consumption import Wanted, print_messages
    from headrace.cli.messages.formats import parse_format

    if on_undecodable not in ("raise", "raw", "skip"):
        raise Failure(Exit.USAGE, f"--on-undecodable is {on_undecodable!r}: it must be raise, raw or skip")
    line = None if as_json else parse_format(format, topic)
    wanted = Wanted(topic, group, place, partition or [], follow, count, decode, on_undecodable)
    print_messages(wanted, line, url, token, ca)
