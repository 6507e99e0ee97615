"""Publishes a batch to several topics: one commit for each, between which the driver may be killed.

If Spark then repeats the batch, the commits that are missing are made, but only if the batch has the same rows for the
same topics. If chance, the time or a table that changed decides where a row goes, a row that was published may now be
planned for a topic that still lacks its commit, and another row may be planned for one that has it: one would be
doubled, the other lost. Such a batch is refused.

    every commit but the last    its fingerprint is that of the batch and of its content in all topics
    the last commit              its fingerprint says that the batch is complete

So a batch that has a complete commit anywhere publishes nothing more, whatever rows it has now. The commits are looked
up in all topics that the token may see, not only in those that the batch has rows for now. A stream does so for the
first batch of each run, since Spark repeats no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from headrace.client import Client
from headrace.core.errors import BatchChanged, CommitConflict
from headrace.core.limits import LAST_COMMITS_TOPICS_MAX
from headrace.core.names import topic_key
from headrace.core.publish.state import CommitKey
from headrace.spark.connection import Connection
from headrace.spark.write.digest import sum_of
from headrace.spark.write.fingerprint import BatchId, mark_of
from headrace.spark.write.staging import StagedPiece, check_newest, drop, publish_commit

_COMPLETE: Final = b"complete"
_PART: Final = b"part"
# The lower bits of the fingerprint of a part are of the content, the others of the batch.
_CONTENT_BITS: Final = 24

Pieces = Mapping[str, Sequence[StagedPiece]]
Found = Mapping[str, CommitKey]


def pieces_by_topic(pieces: Iterable[StagedPiece]) -> dict[str, list[StagedPiece]]:
    """Stages by what the names of one topic share, in the order in which they are published."""
    topics: dict[str, list[StagedPiece]] = {}
    for piece in sorted(pieces, key=lambda piece: topic_key(piece.topic)):
        topics.setdefault(topic_key(piece.topic), []).append(piece)
    return topics


def commits_in_all_topics(connection: Connection, writer: str) -> Found:
    """The last commit of a writer in each topic that has one."""
    return commits_in(connection, connection.call(Client.list_topics), writer)


def commits_in(connection: Connection, names: Sequence[str], writer: str) -> Found:
    """The same in some topics."""
    found: dict[str, CommitKey] = {}
    for first in range(0, len(names), LAST_COMMITS_TOPICS_MAX):
        part = names[first : first + LAST_COMMITS_TOPICS_MAX]
        found |= connection.call(partial(Client.last_commits, topics=part, writer=writer))
    return {topic_key(topic): key for topic, key in found.items()}


class _Marks(NamedTuple):
    """The fingerprints of the commits of a batch: of the last one, and of those before it."""

    complete: int | None
    part: int | None

    @classmethod
    def of(cls, batch: BatchId, topics: Pieces) -> _Marks:
        """The marks of a batch and of its rows, in whatever order and tasks."""
        rows = [(key, sum(p.rows for p in staged), sum_of(p.digest for p in staged)) for key, staged in topics.items()]
        content = mark_of(batch, json.dumps(rows).encode()) % (1 << _CONTENT_BITS)
        return cls(mark_of(batch, _COMPLETE), mark_of(batch, _PART) >> _CONTENT_BITS << _CONTENT_BITS | content)

    def are_of(self, fingerprint: int | None) -> bool:
        """Whether a commit is of this batch, whatever rows it had then."""
        if fingerprint is None or self.part is None:
            return False
        return fingerprint == self.complete or fingerprint >> _CONTENT_BITS == self.part >> _CONTENT_BITS


def publish_parts(connection: Connection, topics: Pieces, writer: str, batch: BatchId, found: Found) -> dict[str, int]:
    """Publish what is missing of a batch; by topic, how many rows it did not take because it had them."""
    for key, staged in topics.items():
        check_newest(staged[0].topic, writer, batch, found[key].number if key in found else None, "sinkId")
    marks = _Marks.of(batch, topics)
    # In a topic without rows it may be a commit of another sink that has the same id.
    here = {key: commit.fingerprint for key, commit in found.items() if commit.number == batch.number}
    done = {key: known for key, known in here.items() if key in topics or marks.are_of(known)}
    if {batch.fingerprint, None} & set(done.values()):
        # Commits of an earlier version, which say nothing of other topics.
        marks = _Marks(batch.fingerprint, batch.fingerprint)
    elif marks.complete in done.values():
        done |= dict.fromkeys(topics, marks.complete)
    else:
        _check_same(done, marks, writer, batch)
    drop(connection, (piece for key in done.keys() & topics for piece in topics[key]))
    missing, duplicates = [key for key in topics if key not in done], {}
    for key in missing:
        commit = CommitKey(writer, batch.number, marks.complete if key == missing[-1] else marks.part)
        duplicates[key] = connection.call(partial(publish_commit, pieces=topics[key], key=commit))
    return duplicates


def _check_same(done: Mapping[str, int | None], marks: _Marks, writer: str, batch: BatchId) -> None:
    """Raise if a commit was made of another batch, or of other rows."""
    for topic, known in done.items():
        if not marks.are_of(known):
            raise CommitConflict(topic, writer, batch.number, batch.number)
        if known != marks.part:
            raise BatchChanged(_shown(done), writer, batch.number)


def _shown(topics: Iterable[str]) -> str:
    names = sorted(topics)
    return "topics " + ", ".join(map(repr, names)) if len(names) > 1 else f"topic {names[0]!r}"
