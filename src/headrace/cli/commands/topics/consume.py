"""`headrace consume`: print messages to stdout. The work is in messages/consumption.py, imported only for this command.

Without a group it reads the partitions directly and commits nothing. With a group it joins as a member and commits what
it has printed, so each message is printed at least once.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import parse_from
from headrace.cli.options.completion import complete_groups, complete_topics
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions

DEFAULT_FORMAT: Final = "{value}"
FIELDS: Final = (
    "partition", "offset", "timestamp", "key", "value", "attributes", "codec", "created_at",
    "producer_id", "message_group_id", "seqno", "topic",
)  # fmt: skip
# How long the connection may break while messages are read.
_PATIENCE_SECONDS: Final = 60.0

EXAMPLES: Final = f"""
Fields of --format: {", ".join(FIELDS)}.

Examples:

  headrace consume orders

  headrace consume orders --from -10 --format '{{partition}} {{offset}} {{key}} {{value}}'

  headrace consume orders refunds --from 2026-07-01T12:00:00Z --to 2026-07-02 --json --max 100

  headrace consume orders --key user-1 --grep 'total=[0-9]{{4}}'

  headrace consume orders --group billing --follow

  headrace consume orders --json | headrace produce orders-copy --json
"""


@with_option_groups
def consume(
    topics: Annotated[
        list[str],
        typer.Argument(help="Names of the topics to read.", metavar="TOPIC...", autocompletion=complete_topics),
    ],
    *,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start at earliest, latest, N, -N, a time, or 15m (15 minutes ago). By default earliest.",
            metavar="PLACE",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Stop before this place, as for --from. By default the present end.", metavar="PLACE"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group and commit offsets.", metavar="NAME", autocompletion=complete_groups
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key.", metavar="TEXT")] = None,
    grep: Annotated[
        str | None,
        typer.Option(help="Only messages whose value matches this regular expression (RE2).", metavar="REGEX"),
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each message as JSON on a line; `produce --json` reads it back.")
    ] = False,
    server: ServerOptions,
) -> None:
    """Print the messages of topics. With --follow, wait for new messages too."""
    place = parse_from(begin) if begin is not None else None
    end = parse_from(to, "--to") if to is not None else None
    if group is not None and partition:
        raise Failure(
            Exit.USAGE, "--partition cannot be combined with --group: the group assigns partitions to its members"
        )
    if end is not None and (follow or group is not None):
        other = "--follow" if follow else "--group"
        raise Failure(Exit.USAGE, f"--to cannot be combined with {other}, which reads on")
    if on_undecodable not in ("raise", "raw", "skip"):
        raise Failure(Exit.USAGE, f"--on-undecodable is {on_undecodable!r}: it must be raise, raw or skip")
    from headrace.cli.messages.consumption import PrintRequest, print_messages
    from headrace.cli.messages.filters import MessageFilter
    from headrace.cli.messages.formats import parse_format
    from headrace.client.read.decode import check_on_undecodable

    filter = MessageFilter(None if key is None else key.encode(errors="surrogateescape"), grep)
    filter.check()
    wanted = PrintRequest(
        tuple(dict.fromkeys(topics)),
        group,
        place,
        end,
        tuple(partition or ()),
        follow,
        count,
        filter,
        None if as_json else parse_format(format),
        decode,
        check_on_undecodable(on_undecodable),
    )
    with server.connected(_PATIENCE_SECONDS) as client:
        print_messages(client, wanted)
