"""Writes rows in a task, exactly once: rows are staged in the broker, and published when Spark commits.

Each piece of rows is one stage with a unique name. If its answer is lost, its state is unknown: the piece is staged
again under another name, and only that name is reported to the driver. So a retried task, a speculative task and a
broker restart leave unused stages: they are dropped, or expire after an hour.

The next piece is collected while the last one is sent; at most two are in memory.

The commit of a large batch may take longer than a broker that does not respond is waited for, so it gets more time.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.client import Client
from headrace.core.errors import AnswerLost, HeadraceError, InvalidInput, ServerFailed, TopicExists, TopicNotFound
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.spark.connection import Connection
from headrace.spark.options import WriteOptions
from headrace.spark.start.worker_tuning import settle
from headrace.spark.write.fingerprint import BatchId
from headrace.spark.write.rows import Pieces, by_topic

# A broker that commits more slowly than this is not waited for.
_COMMIT_BYTES_PER_SECOND: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """Rows staged in the broker, and their bytes."""

    topic: str
    stage: str
    rows: int
    bytes: int


Send = Callable[[Client, str, pa.RecordBatch], StagedPiece | None]


def stage_rows(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> tuple[StagedPiece, ...]:
    """Stage rows; if that fails, the stages are dropped."""
    sending = _Sending(options, _stage)
    try:
        sending.send(batches)
    except BaseException:
        drop(options.connection, sending.sent)
        raise
    return tuple(sending.sent)


def publish_rows(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> None:
    """Publish rows directly, at least once; those whose answer was lost are published again."""
    _Sending(options, _publish).send(batches)


def publish_stages(
    connection: Connection, topic: str, pieces: Sequence[StagedPiece], writer: str, batch: BatchId, field: str
) -> int:
    """Publish stages in one commit, unless that was done before; how many rows the topic did not take as it had them.

    field: what the user calls the writer, for the error about one whose checkpoint begins anew.
    """

    def publish(client: Client) -> int:
        last = client.last_commit(topic, writer)
        check_newest(topic, writer, batch, last, field)
        stages = [Staged(piece.stage, piece.rows) for piece in pieces]
        _, duplicates = client.publish_staged(topic, stages, CommitKey(writer, batch.number, batch.fingerprint))
        # All rows of a batch that was published before are duplicates, which means nothing.
        return 0 if last == batch.number else duplicates

    return connection.call(publish, commit_seconds(pieces))


def commit_seconds(pieces: Iterable[StagedPiece]) -> float:
    """How long a slow broker may work on the commit of these."""
    return sum(piece.bytes for piece in pieces) / _COMMIT_BYTES_PER_SECOND


def check_newest(topic: str, writer: str, batch: BatchId, last: int | None, field: str) -> None:
    """Raise for a batch before the last one that its writer published, to a topic or to several."""
    if last is not None and last > batch.number:
        where = f" in topic {topic!r}" if topic else ""
        rule = (
            f"its last batch{where} was {last} and this is {batch.number}: the checkpoint is "
            f"older than the sink. Use a new {field} with a new checkpoint; nothing of this batch was written"
        )
        raise InvalidInput(field, repr(writer), rule)


def drop(connection: Connection, pieces: Iterable[StagedPiece]) -> None:
    """Drop stages that will not be published, best effort: the others expire."""
    stages: dict[str, list[str]] = {}
    for piece in pieces:
        stages.setdefault(piece.topic, []).append(piece.stage)
    for topic, names in stages.items():
        with contextlib.suppress(HeadraceError):
            connection.client().drop_stages(topic, names)


def make_topic(client: Client, topic: str, partitions: int | None, settings: Mapping[str, Any]) -> None:
    """Create a topic, unless it exists."""
    with contextlib.suppress(TopicExists):
        client.create_topic(topic, partitions, **settings)


class _Sending:
    """Sends pieces one at a time, in a thread of its own."""

    def __init__(self, options: WriteOptions, send: Send) -> None:
        self._options = options
        self._send = send
        self.sent: list[StagedPiece] = []

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Send all rows; when it fails, `sent` has everything that may have come through."""
        settle()
        with ThreadPoolExecutor(1, "headrace-sending") as sender:
            under_way: Future[None] | None = None
            for topic, rows in _pieces(batches, self._options.topic):
                if under_way is not None:
                    under_way.result()
                under_way = sender.submit(self._send_patiently, topic, rows)
            if under_way is not None:
                under_way.result()

    def _send_patiently(self, topic: str, rows: pa.RecordBatch) -> None:
        piece = self._options.connection.call(lambda client: self._attempt(client, topic, rows))
        if piece is not None:
            self.sent.append(piece)

    def _attempt(self, client: Client, topic: str, rows: pa.RecordBatch) -> StagedPiece | None:
        try:
            return self._send(client, topic, rows)
        except TopicNotFound:
            if not self._options.create_topic:
                raise
            make_topic(client, topic, self._options.partitions, self._options.topic_settings)
            return self._send(client, topic, rows)


def _pieces(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    pieces = Pieces()
    for batch in batches:
        for name, rows in by_topic(batch, topic):
            piece = pieces.add(name, rows)
            if piece is not None:
                yield piece
    yield from pieces.rest()


def _stage(client: Client, topic: str, rows: pa.RecordBatch) -> StagedPiece:
    name = f"spark-{uuid.uuid4().hex}"
    try:
        staged = client.stage(topic, [rows], name).rows
        if staged != rows.num_rows:
            raise ServerFailed(f"it staged {staged} rows of {rows.num_rows}")
        return StagedPiece(topic, name, staged, rows.nbytes)
    except (AnswerLost, ServerFailed):
        with contextlib.suppress(HeadraceError):
            client.drop_stages(topic, [name])
        raise


def _publish(client: Client, topic: str, rows: pa.RecordBatch) -> None:
    with client.producer(topic, timeout_seconds=30.0) as producer:
        producer.send_batch(rows)
