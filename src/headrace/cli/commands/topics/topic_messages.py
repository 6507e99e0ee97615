"""The commands of `headrace topic` that move or delete messages: purge, trim, copy, export, import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.positions import chosen_partitions, parse_from
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions, Topic, Yes, confirm
from headrace.cli.terminal.output import print_json, print_line, print_note
from headrace.core.names import topic_key
from headrace.core.text import counted

if TYPE_CHECKING:
    from headrace.cli.messages.readers import TopicRange
    from headrace.client import Client

# How long the connection may break while messages are moved.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a topic are meant."""

    begin: Annotated[
        str,
        typer.Option("--from", help="Start at earliest, N, -N, a time, or 15m (15 minutes ago).", metavar="PLACE"),
    ] = "earliest"
    to: Annotated[str, typer.Option(help="Stop before this place, written as for --from.", metavar="PLACE")] = "latest"
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")] = (
        None
    )

    def of(self, client: Client, topic: str) -> TopicRange:
        """The offsets of a topic that are meant."""
        from headrace.cli.messages.readers import range_of

        return range_of(client, topic, parse_from(self.begin), parse_from(self.to, "--to"), self.partition or ())


KeepPartitions = Annotated[
    bool,
    typer.Option("--keep-partitions", help="Write each message to the partition of the same number, not by its key."),
]


@with_option_groups
def purge(topic: Topic, *, yes: Yes = False, as_json: Json = False, server: ServerOptions) -> None:
    """Delete all messages of a topic now; its settings, groups and offsets stay. Asks first on a terminal.

    What an important group has not read yet is kept.
    """
    _trim(topic, None, f"Delete all messages of topic {topic}?", yes, as_json, server)


@with_option_groups
def trim(
    topic: Topic,
    *,
    before: Annotated[
        str | None,
        typer.Option(help="Delete what is older: 2026-07-01T12:00Z, or 7d (7 days ago).", metavar="TIME"),
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option(help="Delete the messages below this offset, exactly.", metavar="N")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(help="With --before-offset: only of this partition; may be repeated.", metavar="N"),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Delete the messages written before a time, or below an offset, once. Asks first on a terminal.

    Before a time, whole segments are deleted, as by retention, so some older messages may stay; and what an important
    group has not read yet is kept. Below an offset, exactly those are deleted, or nothing if an important group has
    not read them.
    """
    if (before is None) == (before_offset is None):
        raise Failure(Exit.USAGE, "give either --before or --before-offset")
    if before_offset is not None:
        _delete_before(topic, before_offset, partition or [], yes, as_json, server)
        return
    if partition:
        raise Failure(Exit.USAGE, "--partition needs --before-offset: a time is for the whole topic")
    _trim(topic, before, f"Delete the messages of topic {topic} before {before}?", yes, as_json, server)


def _trim(topic: str, before: str | None, question: str, yes: bool, as_json: bool, server: ServerOptions) -> None:
    from datetime import UTC, datetime

    from headrace.core.positions import AtTime, moment

    place = None if before is None else parse_from(before, "--before")
    if place is not None and not isinstance(place, AtTime):
        raise Failure(Exit.USAGE, f"--before is {before!r}: it must be a time, or an age such as 7d")
    confirm(question, "deleting messages cannot be undone", yes)
    with server.connected(_PATIENCE_SECONDS) as client:
        # A day ahead: the clock of the server may differ from ours.
        time = (
            datetime.fromtimestamp(datetime.now().timestamp() + 86_400, UTC) if place is None else moment(place.time_us)
        )
        deleted = client.trim_topic(topic, time)
        left = sum(end - start for start, end in client.offsets(topic).values())
    _print_deleted(topic, deleted, left, as_json)
    if left and place is None and not as_json:
        print_note("an important group has not read what is left, or it was written meanwhile")


def _delete_before(
    topic: str, offset: int, partitions: list[int], yes: bool, as_json: bool, server: ServerOptions
) -> None:
    of = f"partition {', '.join(map(str, partitions))}" if partitions else "every partition"
    question = f"Delete the messages of {of} of topic {topic} below offset {offset}?"
    confirm(question, "deleting messages cannot be undone", yes)
    with server.connected(_PATIENCE_SECONDS) as client:
        before = client.offsets(topic)
        chosen = chosen_partitions(topic, partitions, before)
        starts = client.delete_messages(topic, dict.fromkeys(chosen, offset))
        after = client.offsets(topic)
    deleted = sum(start - before[number][0] for number, start in starts.items())
    _print_deleted(topic, deleted, sum(end - start for start, end in after.values()), as_json)


def _print_deleted(topic: str, deleted: int, left: int, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "deleted": deleted, "left": left})
    else:
        print_line(f"deleted {counted(deleted, 'message')} of topic {topic}, {left:,} left")


@with_option_groups
def copy(
    topic: Topic,
    target: Annotated[str, typer.Argument(help="Name of the topic to write to; it must exist.", metavar="TARGET")],
    *,
    part: Selection,
    keep_partitions: KeepPartitions = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Copy messages to another topic: value, key, attributes, codec and creation time.

    Messages that an earlier copy wrote are skipped, so a copy that failed can be repeated, and one that is repeated
    later copies what is new. Writes as producer id headrace-copy.
    """
    from headrace.cli.messages.transfer import copy as copy_messages

    with server.connected(_PATIENCE_SECONDS) as client:
        described = client.describe_topic(topic)
        if topic_key(described.name) == topic_key(target):
            raise Failure(Exit.USAGE, f"the target is {target!r}: a topic cannot be copied to itself")
        found = part.of(client, topic)
        done = copy_messages(client, found, target, keep_partitions, f"{described.name}#{described.id}")
    if as_json:
        print_json({"topic": topic, "target": target, "read": done.read, "written": done.written})
    else:
        before = f", {done.read - done.written:,} already written" if done.written < done.read else ""
        print_line(f"copied {counted(done.written, 'message')} of topic {topic} to {target}{before}")


File = Annotated[Path, typer.Argument(help="The file: NAME.parquet or NAME.jsonl.", metavar="FILE")]
Format = Annotated[
    str | None,
    typer.Option(help="parquet or jsonl. By default as the name of the file says.", metavar="CHOICE"),
]


@with_option_groups
def export(
    topic: Topic,
    file: File,
    *,
    part: Selection,
    format: Format = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Export messages to a file with everything they have: offset, key, attributes, times, source and codec.

    Values are written as they are stored. The file appears when it is complete.
    """
    from headrace.cli.messages.transfer import export as export_messages
    from headrace.cli.messages.transfer import format_of

    chosen = format_of(file, format)
    with server.connected(_PATIENCE_SECONDS) as client:
        done = export_messages(client, part.of(client, topic), file, chosen, overwrite)
    if as_json:
        print_json({"topic": topic, "file": str(file), "format": chosen, "messages": done.read})
    else:
        print_line(f"exported {counted(done.read, 'message')} of topic {topic} to {file}")


@with_option_groups
def import_messages(
    topic: Topic,
    file: File,
    *,
    format: Format = None,
    keep_partitions: KeepPartitions = False,
    resume: Annotated[
        str | None,
        typer.Option(help="Skip messages that an earlier import under this NAME wrote.", metavar="NAME"),
    ] = None,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Publish the messages of a file that `topic export` wrote, or of a Parquet file with a column `value`.

    Value, key, attributes, codec and creation time are as in the file; offsets and broker times are new. With --resume
    an import that failed can be repeated.
    """
    from headrace.cli.messages.transfer import format_of, import_file

    chosen = format_of(file, format)
    with server.connected(_PATIENCE_SECONDS) as client:
        done = import_file(client, topic, file, chosen, keep_partitions, resume)
    if as_json:
        print_json({"topic": topic, "file": str(file), "read": done.read, "written": done.written})
    else:
        before = f", {done.read - done.written:,} already written" if done.written < done.read else ""
        print_line(f"imported {counted(done.written, 'message')} from {file} to topic {topic}{before}")
    if done.read and not done.written:
        raise Failure(Exit.NOTHING_NEW, f"all {done.read:,} messages were already imported as {resume}: nothing is new")


def add_to(app: typer.Typer) -> None:
    """Add these commands to `headrace topic`."""
    app.command("purge")(purge)
    app.command("trim", epilog="Example: headrace topic trim orders --before 7d --yes")(trim)
    app.command("copy", epilog="Example: headrace topic copy orders orders-test --from 1h")(copy)
    app.command("export", epilog="Example: headrace topic export orders orders.parquet --from 2026-07-01")(export)
    app.command("import", epilog="Example: headrace topic import orders orders.parquet --resume july")(import_messages)
