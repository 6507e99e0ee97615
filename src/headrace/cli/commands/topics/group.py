"""`headrace group`: create, list, describe, seek, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import chosen_partitions, group_start, parse_from
from headrace.cli.options.completion import complete_topics
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.negative_arguments import NegativeArguments
from headrace.cli.options.shared import Group, Json, ServerOptions, Yes, confirm
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.errors import InvalidInput
from headrace.core.groups.moves import Move, Onward, moves, parse_onward
from headrace.core.names import check_group_name
from headrace.core.positions import Position, moment
from headrace.core.text import counted, time_shown

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.core.reports.descriptions import GroupDescription
    from headrace.wire.descriptions import ClientMemberOut, ClientOut

app = typer.Typer(help="Create, list, describe, seek and delete consumer groups.", no_args_is_help=True)

Topic = Annotated[
    str,
    typer.Argument(help="Name of the topic that the group reads.", metavar="TOPIC", autocompletion=complete_topics),
]
_MEMBERS = "members join and leave"


@app.command(
    "create",
    epilog="Examples: headrace group create orders billing --important; "
    "headrace group create orders workers --consumers 4 --from latest",
)
@with_option_groups
def create(
    topic: Topic,
    group: Group,
    *,
    consumers: Annotated[
        int | None,
        typer.Option(
            help="Fixed number of consumers, named 0, 1, …. By default members join and leave.", metavar="N", min=1
        ),
    ] = None,
    important: Annotated[
        bool | None,
        typer.Option(
            "--important/--not-important",
            help="Retention keeps messages until this group has read them.",
            show_default=False,
        ),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where a new group starts: earliest, latest, a time, or 15m (15 minutes ago).",
            metavar="PLACE",
        ),
    ] = "earliest",
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Create a group, or change the size or importance of an existing one without moving its offsets."""
    read_from = group_start(parse_from(begin))
    with server.connected() as client:
        is_new = check_group_name(group) not in client.list_groups(topic)
        made = client.register_group(topic, group, consumers, important, read_from)
    if not is_new and begin != "earliest":
        print_note(f"group {group} exists: --from applies to new groups only; move it with `headrace group seek`")
    if as_json:
        print_json(_shown(made))
        return
    done = "created" if is_new else "updated"
    print_line(f"{done} group {group} of topic {topic} ({_kind(made)}{', important' if made.important else ''})")


@app.command("list", epilog="Examples: headrace group list; headrace group list orders --json")
@with_option_groups
def list_groups(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="Name of a topic. By default all topics that you may read.",
            metavar="[TOPIC]",
            autocompletion=complete_topics,
        ),
    ] = None,
    *,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """List the groups of a topic, or of all topics, with their lag."""
    with server.connected() as client:
        groups = _groups(client, topic)
    if as_json:
        print_json([_shown(each) for each in groups])
    elif not groups:
        whose = f"topic {topic} has" if topic is not None else "the topics have"
        print_line(f"{whose} no groups yet: `headrace consume TOPIC --group NAME` creates one")
    else:
        print_table(
            ("topic", "group", "consumers", "lag", "lag seconds", "important"),
            [
                (each.topic, each.name, len(each.members), each.lag_messages, each.lag_seconds, each.important)
                for each in groups
            ],
        )


def _groups(client: Client, topic: str | None) -> list[GroupDescription]:
    """The groups of a topic, or of all topics that may be read."""
    from headrace.core.errors import Forbidden, NotFound

    if topic is not None:
        return [client.describe_group(topic, name) for name in client.list_groups(topic)]
    found: list[GroupDescription] = []
    for each in client.list_topics():
        # A topic or a group may be deleted meanwhile, and one that is seen need not be readable.
        try:
            found += [client.describe_group(each, name) for name in client.list_groups(each)]
        except (Forbidden, NotFound):
            continue
    return found


@app.command("describe", epilog="Example: headrace group describe orders billing --json")
@with_option_groups
def describe(topic: Topic, group: Group, *, as_json: Json = False, server: ServerOptions) -> None:
    """Show who reads, and the position and lag in each partition."""
    from headrace.cli.commands.servers.client import members_of
    from headrace.cli.remote.scrape import clients

    address = server.address()
    with server.connected() as client:
        found = client.describe_group(topic, group)
        known, problems = clients(client, address, client.list_servers())
    of_members = members_of(known, found.topic, found.name)
    for problem in problems:
        print_note(problem)
    if as_json:
        described = msgspec.to_builtins(_shown(found))
        print_json({**described, "clients": [each for each, _ in of_members.values()]})
        return
    begins = found.read_from
    facts = {
        "group": found.name,
        "topic": found.topic,
        "kind": _kind(found),
        "important": found.important,
        "started at": time_shown(begins) if isinstance(begins, int) else begins,
        "generation": found.generation,
        "lag": f"{counted(found.lag_messages, 'message')}, {found.lag_seconds:,.1f} seconds",
    }
    print_table(("", ""), facts.items())
    _print_members(found, of_members)
    print_table(
        ("partition", "committed", "position", "end offset", "lag", "lag seconds", "consumer"),
        [
            (partition, at.committed, at.position, at.end, at.lag_messages, at.lag_seconds, at.consumer)
            for partition, at in found.progress.items()
        ],
    )


def _print_members(group: GroupDescription, known: dict[str, tuple[ClientOut, ClientMemberOut]]) -> None:
    """Who reads: the members of the group with their clients, and those that only a protocol knows."""
    from headrace.cli.commands.servers.client import ago, library_of, process_of

    rows: list[tuple[object, ...]] = []
    for name in [*group.members, *sorted(known.keys() - group.members.keys() if group.consumers is None else ())]:
        client, member = known.get(name, (None, None))
        is_gone = name not in group.members and (client is None or client.protocol in ("flight", "http"))
        if client is None or member is None:
            rows.append((name, group.members[name], "-", "-", "-", "-", "-", "-"))
        elif not is_gone:
            place = (client.client_id or "-", process_of(client), library_of(client), client.address, client.principal)
            rows.append((name, group.members.get(name), *place, ago(member.polled_us)))
    if rows:
        print_table(("member", "partitions", "client id", "process", "library", "address", "token", "last poll"), rows)


def _shown(group: GroupDescription) -> Any:
    from headrace.wire.descriptions import GroupOut

    return GroupOut.of(group)


def _kind(group: GroupDescription) -> str:
    return _MEMBERS if group.consumers is None else f"{group.consumers} fixed consumers"


@app.command(
    "seek",
    cls=NegativeArguments,
    epilog="Examples: headrace group seek orders billing earliest; headrace group seek orders billing -10m --dry-run; "
    "headrace group seek orders billing +1 --partition 3 --yes",
)
@with_option_groups
def seek(
    topic: Topic,
    group: Group,
    place: Annotated[
        str,
        typer.Argument(
            help="earliest, latest, an offset N, -N (the last N messages of each partition), +N (skip N messages), a "
            "time, -10m (10 minutes ago), or 0:17,3:4 for some partitions.",
            metavar="PLACE",
        ),
    ],
    *,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be skipped or read again.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Move a group, forward or back. Members that are reading continue at the new position.

    Shows for each partition what is read again or skipped. Asks first if messages that the group has not read are
    skipped; without a terminal that needs --yes.
    """
    to = parse_onward(place) or parse_from(place, "the position")
    with server.connected() as client:
        known = client.offsets(topic)
        chosen = chosen_partitions(topic, partition or [], known)
        found = _moves(client, client.describe_group(topic, group), known, to, chosen)
        if not dry_run:
            _confirm_skipping(group, found, yes, as_json)
            client.seek(topic, group, {move.partition: move.after for move in found})
    _print_moves(found, as_json)
    if not dry_run and not as_json:
        print_line(f"moved group {group} of topic {topic}")


def _moves(
    client: Client,
    group: GroupDescription,
    bounds: dict[int, tuple[int, int]],
    to: Position | Onward,
    partitions: list[int],
) -> list[Move]:
    try:
        return moves(
            "the position",
            group,
            bounds,
            to,
            lambda us, each: client.offsets_at(group.topic, moment(us), each),
            partitions,
        )
    except InvalidInput as error:
        raise Failure(Exit.REFUSED, str(error)) from None


def _confirm_skipping(group: str, found: list[Move], is_confirmed: bool, as_json: bool) -> None:
    """Ask before messages are skipped that the group has not read; a program that reads JSON gets no table."""
    skipped = sum(move.skipped for move in found)
    if skipped and not is_confirmed and not as_json and sys.stdin.isatty():
        _print_moves(found, as_json=False)
    if skipped:
        what = f"{counted(skipped, 'message')} that group {group} has not read"
        confirm(f"Skip {what}?", f"this would skip {what}, see --dry-run", is_confirmed)


def _print_moves(found: list[Move], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "partition": move.partition,
                    "before": move.before,
                    "offset": move.after,
                    "skipped": move.skipped,
                    "read_again": move.read_again,
                }
                for move in found
            ]
        )
        return
    print_table(
        ("partition", "was at", "goes to", "effect"),
        [(move.partition, move.before, move.after, move.effect or "stays") for move in found],
    )


@app.command("delete")
@with_option_groups
def delete(topic: Topic, group: Group, *, yes: Yes = False, server: ServerOptions) -> None:
    """Delete a group with its offsets; messages are kept. Asks first on a terminal."""
    confirm(f"Delete group {group} of topic {topic}?", "deleting a group deletes its offsets", yes)
    with server.connected() as client:
        client.delete_group(topic, group)
    print_line(f"deleted group {group} of topic {topic}")
