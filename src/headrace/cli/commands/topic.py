"""`headrace topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import DEFAULT_URL, Ca, Json, Token, Url, connected
from headrace.cli.output import bytes_shown, print_json, print_line, print_table, time_shown
from headrace.cli.remote.paths import path_of

if TYPE_CHECKING:
    from headrace.cli.remote.http import HttpClient

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the topic; case-insensitive.", metavar="TOPIC")]
Partitions = Annotated[int | None, typer.Option(help="Number of partitions; it can grow but not shrink.", metavar="N")]
Retention = Annotated[
    str | None,
    typer.Option(
        help="Delete messages older than this: 3600, 90m, 36h, 7d; `none` keeps them forever.", metavar="TIME"
    ),
]
RetentionBytes = Annotated[
    str | None,
    typer.Option(
        help="Delete the oldest messages above this size: 1000000, 500M, 10G; `none`: no limit.", metavar="SIZE"
    ),
]
Deduplication = Annotated[
    str | None, typer.Option(help="How duplicates are detected: producer, payload or off. \\[producer]")
]
Window = Annotated[str | None, typer.Option(help="How long a payload is remembered. \\[30m]", metavar="TIME")]
WindowMessages = Annotated[
    int | None, typer.Option(help="How many payloads are remembered, 24 bytes each. \\[1000000]", metavar="N")
]
Scope = Annotated[str | None, typer.Option(help="Where payloads must be unique: topic or store. \\[topic]")]
Codecs = Annotated[str | None, typer.Option(help="Codecs allowed for messages: raw,gzip,zstd,lzop.", metavar="LIST")]
MessageBytes = Annotated[str | None, typer.Option(help="Maximum size of a message. \\[1M]", metavar="SIZE")]

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@app.command("create", epilog="Example: headrace topic create orders --partitions 8 --retention 7d")
def create(
    topic: Name,
    partitions: Partitions = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    deduplication: Deduplication = None,
    deduplication_window: Window = None,
    deduplication_window_messages: WindowMessages = None,
    deduplication_scope: Scope = None,
    codecs: Codecs = None,
    message_bytes_max: MessageBytes = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Create a topic, with one partition by default.

    If it exists, missing partitions are added (which moves keys) and nothing else changes. Fewer partitions or other
    settings are refused.
    """
    settings = _settings(
        retention,
        retention_bytes,
        deduplication,
        deduplication_window,
        deduplication_window_messages,
        deduplication_scope,
        codecs,
        message_bytes_max,
    )
    body: dict[str, Any] = {"name": topic, "partitions": partitions, "settings": settings}
    with connected(url, token, ca) as client:
        before = _partitions(client, topic)
        made = client.post(path_of("topics"), body)
    if as_json:
        print_json(made)
        return
    count = len(made["partitions"])
    if before is None:
        print_line(f"created topic {made['name']} ({_counted(count, 'partition')})")
    elif before == count:
        print_line(f"topic {made['name']} exists ({_counted(count, 'partition')}), nothing changed")
    else:
        print_line(f"topic {made['name']} exists: {before} -> {count} partitions")


def _partitions(client: HttpClient, topic: str) -> int | None:
    """How many partitions a topic has; none if it does not exist, or may not be looked at."""
    from headrace.cli.remote.http import Refused

    try:
        return len(client.get(path_of("topics", topic))["partitions"])
    except Refused:
        return None


@app.command("list")
def list_topics(as_json: Json = False, url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None) -> None:
    """List the topics that your token has any right on."""
    with connected(url, token, ca) as client:
        names = client.get(path_of("topics"))["topics"]
        if as_json:
            print_json(names)
            return
        topics = [client.get(path_of("topics", name)) for name in names]
    if not topics:
        print_line("no topics yet: create one with `headrace topic create NAME`")
        return
    print_table(
        ("topic", "partitions", "messages", "size", "groups"),
        [
            (
                topic["name"],
                len(topic["partitions"]),
                _messages(topic),
                bytes_shown(topic["bytes_stored"]),
                topic["groups"] or None,
            )
            for topic in topics
        ],
    )


@app.command("describe", epilog="Example: headrace topic describe orders --json")
def describe(topic: Name, as_json: Json = False, url: Url = DEFAULT_URL, token: Token = None, ca: Ca = None) -> None:
    """Show the partitions of a topic with their offsets, and its settings, size and groups."""
    with connected(url, token, ca) as client:
        found = client.get(path_of("topics", topic))
    if as_json:
        print_json(found)
        return
    settings = {name: "none" if value is None else value for name, value in found["settings"].items()}
    facts = {
        "topic": found["name"],
        "made": time_shown(found["created_us"]),
        "size": bytes_shown(found["bytes_stored"]),
        "messages": _messages(found),
        "groups": found["groups"] or None,
    }
    print_table(("", ""), [*facts.items(), *settings.items()])
    print_table(
        ("partition", "start offset", "end offset", "messages"),
        [
            (each["partition"], each["start_offset"], each["end_offset"], each["end_offset"] - each["start_offset"])
            for each in found["partitions"]
        ],
    )


@app.command("alter", epilog="Example: headrace topic alter orders --partitions 16 --retention none")
def alter(
    topic: Name,
    partitions: Partitions = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    deduplication: Deduplication = None,
    deduplication_window: Window = None,
    deduplication_window_messages: WindowMessages = None,
    deduplication_scope: Scope = None,
    codecs: Codecs = None,
    message_bytes_max: MessageBytes = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Change settings or add partitions. Adding partitions may move keys to other partitions."""
    settings = _settings(
        retention,
        retention_bytes,
        deduplication,
        deduplication_window,
        deduplication_window_messages,
        deduplication_scope,
        codecs,
        message_bytes_max,
    )
    if partitions is None and not settings:
        raise Failure(Exit.USAGE, "nothing to change: give at least one option, see headrace topic alter --help")
    with connected(url, token, ca) as client:
        changed = client.patch(path_of("topics", topic), {"partitions": partitions, "settings": settings})
    if as_json:
        print_json(changed)
    else:
        print_line(f"altered topic {changed['name']} ({_counted(len(changed['partitions']), 'partition')})")


@app.command("delete")
def delete(
    topic: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Delete a topic with all its messages and groups, and free its disk space. Asks first on a terminal."""
    with connected(url, token, ca) as client:
        if not yes:
            _ask(client.get(path_of("topics", topic)))
        client.delete(path_of("topics", topic))
    print_line(f"deleted topic {topic}")


def _ask(topic: dict[str, Any]) -> None:
    import sys

    if not sys.stdin.isatty():
        raise Failure(Exit.USAGE, "deleting a topic cannot be undone: add --yes to confirm")
    typer.confirm(f"Delete topic {topic['name']} with {_counted(_messages(topic), 'message')}?", abort=True)


def _settings(
    retention: str | None,
    retention_bytes: str | None,
    deduplication: str | None,
    window: str | None,
    window_messages: int | None,
    scope: str | None,
    codecs: str | None,
    message_bytes_max: str | None,
) -> dict[str, Any]:
    """The given settings under the names that the server uses."""
    given: dict[str, Any] = {}
    if retention is not None:
        given["retention_seconds"] = None if retention == "none" else parse_amount("--retention", retention, SECONDS)
    if retention_bytes is not None:
        given["retention_bytes"] = (
            None if retention_bytes == "none" else parse_amount("--retention-bytes", retention_bytes, _BYTES)
        )
    if window is not None:
        given["deduplication_window_seconds"] = parse_amount("--deduplication-window", window, SECONDS)
    if message_bytes_max is not None:
        given["message_bytes_max"] = parse_amount("--message-bytes-max", message_bytes_max, _BYTES)
    if codecs is not None:
        given["codecs"] = [codec.strip() for codec in codecs.split(",")]
    plain = {
        "deduplication": deduplication,
        "deduplication_window_messages": window_messages,
        "deduplication_scope": scope,
    }
    return given | {name: value for name, value in plain.items() if value is not None}


def parse_amount(option: str, text: str, units: dict[str, int]) -> int:
    """Parse a whole number with an optional unit suffix."""
    number, unit = (text[:-1], units[text[-1:]]) if text[-1:] in units else (text, 1)
    if not number.isdecimal():
        raise Failure(
            Exit.USAGE, f"{option} is {text!r}: it must be a whole number, optionally followed by {', '.join(units)}"
        )
    return int(number) * unit


def _messages(topic: dict[str, Any]) -> int:
    return sum(each["end_offset"] - each["start_offset"] for each in topic["partitions"])


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
