"""Stages in memory."""

from __future__ import annotations

import threading
from typing import Final

import pyarrow as pa

from headrace.core.publish.placed import Places
from headrace.storage.staged import StageInMemory, StagePiece


class MemoryStages:
    """All stages of a store. Thread-safe."""

    keeps_places: Final = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[tuple[int, str], tuple[int, list[StagePiece]]] = {}

    def write(self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int, places: Places | None = None) -> int:
        """Add rows to a stage; returns its number of rows."""
        with self._lock:
            _, pieces = self._stages.get((topic_id, stage), (now_us, []))
            pieces = [*pieces, StagePiece(rows, places)]
            self._stages[topic_id, stage] = (now_us, pieces)
            return sum(int(piece.rows.num_rows) for piece in pieces)

    def read(self, topic_id: int, stage: str) -> StageInMemory | None:
        """The rows of a stage in the order written, or None if it does not exist."""
        known = self._stages.get((topic_id, stage))
        return None if known is None else StageInMemory(known[1])

    def drop(self, topic_id: int, stage: str) -> bool:
        """Drop a stage; returns whether it existed."""
        with self._lock:
            return self._stages.pop((topic_id, stage), None) is not None

    def drop_topic(self, topic_id: int) -> None:
        """Drop all stages of a topic."""
        with self._lock:
            self._stages = {key: stage for key, stage in self._stages.items() if key[0] != topic_id}

    def expire(self, idle_since_us: int) -> int:
        """Drop the stages without a write since then; returns how many."""
        with self._lock:
            old = [key for key, (touched_us, _) in self._stages.items() if touched_us <= idle_since_us]
            for key in old:
                del self._stages[key]
            return len(old)
