"""Publishes and drops stages: rows that were put aside in the store for a commit of their own.

Stages are deleted only after their commit. If a commit with the same key is repeated, its stages may be gone already,
or another call may be publishing them right now: the key decides, not the stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.broker.publish.submission import Submission
from headrace.broker.topics.topic import Topic
from headrace.core.errors import CommitConflict, StageNotFound
from headrace.core.messages import NO_MESSAGES
from headrace.core.publish.receipts import DUPLICATE_COMMIT, Receipts, all_duplicates
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged
from headrace.storage.interface import Stages


def publish(
    stages: Stages, topic: Topic, named: Sequence[Staged], key: CommitKey | None, timeout_seconds: float
) -> Receipts:
    """Publish the rows of stages, in order, in one commit, and delete the stages; see `Broker.publish_staged`."""
    try:
        batches = [NO_MESSAGES, *(batch for staged in named for batch in read(stages, topic, staged))]
        receipts = topic.intake.publish(Submission(batches, key, is_checked=True), timeout_seconds)
    except StageNotFound:
        # Checked after the stages, which another call with the same key may be publishing right now.
        last = None if key is None else topic.between_commits(lambda state: state.last_key(key.writer))
        if key is None or last is None or key.number > last.number:
            raise
        if key.conflicts_with(last):
            raise CommitConflict(topic.record.name, key.writer, key.number, last.number) from None
        receipts = all_duplicates(sum(staged.rows for staged in named), DUPLICATE_COMMIT)
    drop(stages, topic, [staged.stage for staged in named])
    return receipts


def drop(stages: Stages, topic: Topic, names: Sequence[str]) -> int:
    """Drop stages of a topic; returns how many existed."""
    return sum(stages.drop(topic.record.id, name) for name in names)


def read(stages: Stages, topic: Topic, staged: Staged) -> list[pa.RecordBatch]:
    """The rows of a stage, which must be as many as when it was written."""
    batches = stages.read(topic.record.id, staged.stage)
    if batches is None or sum(batch.num_rows for batch in batches) != staged.rows:
        raise StageNotFound(topic.record.name, staged.stage)
    return batches
