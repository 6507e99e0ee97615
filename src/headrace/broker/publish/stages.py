"""Writes, publishes and drops stages: rows that were put aside in the store for a commit of their own.

Stages are deleted only after their commit. If a commit with the same key is repeated, its stages may be gone already,
or another call may be publishing them right now: the key decides, not the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.broker.publish.staged_rows import StagedRows
from headrace.broker.publish.submission import Submission
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.topic import Topic
from headrace.core.errors import CommitConflict, StageNotFound
from headrace.core.publish.placed import place_ahead
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.storage.interface import Stages

# Rows are many from this part of a frame on. Fewer share a frame with others, for which they are sorted together.
_MUCH_PART: Final = 8


def stage(
    stages: Stages, topic: Topic, rows: pa.RecordBatch, name: str, settings: BrokerSettings, now_us: int
) -> Staged:
    """Put canonical rows aside; many are placed at once, where the engine keeps that, so that their commit is short."""
    size = rows.nbytes
    is_much = rows.num_rows * _MUCH_PART >= settings.frame_rows or size * _MUCH_PART >= settings.frame_bytes
    fits = rows.num_rows <= settings.frame_rows and size <= settings.frame_bytes
    record, placed = topic.record, None
    if is_much and fits and stages.keeps_places:
        placed = place_ahead(rows, record.settings, record.partitions, now_us)
    sorted_rows, places = placed or (rows, None)
    return Staged(name, stages.write(record.id, name, sorted_rows, now_us, places))


def publish(
    stages: Stages, topic: Topic, named: Sequence[Staged], key: CommitKey | None, timeout_seconds: float
) -> tuple[int, int]:
    """Publish the rows of stages, in order, in one commit, and delete the stages; see `Broker.publish_staged`.

    The stages are gone before the caller waits because it wrote too fast: else a caller that does not wait so long, and
    has no key, would publish them again.
    """
    submission = None
    try:
        with StagedRows(stages, topic.record, named, topic.intake.together_bytes) as rows:
            submission = Submission(key=key, staged=rows)
            topic.intake.write(submission, timeout_seconds)
        written, dropped = submission.totals.written, submission.totals.dropped
    except StageNotFound:
        # Checked after the stages, which another call with the same key may be publishing right now.
        last = None if key is None else topic.between_commits(lambda state: state.last_key(key.writer))
        if key is None or last is None or key.number > last.number:
            raise
        if key.conflicts_with(last):
            raise CommitConflict(topic.record.name, key.writer, key.number, last.number) from None
        written, dropped = 0, sum(staged.rows for staged in named)
    drop(stages, topic, [staged.stage for staged in named])
    if submission is not None:
        topic.intake.pay(submission)
    return written, dropped


def drop(stages: Stages, topic: Topic, names: Sequence[str]) -> int:
    """Drop stages of a topic; returns how many existed."""
    return sum(stages.drop(topic.record.id, name) for name in names)
