"""The rows of the stages that one commit publishes, in the order named.

A small amount is read at once: it may share a commit with others, which must not fail because a stage is damaged. More
than that is read piece by piece while the commit is written, so that it needs no memory, however much it is. It may be
read several times. Stages that are dropped or expire meanwhile are kept until the end of the `with` block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

from headrace.core.errors import StageNotFound
from headrace.core.reports.descriptions import Staged
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import StagePiece, Stages, StoredStage


class StagedRows:
    """Some stages of a topic, each of which has as many rows as its publisher says."""

    def __init__(self, stages: Stages, topic: TopicRecord, named: Sequence[Staged], loaded_bytes_max: int) -> None:
        """`loaded_bytes_max` is what is read at once at most: more than that has a commit of its own."""
        self._topic = topic.name
        with ExitStack() as held:
            self._stages = [self._found(stages.read(topic.id, each.stage), each, held) for each in named]
            self.rows = sum(each.rows for each in named)
            self.bytes = sum(stage.bytes for stage, _ in self._stages)
            self.has_sources = any(stage.has_sources for stage, _ in self._stages)
            self._loaded = list(self._read()) if self.bytes <= loaded_bytes_max else None
            self._held = held.pop_all()

    def __enter__(self) -> StagedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def __iter__(self) -> Iterator[StagePiece]:
        return self._read() if self._loaded is None else iter(self._loaded)

    def _found(self, stage: StoredStage | None, named: Staged, held: ExitStack) -> tuple[StoredStage, Staged]:
        if stage is not None:
            held.callback(stage.release)
        if stage is None or stage.rows != named.rows:
            raise StageNotFound(self._topic, named.stage)
        return stage, named

    def _read(self) -> Iterator[StagePiece]:
        for stage, named in self._stages:
            rows = 0
            for piece in stage:
                rows += piece.rows.num_rows
                yield piece
            if rows != named.rows:
                raise StageNotFound(self._topic, named.stage)
