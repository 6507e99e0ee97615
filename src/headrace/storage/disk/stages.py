"""Stages on disk: a file of frames per stage, published later in one commit or dropped.

Stages are not synced: after a power cut a stage may be missing or incomplete, which its reader notices by the number of
rows, and stages the rows again. They survive a crash of the process.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import StoreUnavailable, exhausted
from headrace.core.publish.payload_window import NO_PAYLOADS
from headrace.core.publish.sources import NO_UPDATES
from headrace.core.publish.state import NOWHERE, Commit, CommitKey
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.opening.scan import scan

FILE_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{40}")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Stage:
    path: Path
    touched_us: int
    rows: int = 0
    pieces: int = 0
    end: int = 0


class DiskStages:
    """All stages of a store. Thread-safe; the pieces of one stage are written one after another."""

    def __init__(self, files: FileSystem, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._stages: dict[tuple[int, str], _Stage] = {}
        files.make_directory(directory)
        for name in files.list_directory(directory):
            if FILE_NAME.fullmatch(name):
                self._find(directory / name)

    def write(self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int) -> int:
        """Add rows to a stage; returns its number of rows."""
        with self._lock:
            known = self._stages.get((topic_id, stage))
            if known is None:
                known = _Stage(self._directory / _file_name(topic_id, stage), now_us)
            keys = (CommitKey(stage, topic_id),)
            piece = Commit(known.pieces, now_us, rows, NOWHERE, 0, keys, NO_UPDATES, NO_PAYLOADS)
            header, buffers = frame.encode(piece, topic_id, known.end)
            self._append(known, buffers)
            known.rows, known.pieces, known.end = known.rows + rows.num_rows, known.pieces + 1, known.end + header.bytes
            known.touched_us = now_us
            self._stages[topic_id, stage] = known
            return known.rows

    def read(self, topic_id: int, stage: str) -> list[pa.RecordBatch] | None:
        """The rows of a stage in the order written, or None if it does not exist."""
        with self._lock:
            known = self._stages.get((topic_id, stage))
            if known is None:
                return None
            view = self._files.map(known.path)[: known.end]
        found = scan(view, 0, topic_id, str(known.path))
        return [
            frame.decode_rows(view[start + header.body : start + header.body + header.body_bytes], header.columns)
            for start, header in found.frames
        ]

    def drop(self, topic_id: int, stage: str) -> bool:
        """Drop a stage; returns whether it existed."""
        with self._lock:
            known = self._stages.pop((topic_id, stage), None)
            if known is not None:
                self._remove(known)
            return known is not None

    def topics(self) -> set[int]:
        """The ids of the topics that have stages."""
        return {topic_id for topic_id, _ in list(self._stages)}

    def drop_topic(self, topic_id: int) -> None:
        """Drop all stages of a topic."""
        for other, stage in list(self._stages):
            if other == topic_id:
                self.drop(topic_id, stage)

    def expire(self, idle_since_us: int) -> int:
        """Drop the stages without a write since then; returns how many."""
        old = [key for key, stage in list(self._stages.items()) if stage.touched_us <= idle_since_us]
        return sum(self.drop(*key) for key in old)

    def _append(self, stage: _Stage, buffers: list[Any]) -> None:
        try:
            handle = self._files.open(stage.path)
            try:
                self._files.write(handle, stage.end, buffers)
            finally:
                self._files.close(handle)
        except OSError as error:
            if not stage.pieces:
                self._remove(stage)
            raise exhausted(str(stage.path), error) or StoreUnavailable(str(stage.path), str(error)) from error

    def _remove(self, stage: _Stage) -> None:
        """Delete the file; if that fails it becomes a stage again at the next opening, and expires."""
        try:
            self._files.remove(stage.path)
        except OSError as error:
            logger.warning("cannot delete the stage %s, it stays until it expires: %s", stage.path, error)

    def _find(self, path: Path) -> None:
        """Register a stage that an earlier process left, or delete an invalid file."""
        view = self._files.map(path)
        topic_id = int(path.name.split("-")[0])
        found = scan(view, 0, topic_id, str(path))
        if not found.frames or found.holes:
            self._files.remove(path)
            return
        position, last = found.frames[-1]
        stage = frame.decode_keys(view, position, last)[0].writer
        rows = sum(header.rows for _, header in found.frames)
        self._stages[topic_id, stage] = _Stage(path, last.time_us, rows, len(found.frames), found.end)


def _file_name(topic_id: int, stage: str) -> str:
    return f"{topic_id}-{hashlib.blake2b(stage.encode(), digest_size=20).hexdigest()}"
