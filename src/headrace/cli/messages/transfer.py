"""Messages to a file and back, and from one topic to another: the work of `topic export`, `import` and `copy`.

    export   topic ── as stored ──► Parquet, or JSON Lines          value, key, attributes, codec, times, source, offset
    import   file ── value, key, attributes, codec, created_at ──► topic
    copy     topic ── the same ──► topic

Values are never decompressed, so they arrive byte for byte. A file is complete or does not exist: it is written beside
its place and then renamed. Offset, broker time and source belong to the message that was read. To be repeated safely,
messages are sent as those of the producer `headrace-copy`, with a source for each partition and seqnos that are their
offsets: what was written before is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.formats import json_lines
from headrace.cli.messages.lines import batches_of as lines_of
from headrace.cli.messages.parsers import JsonParser
from headrace.cli.messages.readers import TopicRange, batches_of
from headrace.cli.terminal.progress import progress
from headrace.client import Client, Producer
from headrace.core.errors import InvalidMessage
from headrace.core.messages import PUBLISH_SCHEMA, READ_SCHEMA

PARQUET: Final = "parquet"
JSON_LINES: Final = "jsonl"
FORMATS: Final = (PARQUET, JSON_LINES)
_SUFFIXES: Final = {".parquet": PARQUET, ".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".json": JSON_LINES}
_COPIED: Final = ("value", "key", "attributes", "codec", "created_at")
_PAGE: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
_PRODUCER: Final = "headrace-copy"


@dataclass(slots=True)
class Transferred:
    """How many messages were read, and how many of them were written."""

    read: int = 0
    written: int = 0


def format_of(file: Path, asked: str | None) -> str:
    """The format of a file: what was asked for, or what its name says."""
    found = asked or _SUFFIXES.get(file.suffix.lower())
    if found not in FORMATS:
        given = f"--format is {asked!r}" if asked else f"the name {file.name!r} does not say the format"
        raise Failure(Exit.USAGE, f"{given}: give --format {' or '.join(FORMATS)}")
    return found


def export(client: Client, found: TopicRange, file: Path, format: str, is_overwriting: bool) -> Transferred:
    """Write the messages of a range to a new file."""
    if file.exists() and not is_overwriting:
        raise Failure(Exit.USAGE, f"{file} exists: add --overwrite to replace it")
    done = Transferred()
    total = sum(max(0, end - found.begins[at]) for at, end in found.ends.items())
    with _new_file(file) as beside, progress("exporting", total, "messages", is_shown=True) as bar:
        writer = _ParquetWriter(beside) if format == PARQUET else _JsonWriter(beside)
        try:
            for batch in batches_of(client, found, _PAGE):
                writer.write(batch)
                done.read += batch.num_rows
                bar.advance(batch.num_rows, batch.num_rows)
        finally:
            writer.close()
    done.written = done.read
    return done


class _ParquetWriter:
    def __init__(self, file: Path) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, READ_SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _JsonWriter:
    def __init__(self, file: Path) -> None:
        self._file = open(file, "wb")  # noqa: SIM115

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.writelines(json_lines(batch, None))

    def close(self) -> None:
        self._file.close()


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """A name to write to, which becomes the file at the end, or goes."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield beside
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, file)
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write {file}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def import_file(
    client: Client, topic: str, file: Path, format: str, keeps_partitions: bool, resume: str | None
) -> Transferred:
    """Publish the messages of a file."""
    done = Transferred()
    try:
        size = file.stat().st_size
        with (
            progress("importing", size, "messages", is_shown=True) as bar,
            client.producer(topic, linger_seconds=0.0) as producer,
        ):
            for batch in _rows(file, format, keeps_partitions or resume is not None):
                _send(producer, batch, keeps_partitions, resume, done)
                bar.advance(batch.num_rows, min(size, batch.nbytes))
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot read {file}: {error.strerror or error}") from None
    return done


def copy(client: Client, found: TopicRange, target: str, keeps_partitions: bool, name: str) -> Transferred:
    """Publish the messages of a range to another topic, except those that were copied before."""
    done = Transferred()
    total = sum(max(0, end - found.begins[at]) for at, end in found.ends.items())
    with (
        progress("copying", total, "messages", is_shown=True) as bar,
        client.producer(target, linger_seconds=0.0) as producer,
    ):
        for batch in batches_of(client, found, _PAGE):
            _send(producer, batch, keeps_partitions, name, done)
            bar.advance(batch.num_rows, batch.num_rows)
    return done


def _send(
    producer: Producer, batch: pa.RecordBatch, keeps_partitions: bool, name: str | None, done: Transferred
) -> None:
    """Publish a batch that was read, in parts of bounded size."""
    if batch.nbytes > _BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        _send(producer, batch.slice(0, half), keeps_partitions, name, done)
        _send(producer, batch.slice(half), keeps_partitions, name, done)
        return
    names = set(batch.schema.names)
    columns: dict[str, Any] = {each: batch.column(each) for each in _COPIED if each in names}
    if keeps_partitions:
        columns["partition"] = _needed(batch, "partition", "--keep-partitions")
    if name is not None:
        partitions = _needed(batch, "partition", "--resume").cast(pa.string())
        columns["producer_id"] = pa.repeat(_PRODUCER, batch.num_rows)
        columns["message_group_id"] = pc.binary_join_element_wise(name, partitions, "/")
        columns["seqno"] = pc.add(_needed(batch, "offset", "--resume"), 1)
    try:
        statuses = producer.send_batch(pa.record_batch(columns)).column("status")
    except InvalidMessage as error:
        line = str(error).removeprefix(f"row {error.row}: ")
        raise Failure(Exit.REFUSED, f"message {done.read + error.row + 1}: {line} ({done.written:,} written)") from None
    done.read += batch.num_rows
    done.written += int(pc.sum(pc.equal(statuses, "written")).as_py())


def _needed(batch: pa.RecordBatch, column: str, option: str) -> Any:
    if column not in batch.schema.names or batch.column(column).null_count:
        raise Failure(Exit.REFUSED, f"{option} needs the {column} of every message, and the file does not have it")
    return batch.column(column)


def _rows(file: Path, format: str, has_places: bool) -> Iterator[pa.RecordBatch]:
    """The messages of a file, with partition and offset if they are needed."""
    if format == JSON_LINES:
        yield from _json_rows(file, has_places)
        return
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as source:
            _check_columns(source.schema_arrow)
            for batch in source.iter_batches(batch_size=_PAGE):
                yield _cast(batch)
    except pa.ArrowInvalid as error:
        raise Failure(Exit.REFUSED, f"{file} is not a Parquet file of messages: {error}") from None


def _json_rows(file: Path, has_places: bool) -> Iterator[pa.RecordBatch]:
    parser, first = JsonParser(keeps_places=has_places), 1
    source = os.open(file, os.O_RDONLY)
    try:
        for lines in lines_of(source, _PAGE):
            yield pa.record_batch(parser.columns(lines, first))
            first += len(lines)
    finally:
        os.close(source)


def _check_columns(schema: pa.Schema) -> None:
    unknown = [name for name in schema.names if name not in READ_SCHEMA.names]
    if unknown or "value" not in schema.names:
        known = ", ".join(READ_SCHEMA.names)
        wrong = f"its column {unknown[0]!r} is unknown" if unknown else "it has no column value"
        raise Failure(Exit.REFUSED, f"the file has no messages: {wrong}; columns are {known}")


def _cast(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with the types of messages: texts of other tools become bytes."""
    types = {field.name: field.type for field in READ_SCHEMA} | {field.name: field.type for field in PUBLISH_SCHEMA}
    return pa.record_batch({name: batch.column(name).cast(types[name]) for name in batch.schema.names})
