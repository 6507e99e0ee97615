"""`headrace topic`: create, list, describe, alter, delete, purge, trim, copy, export, import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from headrace.cli.commands.topics import topic_messages
from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions, Topic, Yes, confirm
from headrace.cli.options.topic_settings import SettingsGiven, parse_amount
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.amounts import NONE, RETENTION_SUGGESTED, SECONDS
from headrace.core.text import bytes_shown, counted, time_shown

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.core.reports.descriptions import TopicDescription

app = typer.Typer(
    help="Create, list, describe, alter and delete topics; delete, copy, export and import their messages.",
    no_args_is_help=True,
)


@app.command("create", epilog="Example: headrace topic create orders --partitions 8 --retention 7d")
@with_option_groups
def create(topic: Topic, *, settings: SettingsGiven, as_json: Json = False, server: ServerOptions) -> None:
    """Create a topic.

    If it exists, missing partitions are added (which moves keys) and nothing else changes. Fewer partitions or other
    settings are refused. On a terminal, a new topic that keeps its messages for ever asks for how long instead.
    """
    given = settings.given()
    with server.connected() as client:
        before = _partitions(client, topic)
        made = client.create_topic(topic, settings.partitions, **given)
        if before is None and settings.retention is None and settings.retention_bytes is None:
            made = _with_retention(client, made)
    if as_json:
        _print_topic(made)
    elif before is None:
        print_line(f"created topic {made.name} ({counted(made.partitions, 'partition')})")
    elif before == made.partitions:
        print_line(f"topic {made.name} exists ({counted(made.partitions, 'partition')}), nothing changed")
    else:
        print_line(f"topic {made.name} exists: {before} -> {made.partitions} partitions")


def _with_retention(client: Client, topic: TopicDescription) -> TopicDescription:
    """Nobody said how long a new topic keeps messages: if that is for ever, ask on a terminal, and elsewhere say so."""
    if topic.settings.retention_seconds is not None or topic.settings.retention_bytes is not None:
        return topic
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print_note(
            f"topic {topic.name} keeps its messages for ever: --retention {RETENTION_SUGGESTED} deletes older ones, "
            "--retention none says that you mean it"
        )
        return topic
    question = f"Delete messages of {topic.name} after 90m, 36h, 7d; {NONE} keeps them for ever"
    seconds = typer.prompt(question, default=RETENTION_SUGGESTED, err=True, value_proc=_retention)
    return topic if seconds is None else client.alter_topic(topic.name, retention_seconds=seconds)


def _retention(typed: str) -> int | None:
    """What was answered; Typer asks again after a bad answer."""
    try:
        return None if typed.strip() == NONE else parse_amount("the answer", typed.strip(), SECONDS)
    except Failure as error:
        raise typer.BadParameter(str(error)) from None


def _partitions(client: Client, topic: str) -> int | None:
    """How many partitions a topic has; none if it does not exist, or may not be looked at."""
    from headrace.core.errors import AccessDenied, InvalidInput, NotFound

    try:
        return len(client.offsets(topic))
    except (AccessDenied, InvalidInput, NotFound):
        return None


@app.command("list")
@with_option_groups
def list_topics(*, as_json: Json = False, server: ServerOptions) -> None:
    """List the topics that your token has any right on."""
    with server.connected() as client:
        topics = [(name, _described(client, name)) for name in client.list_topics()]
    if as_json:
        print_json([_listed(name, topic) for name, topic in topics])
        return
    if not topics:
        print_line("no topics yet: create one with `headrace topic create NAME`")
        return
    print_table(
        ("topic", "partitions", "messages", "size", "groups"),
        [
            (name, None, None, None, None)
            if topic is None
            else (topic.name, topic.partitions, messages(topic), bytes_shown(topic.bytes_stored), topic.groups or None)
            for name, topic in topics
        ],
    )


def _listed(name: str, topic: TopicDescription | None) -> dict[str, object]:
    if topic is None:
        return {"name": name, "partitions": None, "messages": None, "bytes_stored": None, "groups": None}
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "messages": messages(topic),
        "bytes_stored": topic.bytes_stored,
        "groups": topic.groups,
    }


def _described(client: Client, topic: str) -> TopicDescription | None:
    """A topic; none if it may not be read, or was deleted a moment ago."""
    from headrace.core.errors import Forbidden, NotFound

    try:
        return client.describe_topic(topic)
    except (Forbidden, NotFound):
        return None


@app.command("describe", epilog="Example: headrace topic describe orders --json")
@with_option_groups
def describe(topic: Topic, *, as_json: Json = False, server: ServerOptions) -> None:
    """Show the partitions of a topic with their offsets, and its settings, size and groups."""
    with server.connected() as client:
        found = client.describe_topic(topic)
    if as_json:
        _print_topic(found)
        return
    settings = {name: "none" if (value := getattr(found.settings, name)) is None else value
                for name in found.settings.__struct_fields__}  # fmt: skip
    facts = {
        "topic": found.name,
        "created": time_shown(found.created_us),
        "size": bytes_shown(found.bytes_stored),
        "messages": messages(found),
        "groups": found.groups or None,
    }
    print_table(("", ""), [*facts.items(), *settings.items()])
    print_table(
        ("partition", "start offset", "end offset", "messages"),
        [(partition, start, end, end - start) for partition, (start, end) in found.offsets.items()],
    )


@app.command("alter", epilog="Example: headrace topic alter orders --partitions 16 --retention none")
@with_option_groups
def alter(topic: Topic, *, settings: SettingsGiven, as_json: Json = False, server: ServerOptions) -> None:
    """Change settings or add partitions. Adding partitions may move keys to other partitions."""
    given = settings.given()
    if settings.partitions is None and not given:
        raise Failure(Exit.USAGE, "nothing to change: give at least one option, see headrace topic alter --help")
    with server.connected() as client:
        changed = client.alter_topic(topic, settings.partitions, **given)
    if as_json:
        _print_topic(changed)
    else:
        print_line(f"altered topic {changed.name} ({counted(changed.partitions, 'partition')})")


@app.command("delete")
@with_option_groups
def delete(topic: Topic, *, yes: Yes = False, server: ServerOptions) -> None:
    """Delete a topic with all its messages and groups, and free its disk space. Asks first on a terminal."""
    with server.connected() as client:
        if not yes:
            found = client.describe_topic(topic)
            question = f"Delete topic {found.name} with {counted(messages(found), 'message')}?"
            confirm(question, "deleting a topic cannot be undone", yes)
        client.delete_topic(topic)
    print_line(f"deleted topic {topic}")


def _print_topic(topic: TopicDescription) -> None:
    from headrace.wire.descriptions import TopicOut

    print_json(TopicOut.of(topic))


def messages(topic: TopicDescription) -> int:
    """How many messages a topic has."""
    return sum(end - start for start, end in topic.offsets.values())


topic_messages.add_to(app)
