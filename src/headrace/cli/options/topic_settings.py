"""The settings of a topic as options, to create one and to alter one, and the amounts that they are written in.

The help names the defaults of new topics; a server may have others (`topic_defaults`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import text_of_file
from headrace.core.amounts import BYTES, NONE, SECONDS
from headrace.core.amounts import parse_amount as parse
from headrace.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class SettingsGiven:
    """The given settings of a topic: what is not given stays as it is, or has the default of the server."""

    partitions: Annotated[
        int | None, typer.Option(help="Number of partitions; it can grow but not shrink. New topics: 1.", metavar="N")
    ] = None
    retention: Annotated[
        str | None,
        typer.Option(
            help="Delete messages older than this: 3600, 90m, 36h, 7d; `none` keeps them forever. New topics: none.",
            metavar="TIME",
        ),
    ] = None
    retention_bytes: Annotated[
        str | None,
        typer.Option(
            help="Delete the oldest messages above this size: 1000000, 500M, 10G; `none`: no limit. New topics: none.",
            metavar="SIZE",
        ),
    ] = None
    deduplication: Annotated[
        str | None,
        typer.Option(
            help="How duplicates are detected: producer, payload or off. New topics: producer.", metavar="CHOICE"
        ),
    ] = None
    deduplication_window: Annotated[
        str | None, typer.Option(help="How long a payload is remembered: 90s, 24h. New topics: 30m.", metavar="TIME")
    ] = None
    deduplication_window_messages: Annotated[
        int | None,
        typer.Option(help="How many payloads are remembered, 24 bytes each. New topics: 1000000.", metavar="N"),
    ] = None
    deduplication_scope: Annotated[
        str | None,
        typer.Option(help="Where payloads must be unique: topic or store. New topics: topic.", metavar="CHOICE"),
    ] = None
    codecs: Annotated[
        str | None,
        typer.Option(help="Codecs allowed for messages: raw,gzip,zstd,lzop. New topics: all.", metavar="LIST"),
    ] = None
    message_bytes_max: Annotated[
        str | None, typer.Option(help="Maximum size of a message: 500000, 2M. New topics: 1M.", metavar="SIZE")
    ] = None
    key_hash: Annotated[
        str | None,
        typer.Option(
            help="Hash of a key that chooses its partition: fnv1a, or murmur2 as in Kafka. New topics: fnv1a.",
            metavar="CHOICE",
        ),
    ] = None
    timestamp_type: Annotated[
        str | None,
        typer.Option(
            help="Time of a message that Kafka's consumers see: created or broker. New topics: created.",
            metavar="CHOICE",
        ),
    ] = None
    archive: Annotated[
        str | None,
        typer.Option(
            help="Whether messages are written to the archive of the store: on or off. New topics: off.",
            metavar="CHOICE",
        ),
    ] = None
    archive_after: Annotated[
        str | None,
        typer.Option(help="Archive messages at the latest after this: 90s, 10m. New topics: 10m.", metavar="TIME"),
    ] = None
    archive_retention: Annotated[
        str | None,
        typer.Option(
            help="Delete archived messages older than this: 90d; `none` keeps them forever. New topics: none.",
            metavar="TIME",
        ),
    ] = None
    local_retention: Annotated[
        str | None,
        typer.Option(
            help="Keep archived messages in the log for this: 36h; `none`: as --retention. New topics: none.",
            metavar="TIME",
        ),
    ] = None
    local_retention_bytes: Annotated[
        str | None,
        typer.Option(
            help="Keep this much of archived messages in the log: 10G; `none`: as --retention-bytes. New topics: none.",
            metavar="SIZE",
        ),
    ] = None
    value_schema: Annotated[
        str | None,
        typer.Option(
            help="File with a JSON or Avro schema of the values, `-` for standard input: tables have a column for each "
            "field. It may only grow by optional fields; `none` removes it. New topics: none.",
            metavar="FILE",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """The given settings under the names that the server uses."""
        amounts = {
            "retention_seconds": _amount("--retention", self.retention, SECONDS),
            "retention_bytes": _amount("--retention-bytes", self.retention_bytes, BYTES),
            "deduplication_window_seconds": _number("--deduplication-window", self.deduplication_window, SECONDS),
            "message_bytes_max": _number("--message-bytes-max", self.message_bytes_max, BYTES),
            "deduplication": self.deduplication,
            "deduplication_window_messages": self.deduplication_window_messages,
            "deduplication_scope": self.deduplication_scope,
            "key_hash": self.key_hash,
            "timestamp_type": self.timestamp_type,
            "archive": self.archive,
            "archive_after_seconds": _number("--archive-after", self.archive_after, SECONDS),
            "archive_retention_seconds": _amount("--archive-retention", self.archive_retention, SECONDS),
            "local_retention_seconds": _amount("--local-retention", self.local_retention, SECONDS),
            "local_retention_bytes": _amount("--local-retention-bytes", self.local_retention_bytes, BYTES),
            "value_schema": None
            if self.value_schema in (None, NONE)
            else text_of_file("--value-schema", self.value_schema),
            "codecs": None if self.codecs is None else [codec.strip() for codec in self.codecs.split(",")],
        }
        unlimited = {
            "retention_seconds": self.retention,
            "retention_bytes": self.retention_bytes,
            "archive_retention_seconds": self.archive_retention,
            "local_retention_seconds": self.local_retention,
            "local_retention_bytes": self.local_retention_bytes,
            "value_schema": self.value_schema,
        }
        given = {name: value for name, value in amounts.items() if value is not None}
        return given | {name: None for name, text in unlimited.items() if text == NONE}


def parse_amount(option: str, text: str, units: Mapping[str, int]) -> int:
    """Parse a whole number with an optional unit suffix."""
    try:
        return parse(option, text, units)
    except InvalidInput as error:
        raise Failure(Exit.USAGE, str(error)) from None


def _number(option: str, text: str | None, units: Mapping[str, int]) -> int | None:
    return None if text is None else parse_amount(option, text, units)


def _amount(option: str, text: str | None, units: Mapping[str, int]) -> int | None:
    """The same for a setting that may be `none`."""
    return None if text == NONE else _number(option, text, units)
