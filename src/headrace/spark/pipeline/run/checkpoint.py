"""A pipeline's own file beside Spark's checkpoint: the query that created it, and the id its sinks publish under.

    <checkpoint>/headrace-pipeline.json    fingerprint of the query, sink id
    <checkpoint>/headrace-pipeline.lock    held by the running pipeline; on an object store, see `claim`
    <checkpoint>/spark/                    Spark's offsets, commits and state

Spark itself would start a changed query on an old checkpoint, and produce wrong rows or fail late. So everything that
affects rows is fingerprinted part by part, and a change is an error that names the part. Addresses, limits, tokens and
triggers are not included.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.core.names import topic_key
from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    DeadTable,
    DeadTopic,
    Description,
    Source,
    TableSink,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.definition.paths import is_url
from headrace.spark.pipeline.run.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles
from headrace.spark.pipeline.run.claim import Claim
from headrace.spark.pipeline.run.lock import Lock, unusable
from headrace.spark.write.fingerprint import BatchId, batch_id, batch_of

_FILE: Final = "headrace-pipeline.json"
_LOCK: Final = "headrace-pipeline.lock"
_VERSION: Final = 1


class Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says."""

    version: int
    sink_id: str
    parts: dict[str, str]


class Checkpoint:
    """The checkpoint of a streaming pipeline."""

    def __init__(
        self, description: Description, files: CheckpointFiles | None = None, claim: Claim | None = None
    ) -> None:
        """files, claim: those of an object store; without, it is a directory."""
        assert description.run.checkpoint is not None
        self._files = files or LocalFiles(description.run.checkpoint)
        self._claim = claim
        self._parts = fingerprint(description)
        self._found = self._read()
        known = self._found.sink_id if self._found is not None else uuid.uuid4().hex
        # The id that batches are published under: the same for as long as the checkpoint lives.
        self.sink_id = getattr(description.sink, "sink_id", None) or known

    @property
    def spark(self) -> str:
        """Where Spark keeps its own."""
        return f"{self._files.place}/{self._spark}"

    @property
    def _spark(self) -> str:
        return "spark" if self._claim is None else self._claim.directory

    def query_starts(self) -> None:
        """Until `query_ended`, Spark may write to the checkpoint, even if the run fails."""
        if self._claim is not None:
            self._claim.is_in_use = True

    def query_ended(self) -> None:
        """Spark has stopped writing."""
        if self._claim is not None:
            self._claim.is_in_use = False

    @property
    def is_new(self) -> bool:
        """Whether no query has ever run on it."""
        # Not by our own file, which exists before the first start, and also where only Spark's part was deleted.
        return not self._files.exists(self._spark)

    def batch(self, number: int) -> BatchId:
        """Identify a batch that is about to be written; raises if another run has taken over."""
        if self._claim is None:
            return batch_id(number, self.spark, None)
        self._claim.check()
        planned = f"{self._spark}/offsets/{number}"
        content = self._files.read(planned)
        if content is None:
            raise StoreUnavailable(self._files.place, f"{planned} was deleted; nothing of this batch was written")
        return batch_of(number, content)

    def check(self, accept_change: bool = False) -> None:
        """Raise if another query created the checkpoint."""
        if self._found is None:
            if self._files.exists("spark") or self._files.exists("offsets"):
                rule = "it is not a checkpoint of a pipeline: choose another directory"
                raise InvalidInput("run.checkpoint", self._files.place, rule)
            return
        changed = [part for part, print_ in self._parts.items() if self._found.parts.get(part) != print_]
        if changed and not accept_change:
            rule = (
                f"it was created by another query: {', '.join(changed)} changed since. Choose another checkpoint, "
                "or use --accept-change if the new query can continue from the state of the old one"
            )
            raise InvalidInput("run.checkpoint", self._files.place, rule)

    def store(self) -> None:
        """Store the fingerprint of the query, once all checks have passed."""
        was_found, self._found = self._found, Remembered(_VERSION, self.sink_id, self._parts)
        content = msgspec.json.format(msgspec.json.encode(self._found), indent=2)
        if was_found is not None:
            self._files.replace(_FILE, content)
        elif not self._files.create(_FILE, content):
            # With another id: batches of both would be written.
            raise StoreUnavailable(self._files.place, "another run has just started on this checkpoint")

    def _read(self) -> Remembered | None:
        content = self._files.read(_FILE)
        if content is None:
            return None
        try:
            found = msgspec.json.decode(content, type=Remembered)
        except msgspec.DecodeError as error:
            raise InvalidInput("run.checkpoint", self._files.place, f"{_FILE} cannot be read: {error}") from None
        if found.version != _VERSION:
            rule = f"it has version {found.version}, this Headrace supports {_VERSION}: upgrade it"
            raise InvalidInput("run.checkpoint", self._files.place, rule)
        return found


def is_on_object_store(description: Description) -> bool:
    """Whether the checkpoint of a pipeline is a URL."""
    return description.is_stream and is_url(description.run.checkpoint or "")


def open_checkpoint(
    description: Description, spark: SparkSession | None = None, claim: Claim | None = None
) -> Checkpoint | None:
    """The checkpoint of a pipeline, None of a batch; claim: that of this run, if it holds one."""
    if not is_on_object_store(description):
        return Checkpoint(description) if description.is_stream else None
    assert spark is not None, "an object store is reached by Spark"
    files = HadoopFiles(spark, str(description.run.checkpoint))
    return Checkpoint(description, files, claim or Claim(files))


def lock_of(description: Description) -> Lock:
    """The lock of a checkpoint that is a directory."""
    directory = Path(description.run.checkpoint or "").absolute()
    return Lock(directory / _LOCK, directory, "another run uses this checkpoint: wait until it has ended, or stop it")


@contextmanager
def held(description: Description, spark: SparkSession, wait: Callable[[float], bool]) -> Iterator[Claim | None]:
    """Exclude other runs. Done before the checkpoint is read, because its content decides ids and batch numbers."""
    found = open_checkpoint(description, spark)
    if found is None:
        yield None
        return
    # Of a directory that is none of ours nothing is made.
    found.check(accept_change=True)
    if is_on_object_store(description):
        claim = Claim(HadoopFiles(spark, str(description.run.checkpoint)))
        try:
            claim.take(wait)
            yield claim
        finally:
            claim.release()
        return
    lock = lock_of(description)
    try:
        lock.take()
    except OSError as error:
        raise InvalidInput("run.checkpoint", str(description.run.checkpoint), unusable(error)) from None
    try:
        yield None
    finally:
        lock.release()


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
    if isinstance(end, DatabaseSink):
        # Addresses and passwords may change.
        return ["database", end.table, end.sink_id, end.mode, end.keys]
    if isinstance(end, DeadTopic):
        return topic_key(end.topic)
    return [end.format, end.path] if isinstance(end, DeadTable) else None
