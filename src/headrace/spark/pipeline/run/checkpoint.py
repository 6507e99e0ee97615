"""A pipeline's own file beside Spark's checkpoint: the query that created it, and the id its sinks publish under.

    <checkpoint>/headrace-pipeline.json    fingerprint of the query, sink id
    <checkpoint>/headrace-pipeline.lock    held by the running pipeline
    <checkpoint>/spark/                    Spark's offsets, commits and state

Spark itself would start a changed query on an old checkpoint, and produce wrong rows or fail late. So everything that
affects rows is fingerprinted part by part, and a change is an error that names the part. Addresses, limits, tokens and
triggers are not included.
"""

from __future__ import annotations

import os
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.names import topic_key
from headrace.spark.pipeline.definition.description import (
    DeadTable,
    DeadTopic,
    Description,
    Source,
    TableSink,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.run.lock import Lock, unusable

_FILE: Final = "headrace-pipeline.json"
_LOCK: Final = "headrace-pipeline.lock"
_VERSION: Final = 1


class Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says."""

    version: int
    sink_id: str
    parts: dict[str, str]


def lock_of(description: Description) -> Lock:
    """The lock of a checkpoint. Taken before it is read, because its content decides ids and batch numbers."""
    directory = Path(description.run.checkpoint or "").absolute()
    return Lock(directory / _LOCK, directory, "another run uses this checkpoint: wait until it has ended, or stop it")


class Checkpoint:
    """The checkpoint of a streaming pipeline."""

    def __init__(self, description: Description) -> None:
        assert description.run.checkpoint is not None
        self._directory = Path(description.run.checkpoint).absolute()
        self._parts = fingerprint(description)
        self._found = self._read()
        known = self._found.sink_id if self._found is not None else uuid.uuid4().hex
        # The id that batches are published under: the same for as long as the checkpoint lives.
        self.sink_id = getattr(description.sink, "sink_id", None) or known

    @property
    def spark(self) -> str:
        """Where Spark keeps its own."""
        return str(self._directory / "spark")

    @property
    def is_new(self) -> bool:
        """Whether no query has ever run on it."""
        # Not by our own file, which exists before the first start, and also where only Spark's part was deleted.
        return not Path(self.spark).exists()

    def check(self, accept_change: bool = False) -> None:
        """Raise if another query created the checkpoint."""
        if self._found is None:
            if (self._directory / "spark").exists() or (self._directory / "offsets").exists():
                rule = "it is not a checkpoint of a pipeline: choose another directory"
                raise InvalidInput("run.checkpoint", str(self._directory), rule)
            return
        changed = [part for part, print_ in self._parts.items() if self._found.parts.get(part) != print_]
        if changed and not accept_change:
            rule = (
                f"it was created by another query: {', '.join(changed)} changed since. Choose another checkpoint, "
                "or use --accept-change if the new query can continue from the state of the old one"
            )
            raise InvalidInput("run.checkpoint", str(self._directory), rule)

    def store(self) -> None:
        """Store the fingerprint of the query, once all checks have passed."""
        self._found = Remembered(_VERSION, self.sink_id, self._parts)
        self._directory.mkdir(parents=True, exist_ok=True)
        beside = self._directory / f"{_FILE}.new"
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self._found), indent=2))
        os.replace(beside, self._directory / _FILE)

    def _read(self) -> Remembered | None:
        try:
            found = msgspec.json.decode((self._directory / _FILE).read_bytes(), type=Remembered)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput("run.checkpoint", str(self._directory), unusable(error)) from None
        except msgspec.DecodeError as error:
            raise InvalidInput("run.checkpoint", str(self._directory), f"{_FILE} cannot be read: {error}") from None
        if found.version != _VERSION:
            rule = f"it has version {found.version}, this Headrace supports {_VERSION}: upgrade it"
            raise InvalidInput("run.checkpoint", str(self._directory), rule)
        return found


def fingerprint(description: Description) -> dict[str, str]:
    """What decides about rows, by part."""
    source, sink = description.source, description.sink
    parts: dict[str, Any] = {
        "source": _read_from(source),
        "source.schema": source.schema,
        "deduplicate": description.deduplicate,
        "sink": _end(sink),
        "dead_letters": _end(description.dead_letters),
        "run.output_mode": description.run.output_mode,
    }
    for name, named in description.sinks.items():
        parts[f"sinks.{name}"] = [_end(named), named.step]
    if getattr(sink, "step", None) is not None:
        parts["sink.step"] = getattr(sink, "step", None)
    for name, each in description.sources.items():
        parts[f"sources.{name}"] = _read_from(each), each.schema, each.mode
        if each.watermark is not None:
            parts[f"sources.{name}.watermark"] = [each.watermark, each.watermark_delay_seconds]
    if source.watermark is not None:
        parts["source.watermark"] = [source.watermark, source.watermark_delay_seconds]
    for number, step in enumerate(description.steps):
        parts[f"steps.{step.name}"] = [number, " ".join((step.sql or "").split()), step.function]
    parts["steps"] = [step.name for step in description.steps]
    return {part: sha256(msgspec.json.encode(value)).hexdigest()[:16] for part, value in parts.items()}


def _read_from(source: Source) -> Any:
    if isinstance(source, TopicSource):
        return topic_key(source.topic) if source.topic is not None else ["topic_pattern", source.topic_pattern]
    return [source.format, source.path]


def _end(end: Any) -> Any:
    if isinstance(end, TopicSink):
        return [topic_key(end.topic), end.sink_id]
    if isinstance(end, TableSink):
        upsert = [end.keys, end.delete_when] if end.mode == "upsert" else []
        return [end.format, end.path, end.sink_id, end.partition_by, end.partition_date, *upsert]
    if isinstance(end, DeadTopic):
        return topic_key(end.topic)
    return [end.format, end.path] if isinstance(end, DeadTable) else None
