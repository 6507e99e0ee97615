"""Checks of the broker and of tables before a run: missing topics, and sink ids that were used before.

A check changes nothing: `make_topics` creates topics when a run begins.

The checks of a sink need only the right to publish: the token of a pipeline need not be able to read what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headrace.client import Client, connect
from headrace.core.errors import InvalidInput, TopicNotFound
from headrace.spark.pipeline.definition.description import (
    TABLE_FORMATS,
    DatabaseSink,
    DeadTable,
    DeadTopic,
    Description,
    TableSink,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.definition.paths import is_url
from headrace.spark.pipeline.frame.delta_table import import_deltalake
from headrace.spark.pipeline.frame.object_store import object_store, store_errors
from headrace.spark.pipeline.run.lock import unusable
from headrace.spark.pipeline.sinks.database.writer import DatabaseSinkWriter
from headrace.spark.pipeline.sinks.delta_log import DeltaLog, LogState
from headrace.spark.pipeline.sinks.file_commit import FileCommit
from headrace.spark.write.staging import make_topic

_TIMEOUT_SECONDS: Final = 10.0
_NOBODY: Final = "headrace-pipeline"


def check_topics(description: Description, is_new: bool = True) -> None:
    """Raise for missing topics, unless a run would create them, or continue without them.

    is_new: whether a stream has no checkpoint yet.
    """
    for source in (description.source, *description.sources.values()):
        if isinstance(source, TopicSource):
            may_lack = not is_new and source.mode == "stream" and source.fail_on_data_loss is False
            with connected(description, source) as client:
                _check_source(client, source, may_lack)
    for writer, _, part in _written(description, _known_writer(description)):
        if isinstance(part, TopicSink | DeadTopic):
            with connected(description, part) as client:
                if _is_missing(client, part.topic, writer) and part.partitions is None:
                    raise TopicNotFound(part.topic)


def make_topics(description: Description) -> None:
    """Create missing topics. If none is missing, no right to create is needed."""
    for writer, _, part in _written(description, _known_writer(description)):
        if isinstance(part, TopicSink | DeadTopic) and part.partitions is not None:
            with connected(description, part) as client:
                if _is_missing(client, part.topic, writer):
                    make_topic(client, part.topic, part.partitions, part.settings)


def is_loaded(description: Description, load: str, spark: SparkSession) -> bool:
    """Whether a load was written before."""
    sink = description.sink
    if isinstance(sink, TableSink):
        assert sink.path is not None, "a table has a path"
        if is_url(sink.path):
            with store_errors("sink", sink.path):
                return LogState(_log(spark, sink.path), _NOBODY).has_load(load)
        return FileCommit(Path(sink.path).absolute(), _NOBODY).has_load(load)
    if isinstance(sink, DatabaseSink):
        return DatabaseSinkWriter(sink, load).last_batch() is not None
    assert isinstance(sink, TopicSink), "a report has no id"
    with connected(description, sink) as client:
        return client.last_commit(sink.topic, load) is not None


def check_sink_id(description: Description, sink_id: str, spark: SparkSession | None = None) -> None:
    """Raise for an id that has written from another checkpoint; without Spark, tables on object stores are left out.

    Batches of a new checkpoint start at 0, and the broker or the table would drop them as already written.
    """
    for writer, _, part in _written(description, sink_id):
        if isinstance(part, TopicSink | DeadTopic):
            with connected(description, part) as client:
                _check_unused(client, part.topic, writer)
    check_tables(description, sink_id, spark)


def check_tables(description: Description, sink_id: str, spark: SparkSession | None) -> None:
    """Raise for an id that has written to a table from another checkpoint."""
    for writer, field, part in _written(description, sink_id):
        if isinstance(part, DatabaseSink):
            written = DatabaseSinkWriter(part, writer, field).last_batch()
            if written is not None:
                _refuse(writer, f"it has written up to batch {written} to {part.table}")
        if isinstance(part, TableSink | DeadTable) and part.format in TABLE_FORMATS and part.path is not None:
            try:
                number = _last_batch(part, writer, field, spark)
            except OSError as error:
                raise InvalidInput(f"{field}.path", part.path, unusable(error)) from None
            if number is not None:
                _refuse(writer, f"it has written up to batch {number} to {part.path}")


def _written(description: Description, sink_id: str) -> list[tuple[str, str, object]]:
    """What is written, with the id it is written under and its key."""
    named = [(writer_of(sink_id, name), f"sinks.{name}", sink) for name, sink in description.sinks.items()]
    return [(sink_id, "sink", description.sink), *named, (sink_id, "dead_letters", description.dead_letters)]


def writer_of(sink_id: str, name: str) -> str:
    """The id that a named sink writes under: two sinks may write to one topic."""
    return f"{sink_id}-{name}"


def _known_writer(description: Description) -> str:
    """The id of the main sink if the file has one: a token may have the right to publish for some ids only."""
    return getattr(description.sink, "sink_id", None) or description.run.load_id or _NOBODY


def _check_source(client: Client, source: TopicSource, may_lack: bool) -> None:
    for topic in source.topics:
        try:
            client.describe_topic(topic)
        except TopicNotFound:
            if not may_lack:
                raise
    if source.topic_pattern is not None and source.mode == "batch" and not selected_topics(client, source):
        # A stream waits for the first one.
        raise InvalidInput("source.topic_pattern", source.topic_pattern[:100], "no topic has a name that matches it")


def _is_missing(client: Client, topic: str, writer: str) -> bool:
    """Whether a topic that is written does not exist."""
    try:
        client.last_commit(topic, writer)
    except TopicNotFound:
        return True
    return False


def selected_topics(client: Client, source: TopicSource) -> list[str]:
    """The topics that a source reads now, as far as the token may see them."""
    return source.topics or sorted(filter(source.selects, client.list_topics()))


def _check_unused(client: Client, topic: str, sink_id: str) -> None:
    try:
        number = client.last_commit(topic, sink_id)
    except TopicNotFound:
        # It is to be made, so nobody has published to it.
        return
    if number is not None:
        _refuse(sink_id, f"it has published up to batch {number} to {topic!r}")


def _last_batch(part: TableSink | DeadTable, sink_id: str, field: str, spark: SparkSession | None) -> int | None:
    assert part.path is not None
    if is_url(part.path):
        if spark is None:
            return None
        import_deltalake(f"{field}.format")
        with store_errors(field, part.path):
            return _log(spark, part.path).number_of(sink_id, is_quick=True)
    table = Path(part.path).absolute()
    landing = FileCommit(table, sink_id)
    if landing.is_used:
        return max(0, landing.last)
    if part.format != "delta" or not (table / "_delta_log").is_dir():
        return None
    try:
        from deltalake import DeltaTable
    except ImportError:
        # Said by the destination, with the remedy.
        return None
    return DeltaTable(str(table)).transaction_version(sink_id)


def _log(spark: SparkSession, url: str) -> DeltaLog:
    return DeltaLog(url, object_store(spark, url))


def _refuse(sink_id: str, told: str) -> None:
    rule = (
        f"{told} from another checkpoint, or from this one before its directory spark was deleted; batches that "
        "restart at 0 would be dropped as already written: continue with that checkpoint, or choose another id. An id "
        "that you did not choose belongs to its checkpoint: choose another checkpoint"
    )
    raise InvalidInput("sink.sink_id", sink_id, rule)


@contextmanager
def connected(description: Description, part: TopicSource | TopicSink | DeadTopic) -> Iterator[Client]:
    """A client of the broker of a part."""
    server = description.server
    try:
        client = connect(
            description.url_of(part), server.token, root_certificates=server.ca, timeout_seconds=_TIMEOUT_SECONDS
        )
    except OSError as error:
        # No server is asked yet: it is the only file that is read.
        raise InvalidInput("server.ca", str(server.ca), f"it cannot be read ({error.strerror})") from None
    with client:
        yield client
