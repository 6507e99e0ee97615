"""`headrace consume`: print messages to stdout. The work is in messages/consumption.py, imported only for this command.

Without a group it reads the partitions directly and commits nothing. With a group it joins as a member, or reads as one
consumer of a fixed group, and commits what it has printed, so each message is printed at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import parse_from
from headrace.cli.options.completion import complete_groups, complete_topics
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions
from headrace.core.positions import Position

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

  headrace consume orders --where 'value.amount > 400 and attributes.kind == "order"'

  headrace consume orders --group billing --follow

  headrace consume orders --group workers --consumer-index 0 --follow

  headrace consume orders --json | headrace produce orders-copy --json
"""


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which messages are printed."""

    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start at earliest, latest, N, -N, a time, or 15m (15 minutes ago). By default earliest.",
            metavar="PLACE",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(help="Stop before this place, as for --from. By default the present end.", metavar="PLACE"),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group and commit offsets.", metavar="NAME", autocompletion=complete_groups
        ),
    ] = None
    consumer_index: Annotated[
        int | None,
        typer.Option(help="Read as this consumer of a group of a fixed size, counted from 0.", metavar="N", min=0),
    ] = None
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")] = (
        None
    )
    key: Annotated[str | None, typer.Option(help="Only messages with this key.", metavar="TEXT")] = None
    grep: Annotated[
        str | None,
        typer.Option(help="Only messages whose value matches this regular expression (RE2).", metavar="REGEX"),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            help="Only messages that fulfil this expression over value.FIELD (of JSON), key, attributes.NAME, "
            "partition, offset and seqno.",
            metavar="EXPRESSION",
        ),
    ] = None
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep waiting for new messages until Ctrl-C.")] = False
    count: Annotated[int | None, typer.Option("--max", help="Stop after N messages.", metavar="N", min=1)] = None

    def bounds(self) -> tuple[Position | None, Position | None]:
        """Where reading begins and ends, after the options were found to go together."""
        begin = parse_from(self.begin) if self.begin is not None else None
        end = parse_from(self.to, "--to") if self.to is not None else None
        if self.group is not None and self.partition:
            rule = "the group assigns partitions to its members"
            raise Failure(Exit.USAGE, f"--partition cannot be combined with --group: {rule}")
        if self.group is None and self.consumer_index is not None:
            raise Failure(Exit.USAGE, "--consumer-index needs --group: it names a consumer of a group of a fixed size")
        if begin is not None and self.consumer_index is not None:
            rule = "a group of a fixed size exists before, and continues at its committed offsets"
            raise Failure(Exit.USAGE, f"--from cannot be combined with --consumer-index: {rule}")
        if end is not None and (self.follow or self.group is not None):
            other = "--follow" if self.follow else "--group"
            raise Failure(Exit.USAGE, f"--to cannot be combined with {other}, which reads on")
        return begin, end


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How a message is printed."""

    format: Annotated[str, typer.Option(help="Output format of a message.", metavar="TEXT")] = DEFAULT_FORMAT
    decode: Annotated[
        bool, typer.Option("--decode/--no-decode", help="Decompress values, or print them as they are stored.")
    ] = True
    on_undecodable: Annotated[
        str,
        typer.Option(
            help="If a value cannot be decoded by its codec: raise (stop), raw (print it as stored) or skip.",
            metavar="CHOICE",
        ),
    ] = "raise"
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each message as JSON on a line; `produce --json` reads it back.")
    ] = False


@with_option_groups
def consume(
    topics: Annotated[
        list[str],
        typer.Argument(help="Names of the topics to read.", metavar="TOPIC...", autocompletion=complete_topics),
    ],
    *,
    selection: SelectionOptions,
    output: OutputOptions,
    server: ServerOptions,
) -> None:
    """Print the messages of topics. With --follow, wait for new messages too."""
    begin, end = selection.bounds()
    from headrace.cli.messages.consumption import PrintRequest, print_messages
    from headrace.cli.messages.filters import MessageFilter
    from headrace.cli.messages.formats import parse_format
    from headrace.client.read.decode import check_on_undecodable
    from headrace.client.where.expression import parse

    key = None if selection.key is None else selection.key.encode(errors="surrogateescape")
    where = None if selection.where is None else parse(selection.where)
    filter = MessageFilter(key, selection.grep, where)
    filter.check()
    wanted = PrintRequest(
        tuple(dict.fromkeys(topics)),
        selection.group,
        selection.consumer_index,
        begin,
        end,
        tuple(selection.partition or ()),
        selection.follow,
        selection.count,
        filter,
        None if output.as_json else parse_format(output.format),
        output.decode,
        check_on_undecodable(output.on_undecodable, "--on-undecodable"),
    )
    with server.connected(_PATIENCE_SECONDS) as client:
        print_messages(client, wanted)
