"""Publishes a batch to several topics in one commit of the store: the key decides, whatever rows it has now.

If Spark repeats a batch, chance, the time or a table that changed may route its rows to other topics. The broker takes
the batch once anyway: it remembers the last key of each writer for the whole store, in the transaction that publishes
the messages of all topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from headrace.client import Client
from headrace.core.errors import CommitConflict
from headrace.core.names import topic_key
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.spark.connection import Connection
from headrace.spark.write.fingerprint import BatchId, mark_of
from headrace.spark.write.staging import StagedPiece, check_newest, commit_seconds


def pieces_by_topic(pieces: Iterable[StagedPiece]) -> list[list[StagedPiece]]:
    """The stages of each topic, however its name is spelled."""
    topics: dict[str, list[StagedPiece]] = {}
    for piece in pieces:
        topics.setdefault(topic_key(piece.topic), []).append(piece)
    return [topics[key] for key in sorted(topics)]


def of_topics(batch: BatchId, pieces: Iterable[StagedPiece]) -> BatchId:
    """A batch that goes to these topics: the same batch for other topics is another write with its number."""
    keys = sorted({topic_key(piece.topic) for piece in pieces})
    return BatchId(batch.number, mark_of(batch, "\n".join(keys).encode()))


def publish_together(
    connection: Connection, pieces: Sequence[StagedPiece], writer: str, batch: BatchId
) -> list[tuple[list[StagedPiece], int]]:
    """Publish the stages of a batch; those of each topic, and how many rows it did not take because it had them."""
    topics = pieces_by_topic(pieces)
    stages = {staged[0].topic: [Staged(piece.stage, piece.rows) for piece in staged] for staged in topics}
    key = CommitKey(writer, batch.number, batch.fingerprint)
    try:
        commit = partial(Client.commit_transaction, stages=stages, commit_key=key)
        outcome = connection.call(commit, commit_seconds(pieces))
    except CommitConflict as error:
        check_newest(error.topic, writer, batch, error.last, "sinkId")
        raise
    check_newest("", writer, batch, outcome.last_number, "sinkId")
    return [(staged, outcome.messages.get(staged[0].topic, (0, 0))[1]) for staged in topics]
