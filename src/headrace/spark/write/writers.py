"""Writes to topics: tasks stage rows, and the driver publishes them in one commit per topic.

    task    write(rows)  ─► stages ─► message that names them
    driver  commit(messages, batch)  ─► publish all stages of a topic in one commit, with the key (sink, batch)

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
from headrace.spark.options import WriteOptions
from headrace.spark.write.fingerprint import BatchId, batch_id
from headrace.spark.write.staging import StagedPiece, drop, make_topic, publish_rows, publish_stages, stage_rows

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_NOBODY: Final = "spark"

# Topics that this process found or created; a worker of Spark plans many micro-batches.
_found: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The stages of one task, and the id of its query."""

    pieces: tuple[StagedPiece, ...]
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame; the same object, by way of pickle, is in the tasks and commits."""

    def __init__(self, options: WriteOptions) -> None:
        _find_topic(options)
        self._options = options
        # A write without a name gets its own key, so that its commit can be retried.
        self._writer = options.sink_id if options.sink_id is not None else f"spark-{uuid.uuid4().hex}"
        self._number = options.batch_id or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return Written(_write(self._options, iterator), _running_query())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks put aside."""
        batch = batch_id(self._number, None, _query_id(messages))
        _publish(self._options, _pieces(messages), self._writer, batch)

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
        return Written(_write(self._options, iterator), _running_query())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks put aside, unless this micro-batch was published before."""
        pieces = _pieces(messages)
        if not pieces:
            return
        query_id = _query_id(messages)
        writer = self._options.sink_id or query_id
        if writer is None:
            rule = "Spark did not report the id of the query: set the option sinkId"
            raise InvalidInput("sinkId", "not given", rule)
        _publish(self._options, pieces, writer, batch_id(batchId, self._options.checkpoint, query_id))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the tasks put aside."""
        drop(self._options.connection, _pieces(messages))


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


def _write(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> tuple[StagedPiece, ...]:
    if options.delivery == "exactly-once":
        return stage_rows(options, batches)
    publish_rows(options, batches)
    return ()


def _pieces(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPiece]:
    return [piece for message in messages if isinstance(message, Written) for piece in message.pieces]


def _running_query() -> str | None:
    """In a task: the id of the streaming query that it is part of, also of one that writes in foreachBatch."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def _query_id(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.query_id for message in messages if isinstance(message, Written) and message.query_id), None)


def _publish(options: WriteOptions, pieces: Sequence[StagedPiece], writer: str, batch: BatchId) -> None:
    """Publish stages, in one commit for each topic."""
    by_key: dict[str, list[StagedPiece]] = {}
    for piece in pieces:
        by_key.setdefault(topic_key(piece.topic), []).append(piece)
    for staged in by_key.values():
        _publish_to(options, staged, writer, batch)


def _publish_to(options: WriteOptions, staged: Sequence[StagedPiece], writer: str, batch: BatchId) -> None:
    topic, rows = staged[0].topic, sum(piece.rows for piece in staged)
    dropped = publish_stages(options.connection, topic, staged, writer, batch, "sinkId")
    if dropped:
        told = "topic %r: %d of %d rows were not written: they are duplicates by seqno of their source, or by payload"
        logger.warning(told, topic, dropped, rows)
