"""`headrace client`: who is connected."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.clients import RECENT_SECONDS
from headrace.core.text import counted, duration_shown

if TYPE_CHECKING:
    from headrace.wire.descriptions import ClientMemberOut, ClientOut

app = typer.Typer(help="Show who is connected.", no_args_is_help=True)


@app.command("list", epilog="Examples: headrace client list; headrace client list --topic orders --json")
@with_option_groups
def list_clients(
    *,
    topic: Annotated[
        str | None, typer.Option(help="Only clients that read or write this topic.", metavar="TOPIC")
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Also clients whose last call was up to 15 minutes ago.")
    ] = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """List the clients of all servers that called in the last minute: who, from where, what they read and write.

    A token that may not read all topics sees its own clients, and what others do in topics that it may read.
    """
    from headrace.cli.remote.scrape import clients

    address = server.address()
    with server.connected() as client:
        found, problems = clients(client, address, client.list_servers())
    for problem in problems:
        print_note(problem)
    if topic is not None:
        found = [each for each in found if is_at(each, topic)]
    known, since_us = len(found), time.time_ns() // 1000 - RECENT_SECONDS * MICROSECONDS
    if not everyone:
        found = [each for each in found if each.seen_us >= since_us]
    if as_json:
        print_json(found)
    elif not found:
        print_line("no clients" if topic is None else f"no clients that read or write topic {topic}")
    else:
        print_table(
            ("client id", "process", "library", "protocol", "token", "address", "reads", "writes", "last call"),
            [
                (
                    client_id or "-",
                    process_of(each[0]),
                    library_of(each[0]),
                    sorted({client.protocol for client in each}),
                    principal,
                    address,
                    sorted({f"{member.topic} as {member.group}" for client in each for member in client.members}),
                    sorted({producer.topic for client in each for producer in client.producers}),
                    ago(max(client.seen_us for client in each)),
                )
                for (client_id, *_, principal, address), each in _processes(found).items()
            ],
        )
    if len(found) < known:
        print_note(f"{counted(known - len(found), 'client')} more called in the last 15 minutes: --all")


def _processes(clients: list[ClientOut]) -> dict[tuple[str, str, str, str, str], list[ClientOut]]:
    """The clients of each process: one that publishes has a connection of another protocol for that."""
    found: dict[tuple[str, str, str, str, str], list[ClientOut]] = {}
    for each in clients:
        key = each.client_id, process_of(each), library_of(each), each.principal, each.address
        found.setdefault(key, []).append(each)
    return found


def is_at(client: ClientOut, topic: str) -> bool:
    """Whether a client reads or writes a topic."""
    named = {each.topic for each in client.members} | {each.topic for each in client.producers}
    return topic.casefold() in map(str.casefold, named)


def process_of(client: ClientOut) -> str:
    """The host and process that a client says it runs in."""
    return f"{client.host}:{client.pid}" if client.pid else client.host or "-"


def library_of(client: ClientOut) -> str:
    """The library that a client says it uses, with its version."""
    return f"{client.library} {client.version}".strip() or "-"


def ago(time_us: int | None) -> str:
    """How long ago something was."""
    return "-" if time_us is None else f"{duration_shown(time.time() - time_us / 1e6)} ago"


def members_of(clients: list[ClientOut], topic: str, group: str) -> dict[str, tuple[ClientOut, ClientMemberOut]]:
    """The clients that are members of a group, by the name of the member; of several the one that called last."""
    found: dict[str, tuple[ClientOut, ClientMemberOut]] = {}
    for client in clients:
        for member in client.members:
            if (member.topic.casefold(), member.group) == (topic.casefold(), group):
                found.setdefault(member.member, (client, member))
    return found
