"""Writing to topics: tasks put rows aside, and the driver publishes them in one commit per topic.

    task    write(rows)  ─► stages ─► message that names them
    driver  commit(messages, batch)  ─► publish all stages of a topic in one commit, with the key (sink, batch)

The broker remembers the last batch of each sink: a commit with a key that it has seen publishes nothing. So whatever
dies between the two, and however often Spark does a micro-batch again, its rows are published once.

| what fails | what happens |
|---|---|
| a task, before or after staging | another attempt stages anew; only the one that Spark takes is named in the commit |
| the driver before the commit | the stages expire; the batch is done again |
| the driver after the commit, before Spark notes it | the batch is done again; its commit publishes nothing |
| the broker | tasks and commit wait for it and try again |

Spark makes a new writer for each commit of a stream, so nothing is kept in it; what the commit must know is in the
messages.
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
from headrace.spark.write.staging import StagedPiece, drop, make_topic, publish_rows, publish_stages, stage_rows

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_NOBODY: Final = "spark"

# Topics that this process found or made; a worker of Spark plans many micro-batches.
_found: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task put aside, and the query it was for."""

    pieces: tuple[StagedPiece, ...]
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame; the same object, by way of pickle, is in the tasks and commits."""

    def __init__(self, options: WriteOptions) -> None:
        _find_topic(options)
        self._options = options
        # Also one that is not named has a key of its own, so that its commit may be tried again.
        self._writer = options.sink_id if options.sink_id is not None else f"spark-{uuid.uuid4().hex}"
        self._number = options.batch_id or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: put the rows of it aside."""
        return Written(_write(self._options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks put aside."""
        _publish(self._options, _pieces(messages), self._writer, self._number)

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
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        return Written(_write(self._options, iterator), query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks put aside, unless this micro-batch was published before."""
        pieces = _pieces(messages)
        if not pieces:
            return
        writer = self._options.sink_id or _query_id(messages)
        _publish(self._options, pieces, writer, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the tasks put aside."""
        drop(self._options.connection, _pieces(messages))


def _find_topic(options: WriteOptions) -> None:
    """Refuse a topic that is not there before anything is written, or make it if that is asked for."""
    topic = options.topic
    if topic is None or (options.connection.url, topic_key(topic)) in _found:
        return

    def find(client: Client) -> None:
        try:
            # Asked in a way that needs no other right than to publish.
            client.last_commit(topic, _NOBODY)
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


def _query_id(messages: Sequence[WriterCommitMessage | None]) -> str:
    for message in messages:
        if isinstance(message, Written) and message.query_id is not None:
            return message.query_id
    raise InvalidInput("sinkId", "not given", "Spark did not tell the id of the query: give a sinkId of your own")


def _publish(options: WriteOptions, pieces: Sequence[StagedPiece], writer: str, number: int) -> None:
    """Publish stages, in one commit for each topic."""
    by_key: dict[str, list[StagedPiece]] = {}
    for piece in pieces:
        by_key.setdefault(topic_key(piece.topic), []).append(piece)
    for staged in by_key.values():
        _publish_to(options, staged, writer, number)


def _publish_to(options: WriteOptions, staged: Sequence[StagedPiece], writer: str, number: int) -> None:
    topic, rows = staged[0].topic, sum(piece.rows for piece in staged)
    dropped = publish_stages(options.connection, topic, staged, writer, number, "sinkId")
    if dropped:
        told = "topic %r: %d of %d rows were not written, they repeat what their source, by seqno, or the topic has"
        logger.warning(told, topic, dropped, rows)
