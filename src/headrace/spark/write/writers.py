"""Writes to topics: tasks stage rows, and the driver publishes them in one commit.

    task    write(rows)  ─► stages ─► message that names them
    driver  commit(messages, batch)  ─► publish all stages in one commit over their topics, with the key (sink, batch)

The broker remembers the last batch of each sink: a commit with a known key publishes nothing. So whatever fails
between the two, and however often Spark repeats a micro-batch, its rows are published once. The key has a fingerprint:
a known number of another query, or of a copied checkpoint, is an error.

| what fails | what happens |
|---|---|
| a task, before or after staging | another attempt stages again; the commit names only the one that Spark accepts |
| the driver before the commit | the stages expire; the batch is repeated |
| the driver after the commit, before Spark records it | the batch is repeated; its commit publishes nothing |
| the broker | tasks and commit retry until it is back |

Spark creates a new writer for each commit of a stream, so it has no state; the commit messages carry everything.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client import Client
from headrace.core.errors import InvalidInput, TopicNotFound
from headrace.core.names import topic_key
from headrace.core.publish.writers import one_time_writer
from headrace.spark.connection import Connection
from headrace.spark.options import WriteOptions
from headrace.spark.write.fingerprint import BatchId, batch_id
from headrace.spark.write.several_topics import of_topics, publish_together
from headrace.spark.write.staging import StagedPiece, drop, make_topic, publish_rows, publish_stages, stage_rows

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_DEFAULT_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_NOBODY: Final = "spark"

# Topics that this process found or created; a worker of Spark plans many micro-batches.
_found: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The stages of one task, and what it knows of its query: its id, and where checkpoints are by default."""

    pieces: tuple[StagedPiece, ...]
    query_id: str | None = None
    default_checkpoints: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame; the same object, by way of pickle, is in the tasks and commits."""

    def __init__(self, options: WriteOptions) -> None:
        _find_topic(options)
        self._options = options
        # A write without a name gets its own key, so that its commit can be retried; it is not remembered for long.
        once = one_time_writer("spark", uuid.uuid4().hex)
        self._writer = options.sink_id if options.sink_id is not None else once
        self._number = options.batch_id or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks put aside."""
        pieces, connection = _pieces(messages), self._options.connection
        batch = batch_id(self._number, None, _of_query(messages, "query_id"))
        if self._options.topic is not None:
            _publish(connection, pieces, self._writer, batch)
        else:
            # Else another write of the same batch to other topics would count as repeated.
            _publish_together(connection, pieces, self._writer, of_topics(batch, pieces))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks put aside."""
        drop(self._options.connection, _pieces(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: WriteOptions) -> None:
        _find_topic(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks put aside, unless this micro-batch was published before."""
        pieces, connection = _pieces(messages), self._options.connection
        query_id = _of_query(messages, "query_id")
        writer = self._options.sink_id or query_id
        if writer is None:
            if not pieces:
                return
            rule = "Spark did not report the id of the query: set the option sinkId"
            raise InvalidInput("sinkId", "not given", rule)
        batch = batch_id(batchId, self._checkpoint(messages), query_id)
        if self._options.topic is not None:
            _publish(connection, pieces, writer, batch)
        else:
            _publish_together(connection, pieces, writer, batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the tasks put aside."""
        drop(self._options.connection, _pieces(messages))

    def _checkpoint(self, messages: Sequence[WriterCommitMessage | None]) -> str | None:
        """The checkpoint of the query; unknown if Spark named its directory by chance."""
        location, name = _of_query(messages, "default_checkpoints"), self._options.query_name
        default = None if location is None or name is None else f"{location}/{name}"
        return self._options.checkpoint or default


def _find_topic(options: WriteOptions) -> None:
    """Raise if the topic does not exist, before anything is written; or create it with createTopic."""
    topic = options.topic
    if topic is None or (options.connection.url, topic_key(topic)) in _found:
        return

    def find(client: Client) -> None:
        try:
            # This call needs only the right to publish, which a token may have for some sinks only.
            client.last_commit(topic, options.sink_id or _NOBODY)
        except TopicNotFound:
            if not options.create_topic:
                raise
            make_topic(client, topic, options.partitions, options.topic_settings)

    options.connection.call(find)
    _found.add((options.connection.url, topic_key(topic)))


def _write(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """In a task: stage rows, also for a streaming query that writes in foreachBatch."""
    pieces: tuple[StagedPiece, ...] = ()
    if options.delivery == "exactly-once":
        pieces = stage_rows(options, batches)
    else:
        publish_rows(options, batches)
    context = TaskContext.get()
    if context is None:
        return Written(pieces)
    return Written(pieces, *map(context.getLocalProperty, (_QUERY_ID, _DEFAULT_CHECKPOINTS)))


def _pieces(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPiece]:
    return [piece for message in messages if isinstance(message, Written) for piece in message.pieces]


def _of_query(messages: Sequence[WriterCommitMessage | None], field: str) -> str | None:
    """What the tasks know of their query."""
    known = (getattr(message, field) for message in messages if isinstance(message, Written))
    return next((value for value in known if value), None)


def _publish(connection: Connection, pieces: Sequence[StagedPiece], writer: str, batch: BatchId) -> None:
    """Publish the stages of one topic, if there are any."""
    if not pieces:
        return
    dropped = publish_stages(connection, pieces[0].topic, pieces, writer, batch, "sinkId")
    _tell_duplicates(pieces, dropped)


def _publish_together(connection: Connection, pieces: Sequence[StagedPiece], writer: str, batch: BatchId) -> None:
    """Publish the stages of several topics, if there are any."""
    if pieces:
        for staged, dropped in publish_together(connection, pieces, writer, batch):
            _tell_duplicates(staged, dropped)


def _tell_duplicates(pieces: Sequence[StagedPiece], dropped: int) -> None:
    if dropped:
        told = "topic %r: %d of %d rows were not written: they are duplicates by seqno of their source, or by payload"
        logger.warning(told, pieces[0].topic, dropped, sum(piece.rows for piece in pieces))
