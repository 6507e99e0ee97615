"""`headrace produce`: publish lines of files or stdin. The work is in messages/production.py, imported only here.

With a producer id the seqnos continue after the last seqno of that id, so a batch whose answer was lost can be sent
again and is written once. Another run with the same id writes new lines. With `--resume NAME` a line's number in the
input is its seqno, in a message group of that name: sending the same input again from its beginning writes only the
lines that are missing. Lines are sent in batches; an incomplete batch is sent as soon as no more input is available, so
interactive typing works too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions, Topic
from headrace.cli.terminal.output import print_json, print_line
from headrace.core.limits import BATCH_ROWS_MAX, ID_CHARACTERS_MAX

if TYPE_CHECKING:
    from headrace.cli.messages.parsers import LineParser
    from headrace.cli.messages.production import Publishing, Shape

_RETRY_SECONDS: Final = 30.0

EXAMPLES: Final = """
With --producer-id no line is written twice if an answer is lost. Seqnos continue after the last one of the id.

With --resume NAME, lines already written under this id and NAME are skipped: after a failure, send the same file again.
Use a different NAME for each file. If no line was new, the exit code is 6.

With --json, lines are messages as `consume --json` prints them: {"value": "…", "key": "…", "attributes": {…}}. A value
that is an object is published as its JSON, and null as null, which is not an empty value. Offsets, times and producer
ids of the messages read are not copied.

Examples:

  headrace produce orders orders.txt

  headrace produce orders --key-separator : --producer-id till-7 < orders.txt

  headrace produce orders --producer-id till-7 --resume monday monday.txt

  headrace produce orders --attributes-separator '\\t' --key-separator '\\t' < attributes-key-value.tsv

  headrace produce users --key-separator : --null-value gone < users.txt

  headrace produce images --whole --attribute kind=photo *.jpg

  headrace consume orders --json | headrace produce orders-copy --json

  tail -f app.log | headrace produce logs
"""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How the input is divided into messages, and each into key, attributes and value."""

    input_format: Annotated[
        str | None,
        typer.Option("--input", help="text or json. By default text, and json with --json.", metavar="CHOICE"),
    ] = None
    key_separator: Annotated[
        str | None,
        typer.Option(help="Separator between key and value; a line without it has no key.", metavar="TEXT"),
    ] = None
    attributes_separator: Annotated[
        str | None,
        typer.Option(help="Separator after the attributes of a line, NAME=VALUE,NAME=VALUE.", metavar="TEXT"),
    ] = None
    null_value: Annotated[
        str | None,
        typer.Option(help="Publish a null value for a line whose value is this text.", metavar="TEXT"),
    ] = None
    delimiter: Annotated[
        str,
        typer.Option(
            help="What ends a message instead of a newline; \\0 is byte 0.", metavar="TEXT", show_default=False
        ),
    ] = "\\n"
    whole: Annotated[bool, typer.Option("--whole", help="Publish each file as one message.")] = False

    def is_json(self, by_default: bool) -> bool:
        """Whether lines are messages as JSON."""
        if self.input_format not in (None, "text", "json"):
            raise Failure(Exit.USAGE, f"--input is {self.input_format!r}: it must be text or json")
        return by_default if self.input_format is None else self.input_format == "json"

    def parser(self, is_json: bool, keep_partitions: bool) -> LineParser:
        """What makes messages of lines."""
        separators = {
            "--key-separator": self.key_separator,
            "--attributes-separator": self.attributes_separator,
            "--null-value": self.null_value,
        }
        for option, text in separators.items():
            if text is not None and (is_json or self.whole):
                raise Failure(Exit.USAGE, f"{option} cannot be combined with {'JSON input' if is_json else '--whole'}")
        from headrace.cli.messages.parsers import JsonParser, TextParser

        if is_json:
            return JsonParser(keep_partitions)
        return TextParser(*(None if text is None else _separator(option, text) for option, text in separators.items()))


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """What all messages have in common."""

    producer_id: Annotated[
        str | None,
        typer.Option(help="Id of the producer: each line is written once, even if an answer is lost.", metavar="ID"),
    ] = None
    resume: Annotated[
        str | None,
        typer.Option(help="Skip lines already written under this id and NAME.", metavar="NAME"),
    ] = None
    partition: Annotated[int | None, typer.Option(help="Write to this partition.", metavar="N")] = None
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Write JSON messages to the partitions that they name.")
    ] = False
    attribute: Annotated[
        list[str] | None, typer.Option(help="Attribute of every message; may be repeated.", metavar="NAME=VALUE")
    ] = None
    codec: Annotated[str, typer.Option(help="Compress values: raw, gzip, zstd or lzop.", metavar="CODEC")] = "raw"

    def check(self, is_json: bool) -> None:
        """Raise if the options do not go together."""
        for option, text in {"--producer-id": self.producer_id, "--resume": self.resume}.items():
            if text is not None and not 0 < len(text) <= ID_CHARACTERS_MAX:
                shown = f"{text[:40]!r}… of {len(text):,} characters" if text else "empty"
                raise Failure(Exit.USAGE, f"{option} is {shown}: it must have 1 to {ID_CHARACTERS_MAX} characters")
        if self.resume is not None and self.producer_id is None:
            raise Failure(Exit.USAGE, "--resume needs --producer-id: give the id that wrote the lines to skip")
        if self.keep_partitions and (not is_json or self.partition is not None):
            raise Failure(Exit.USAGE, "--keep-partitions needs JSON input, and cannot be combined with --partition")

    def shape(self, parser: LineParser) -> Shape:
        """How lines become messages."""
        from headrace.cli.messages.production import Shape, check_codec

        check_codec(self.codec)
        attributes = dict(_attribute(text) for text in self.attribute or ())
        return Shape(parser, self.producer_id, self.resume, self.partition, attributes, self.codec)


@with_option_groups
def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to read. By default, or for -, stdin.", metavar="[FILE]...")
    ] = None,
    *,
    input: InputOptions,
    message: MessageOptions,
    batch: Annotated[int, typer.Option(help="Lines per request.", metavar="N", min=1, max=BATCH_ROWS_MAX)] = 10_000,
    retry_seconds: Annotated[
        float | None,
        typer.Option(
            help="How long to retry if the server is unreachable or busy. By default 30, and 3 for the first contact.",
            metavar="SECONDS",
            min=0,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Read messages as JSON lines, and print the outcome as JSON.")
    ] = False,
    server: ServerOptions,
) -> None:
    """Publish each line of files or stdin as a message."""
    is_json = input.is_json(by_default=as_json)
    message.check(is_json)
    shape = message.shape(input.parser(is_json, message.keep_partitions))
    from headrace.cli.messages.production import Input, publish

    given = Input(files or [], _separator("--delimiter", input.delimiter), input.whole, batch)
    started = time.monotonic()
    with server.connected(retry_seconds, retry_seconds or 0.0) as client:
        done = publish(client, topic, shape, given, _RETRY_SECONDS if retry_seconds is None else retry_seconds)
    if as_json:
        counts = {"written": done.written, "duplicates": done.duplicates, "conflicts": done.conflicts}
        print_json({"topic": topic, **counts, "seconds": time.monotonic() - started})
    else:
        print_line(f"{topic}: {done.summary()}")
    _check_outcome(done, message.producer_id, message.resume)


def _check_outcome(done: Publishing, producer_id: str | None, resume: str | None) -> None:
    if done.conflicts:
        line = f"{done.conflicts:,} lines differ from what {producer_id} wrote as {resume} with their number: this is"
        raise Failure(Exit.REFUSED, f"{line} another input, or it was changed; use a different --resume NAME for it")
    if resume is not None and done.lines and not done.written:
        line = f"all {done.lines:,} lines were already written by {producer_id} as {resume}: nothing is new"
        raise Failure(Exit.NOTHING_NEW, f"{line}; use a different --resume NAME for different input")


def _attribute(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Failure(Exit.USAGE, f"--attribute is {text!r}: write it as NAME=VALUE")
    return name, value.encode(errors="surrogateescape")


def _separator(option: str, text: str) -> bytes:
    r"""A separator, or what stands for null, as bytes; escapes such as \t and \0 are allowed."""
    if not text and option != "--null-value":
        raise Failure(Exit.USAGE, f"{option} is empty: it must have at least one character")
    if "\\" not in text:
        return text.encode()
    try:
        return text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError as error:
        raise Failure(Exit.USAGE, f"{option} is {text!r}: {error}") from None
