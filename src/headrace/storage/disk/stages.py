"""Stages on disk: a file of frames per stage, published later in one commit or dropped.

Stages are not synced: after a power cut a stage may be missing or incomplete, which its reader notices by the number of
rows, and stages the rows again. They survive a crash of the process.

Each piece is a frame of its own, and is mapped when it is read: of a stage of any size only the pieces in use are in
memory. If its rows were placed when they were staged, the frame has their directory without offsets, and the number of
partitions that the topic had then in place of the round-robin counter, with a bit for the hash of the keys.

A stage that is dropped, or expires, while a commit reads it keeps its file until its last reader releases it. Meanwhile
nothing is written under its name: the file has that name too.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.core.errors import InvalidInput, StorageError, StoreUnavailable, exhausted
from headrace.core.publish.payload_window import NO_PAYLOADS
from headrace.core.publish.placed import Places
from headrace.core.publish.sources import NO_UPDATES
from headrace.core.publish.state import NOWHERE, Commit, CommitKey
from headrace.core.topics.settings import KeyHash
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.opening.scan import scan
from headrace.storage.staged import StagePiece

FILE_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{40}")
# Added to the number of partitions if keys were placed by this hash.
_MURMUR2: Final = 1 << 32

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Stage:
    """A stage; its lock is held while a piece is written, and while its file is removed. Without it, it has a piece."""

    path: Path
    touched_us: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_dropped: bool = False
    readers: int = 0
    rows: int = 0
    end: int = 0
    has_sources: bool = False
    # Where each piece begins.
    pieces: list[int] = field(default_factory=list)

    def add(self, position: int, header: frame.Header) -> None:
        """Another piece was written."""
        self.pieces.append(position)
        self.rows += header.rows
        self.end = position + header.bytes
        self.has_sources |= frame.has_sources(header.columns)


class DiskStage:
    """The pieces of a stage, each read when it is asked for; `release` is called once, when none is needed any more."""

    def __init__(self, files: FileSystem, topic_id: int, stage: _Stage, release: Callable[[], None]) -> None:
        self._files = files
        self._topic_id = topic_id
        self._path = stage.path
        self._pieces: Sequence[int] = tuple(stage.pieces)
        self.rows = stage.rows
        self.bytes = stage.end
        self.has_sources = stage.has_sources
        self.release = release

    def __iter__(self) -> Iterator[StagePiece]:
        for position in self._pieces:
            piece = self._read(position)
            if piece is not None:
                yield piece

    def _read(self, position: int) -> StagePiece | None:
        """One piece, or None if it was damaged since."""
        try:
            # Mapped anew for each, so that the pages of those that were read are given back with their rows.
            view = self._files.map(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(self._path, error) from error
        header = frame.read_intact(view, position, self._topic_id, str(self._path))
        if header is None:
            return None
        start = position + header.body
        rows = frame.decode_rows(view[start : start + header.body_bytes], header.columns)
        if not header.round_robin:
            return StagePiece(rows)
        directory = frame.decode_directory(view, position, header)
        key_hash: KeyHash = "murmur2" if header.round_robin & _MURMUR2 else "fnv1a"
        return StagePiece(rows, Places(header.round_robin & ~_MURMUR2, directory, key_hash))


class DiskStages:
    """All stages of a store. Thread-safe; the pieces of one stage are written one after another."""

    keeps_places: Final = True

    def __init__(self, files: FileSystem, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._stages: dict[tuple[int, str], _Stage] = {}
        files.make_directory(directory)
        for name in files.list_directory(directory):
            if FILE_NAME.fullmatch(name):
                self._find(directory / name)

    def write(self, topic_id: int, stage: str, rows: pa.RecordBatch, now_us: int, places: Places | None = None) -> int:
        """Add rows to a stage; returns its number of rows."""
        while True:
            with self._lock:
                known = self._stages.get((topic_id, stage))
                if known is None:
                    known = _Stage(self._directory / _file_name(topic_id, stage), now_us)
                    self._stages[topic_id, stage] = known
            with known.lock:
                if known.is_dropped and known.readers:
                    rule = "a commit still reads it. Stage the rows under another name, or again after that commit"
                    raise InvalidInput("stage", "dropped", rule)
                if known.is_dropped:
                    # While this one waited: the next is a stage of its own.
                    continue
                try:
                    self._add(known, CommitKey(stage, topic_id), rows, now_us, places)
                finally:
                    if not known.pieces:
                        self._drop(topic_id, stage, known)
                return known.rows

    def read(self, topic_id: int, stage: str) -> DiskStage | None:
        """The rows of a stage in the order written, until they are released, or None if it does not exist."""
        known = self._stages.get((topic_id, stage))
        if known is None:
            return None
        with known.lock:
            if known.is_dropped:
                return None
            known.readers += 1
            return DiskStage(self._files, topic_id, known, partial(self._release, topic_id, stage, known))

    def drop(self, topic_id: int, stage: str) -> bool:
        """Drop a stage; returns whether it existed."""
        known = self._stages.get((topic_id, stage))
        if known is None:
            return False
        with known.lock:
            if known.is_dropped:
                return False
            self._drop(topic_id, stage, known)
            return True

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

    def _add(self, stage: _Stage, key: CommitKey, rows: pa.RecordBatch, now_us: int, places: Places | None) -> None:
        """Write a piece; the caller holds the lock of the stage."""
        directory, chosen = NOWHERE, 0
        if places is not None:
            directory = places.directory
            chosen = places.partitions | (_MURMUR2 if places.key_hash == "murmur2" else 0)
        number, position = len(stage.pieces), stage.end
        piece = Commit(number, now_us, rows, directory, chosen, (key,), NO_UPDATES, NO_PAYLOADS)
        header, buffers = frame.encode(piece, key.number, position)
        try:
            handle = self._files.open(stage.path)
            try:
                self._files.write(handle, position, buffers)
            finally:
                self._files.close(handle)
        except OSError as error:
            raise _failed(stage.path, error) from error
        stage.add(position, header)
        stage.touched_us = now_us

    def _drop(self, topic_id: int, name: str, stage: _Stage) -> None:
        """Drop a stage, whose file stays until nobody reads it; the caller holds its lock."""
        stage.is_dropped = True
        if not stage.readers:
            self._remove(topic_id, name, stage)

    def _release(self, topic_id: int, name: str, stage: _Stage) -> None:
        """One reader less."""
        with stage.lock:
            stage.readers -= 1
            if stage.is_dropped and not stage.readers:
                self._remove(topic_id, name, stage)

    def _remove(self, topic_id: int, name: str, stage: _Stage) -> None:
        """Forget a stage and delete its file; if that fails it becomes a stage again at the next opening, and expires.

        The caller holds its lock; it is marked as dropped.
        """
        try:
            self._files.remove(stage.path)
        except OSError as error:
            logger.warning("cannot delete the stage %s, it stays until it expires: %s", stage.path, error)
        # Last: whoever writes to this name from now on makes a file of this name.
        with self._lock:
            del self._stages[topic_id, name]

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
        known = self._stages[topic_id, stage] = _Stage(path, last.time_us)
        for place, header in found.frames:
            known.add(place, header)


def _file_name(topic_id: int, stage: str) -> str:
    return f"{topic_id}-{hashlib.blake2b(stage.encode(), digest_size=20).hexdigest()}"


def _failed(path: Path, error: OSError) -> StorageError:
    return exhausted(str(path), error) or StoreUnavailable(str(path), str(error))
