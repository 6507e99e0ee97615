"""`headrace produce`: publish lines from stdin. The work is in messages/production.py, imported only for this command.

With a producer id the seqnos continue after the last seqno of that id, so a batch whose answer was lost can be sent
again and is written once. Another run with the same id writes new lines. With `--resume NAME` a line's number in the
input is its seqno, in a message group of that name: sending the same input again from its beginning writes only the
lines that are missing. Lines are sent in batches; an incomplete batch is sent as soon as no more input is available, so
interactive typing works too.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import DEFAULT_URL, AnyUrl, Ca, Json, Token
from headrace.cli.output import print_json, print_line
from headrace.core.limits import BATCH_ROWS_MAX, ID_CHARACTERS_MAX

EXAMPLES: Final = """
With --producer-id no line is written twice if an answer is lost. Seqnos continue after the last one of the id.

With --resume NAME, lines already written under this id and NAME are skipped: after a failure, send the same file again.
Use a different NAME for each file. If no line was new, the exit code is 6.

Examples:

  headrace produce orders < orders.txt

  headrace produce orders --key-separator : --producer-id till-7 < orders.txt

  headrace produce orders --producer-id till-7 --resume monday < monday.txt

  headrace produce orders --attribute kind=sale --codec zstd --url headrace://127.0.0.1:7071 < orders.txt

  tail -f app.log | headrace produce logs
"""


def produce(
    topic: Annotated[str, typer.Argument(help="Name of the topic to publish to.")],
    key_separator: Annotated[
        str | None,
        typer.Option(help="Separator between key and value; a line without it has no key.", metavar="TEXT"),
    ] = None,
    producer_id: Annotated[
        str | None,
        typer.Option(help="Id of the producer: each line is written once, even if an answer is lost.", metavar="ID"),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="Skip lines already written under this id and NAME.", metavar="NAME"),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Write to this partition.", metavar="N")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(help="Attribute of every message; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    codec: Annotated[str, typer.Option(help="Compress values: raw, gzip, zstd or lzop.")] = "raw",
    batch: Annotated[int, typer.Option(help="Lines per request.", metavar="N", min=1, max=BATCH_ROWS_MAX)] = 10_000,
    retry_seconds: Annotated[
        float, typer.Option(help="How long to retry if the server is unreachable or busy.", metavar="SECONDS", min=0)
    ] = 30.0,
    as_json: Json = False,
    url: AnyUrl = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Publish each line of stdin as a message."""
    if key_separator == "":
        raise Failure(Exit.USAGE, "--key-separator is empty: it must have at least one character")
    if producer_id is not None and not 0 < len(producer_id) <= ID_CHARACTERS_MAX:
        raise Failure(Exit.USAGE, f"--producer-id must have 1 to {ID_CHARACTERS_MAX} characters")
    if resume is not None and producer_id is None:
        raise Failure(Exit.USAGE, "--resume needs --producer-id: give the id that wrote the lines to skip")
    if resume is not None and not 0 < len(resume) <= ID_CHARACTERS_MAX:
        raise Failure(Exit.USAGE, f"--resume must have 1 to {ID_CHARACTERS_MAX} characters")
    attributes = dict(_attribute(text) for text in attribute or ())
    from headrace.cli.messages.production import Shape, publish_stdin

    started = time.monotonic()
    shape = Shape(_separator(key_separator), producer_id, resume, partition, attributes, codec)
    done = publish_stdin(topic, shape, batch, retry_seconds, url, token, ca)
    seconds = time.monotonic() - started
    if as_json:
        counts = {"written": done.written, "duplicates": done.duplicates, "conflicts": done.conflicts}
        print_json({"topic": topic, **counts, "seconds": seconds})
    else:
        print_line(f"{topic}: {done.told()}")
    if done.conflicts:
        line = f"{done.conflicts:,} lines differ from what {producer_id} wrote as {resume} with their number: this is"
        raise Failure(Exit.REFUSED, f"{line} another input, or it was changed; use a different --resume NAME for it")
    if done.lines and not done.written:
        line = f"all {done.lines:,} lines were already written by {producer_id} as {resume}: nothing is new"
        raise Failure(Exit.NOTHING_NEW, f"{line}; use a different --resume NAME for different input")


def _attribute(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Failure(Exit.USAGE, f"--attribute is {text!r}: write it as NAME=VALUE")
    return name, value.encode(errors="surrogateescape")


def _separator(text: str | None) -> bytes | None:
    return (
        None
        if text is None
        else text.encode().decode("unicode_escape").encode("latin-1")
        if "\\" in text
        else text.encode()
    )
