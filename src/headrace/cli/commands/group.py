"""`headrace group`: create, list, describe, seek, delete."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import chosen_partitions, offsets_at, parse_from
from headrace.cli.options import DEFAULT_URL, Ca, Json, Token, Url, connected
from headrace.cli.output import print_json, print_line, print_note, print_table, time_shown
from headrace.cli.remote.paths import path_of
from headrace.core.positions import AtTime, Earliest, Latest, Position, read_from

app = typer.Typer(help="Create, list, describe, seek and delete consumer groups.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic that the group reads.")]
Name = Annotated[str, typer.Argument(help="Name of the group.", metavar="GROUP")]


@app.command(
    "create",
    epilog="Examples: headrace group create orders billing --important; "
    "headrace group create orders workers --consumers 4 --start latest",
)
def create(
    topic: Topic,
    group: Name,
    consumers: Annotated[
        int | None,
        typer.Option(help="Fixed number of consumers, named 0, 1, …. By default members join and leave.", min=1),
    ] = None,
    important: Annotated[
        bool | None,
        typer.Option(
            "--important/--not-important",
            help="Retention keeps messages until this group has read them.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(help="Where a new group starts: earliest, latest, a time, or 15m (15 minutes ago).")
    ] = "earliest",
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Create a group, or change the size or importance of an existing one without moving its offsets."""
    begins = parse_from(start, "--start")
    if not isinstance(begins, Earliest | Latest | AtTime):
        raise Failure(
            Exit.USAGE, f"--start {start}: a group starts at earliest, latest or a time; use `group seek` to move it"
        )
    body = {
        "consumers": consumers,
        "important": important,
        "read_from": read_from(begins),
    }
    with connected(url, token, ca) as client:
        names = client.get(path_of("topics", topic, "groups"))["groups"]
        is_new = group.casefold() not in (name.casefold() for name in names)
        made = client.put(path_of("topics", topic, "groups", group), body)
    if not is_new and start != "earliest":
        print_note(f"group {group} exists: --start applies to new groups only; move it with `headrace group seek`")
    if as_json:
        print_json(made)
        return
    kind = "members join and leave" if made["consumers"] is None else f"{made['consumers']} fixed consumers"
    done = "created" if is_new else "updated"
    print_line(f"{done} group {group} of topic {topic} ({kind}{', important' if made['important'] else ''})")


@app.command("list")
def list_groups(
    topic: Topic, as_json: Json = False, url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None
) -> None:
    """List the groups of a topic with their lag."""
    with connected(url, token, ca) as client:
        names = client.get(path_of("topics", topic, "groups"))["groups"]
        groups = [client.get(path_of("topics", topic, "groups", name)) for name in names]
    if as_json:
        print_json(groups)
    elif not groups:
        print_line(f"topic {topic} has no groups yet: `headrace consume {topic} --group NAME` creates one")
    else:
        print_table(
            ("group", "consumers", "lag", "lag seconds", "important"),
            [
                (each["name"], len(each["members"]), each["lag_messages"], each["lag_seconds"], each["important"])
                for each in groups
            ],
        )


@app.command("describe", epilog="Example: headrace group describe orders billing --json")
def describe(
    topic: Topic, group: Name, as_json: Json = False, url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None
) -> None:
    """Show a group's consumers, and its position and lag in each partition."""
    with connected(url, token, ca) as client:
        found = client.get(path_of("topics", topic, "groups", group))
    if as_json:
        print_json(found)
        return
    begins = found["read_from"]
    facts = {
        "group": found["name"],
        "topic": found["topic"],
        "kind": "members join and leave" if found["consumers"] is None else f"{found['consumers']} fixed consumers",
        "important": found["important"],
        "started at": time_shown(begins) if isinstance(begins, int) else begins,
        "generation": found["generation"],
        "lag": f"{found['lag_messages']:,} messages, {found['lag_seconds']:,.1f} seconds",
    }
    print_table(("", ""), facts.items())
    print_table(
        ("partition", "committed", "position", "end offset", "lag", "lag seconds", "consumer"),
        [
            (
                at["partition"],
                at["committed"],
                at["position"],
                at["end_offset"],
                at["lag_messages"],
                at["lag_seconds"],
                at["consumer"],
            )
            for at in found["partitions"]
        ],
    )


@app.command(
    "seek",
    epilog="Examples: headrace group seek orders billing earliest; headrace group seek orders billing 15m; "
    "headrace group seek orders billing 1200 --partition 3",
    # A position such as -100 must not be parsed as an option.
    context_settings={"ignore_unknown_options": True},
)
def seek(
    topic: Topic,
    group: Name,
    place: Annotated[str, typer.Argument(help="earliest, latest, N, -N, a time, or 15m (15 minutes ago).")],
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Move a group, forward or back. Members that are reading continue at the new position."""
    to = parse_from(place, "the position")
    with connected(url, token, ca) as client:
        if not partition and isinstance(to, Earliest | Latest | AtTime):
            body: dict[str, Any] = {"to": read_from(to)}
        elif isinstance(to, AtTime):
            raise Failure(Exit.USAGE, "a time moves all partitions: omit --partition, or give an offset")
        else:
            body = {"offsets": _offsets(client.get(path_of("topics", topic)), to, partition or [])}
        moved = client.post(path_of("topics", topic, "groups", group, "seek"), body)
    if as_json:
        print_json(moved["offsets"])
    else:
        print_table(("partition", "next offset"), [(at["partition"], at["offset"]) for at in moved["offsets"]])


def _offsets(topic: dict[str, Any], to: Position, only: list[int]) -> list[dict[str, int]]:
    """The offset for each partition, clamped to the messages that exist."""
    known = {each["partition"]: (each["start_offset"], each["end_offset"]) for each in topic["partitions"]}
    bounds = {partition: known[partition] for partition in chosen_partitions(topic["name"], only, known)}
    offsets = offsets_at(to, bounds, _no_time, topic["name"])
    return [{"partition": partition, "offset": offset} for partition, offset in offsets.items()]


def _no_time(partition: int, time_us: int) -> int:
    raise AssertionError("the server resolves times")


@app.command("delete")
def delete(
    topic: Topic,
    group: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Delete a group with its offsets; messages are kept. Asks first on a terminal."""
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(Exit.USAGE, "deleting a group deletes its offsets: add --yes to confirm")
        typer.confirm(f"Delete group {group} of topic {topic}?", abort=True)
    with connected(url, token, ca) as client:
        client.delete(path_of("topics", topic, "groups", group))
    print_line(f"deleted group {group} of topic {topic}")
