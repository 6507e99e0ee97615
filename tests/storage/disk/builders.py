"""A topic on disk whose files a test can reach, and an operating system that fails when it is told to."""

from __future__ import annotations

import errno
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import SegmentHeader, create_segment
from headrace.storage.disk.log import DiskLog
from headrace.storage.disk.opening.recovery import recover
from headrace.storage.disk.options import DiskOptions
from tests.storage.builders import CREATED_US, NOW_US, publish

TINY_OPTIONS = DiskOptions(segment_bytes=1024, segment_frames=3)
ROOMY_OPTIONS = DiskOptions()
NO_SPACE = errno.ENOSPC
BROKEN = errno.EIO


class FailingFiles(FileSystem):
    """The operating system, with calls that fail as planned; `calls` names those that were made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._planned: dict[str, deque[OSError | None]] = {}

    def fail(self, call: str, *numbers: int | None) -> None:
        """Let the next such calls fail with these error numbers; none lets one pass."""
        self._planned[call] = deque(None if number is None else OSError(number, call) for number in numbers)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        planned = self._planned.get(call)
        error = planned.popleft() if planned else None
        if error is not None:
            raise error

    def open(self, path: Path) -> int:
        self._note("open")
        return super().open(path)

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        self._note("write")
        super().write(handle, position, parts)

    def sync(self, handle: int) -> None:
        self._note("sync")
        super().sync(handle)

    def truncate(self, handle: int, length: int) -> None:
        self._note("truncate")
        super().truncate(handle, length)

    def close(self, handle: int) -> None:
        super().close(handle)
        self._note("close")

    def map(self, path: Path) -> memoryview:
        self._note("map")
        return super().map(path)

    def replace(self, source: Path, target: Path) -> None:
        self._note("replace")
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._note("remove")
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        self._note("remove_directory")
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._note("sync_directory")
        super().sync_directory(path)


class DiskTopic:
    """A store with one topic in it."""

    def __init__(
        self,
        directory: Path,
        partitions: int = 1,
        options: DiskOptions = TINY_OPTIONS,
        settings: TopicSettings = DEFAULT_SETTINGS,
        files: FileSystem | None = None,
    ) -> None:
        self.root = directory
        self.files = files or FileSystem()
        self._options = options
        self.store = DiskStore(directory, options, self.files)
        self.record = self.store.catalog.add_topic(
            "Orders", "orders", partitions, settings, CREATED_US, lambda made: self.store.create_log(made, CREATED_US)
        )
        self.log: DiskLog = self.store.open_log(self.record, NOW_US)

    @property
    def directory(self) -> Path:
        return self.root / "topics" / f"{self.record.id:09d}"

    def paths(self, ending: str = "log") -> list[Path]:
        """The files of the topic with this ending, oldest first."""
        return sorted(self.directory.glob(f"*.{ending}"))

    def publish(
        self, *batches: pa.RecordBatch, now_us: int = NOW_US, keys: tuple[CommitKey, ...] = ()
    ) -> list[Receipts]:
        return publish(self.log, *batches, now_us=now_us, settings=self.record.settings, keys=keys)

    def close(self) -> None:
        self.log.close()
        self.store.close()

    def open(self, now_us: int = NOW_US) -> DiskLog:
        """Open the store again once it is closed."""
        self.store = DiskStore(self.root, self._options, self.files)
        self.record = self.store.catalog.topics()[0]
        self.log = self.store.open_log(self.record, now_us)
        return self.log

    def reopen(self, now_us: int = NOW_US) -> DiskLog:
        self.close()
        return self.open(now_us)

    def kill(self) -> None:
        """Leave it as a process that was killed does: the files as they are, in a directory of their own."""
        after = self.root.with_name(self.root.name + "+")
        shutil.copytree(self.root, after)
        self.close()
        self.root = after


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit of a file in place, so that whoever has it mapped sees it."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def frame_positions(path: Path) -> list[int]:
    """Where frames begin in a segment whose frames are intact or not."""
    data = path.read_bytes()
    places = range(frame.ALIGNMENT, len(data), frame.ALIGNMENT)
    return [place for place in places if data[place : place + 4] == frame.MAGIC]


class BareLog:
    """A log in a directory without a store around it: what property tests open and reopen many times."""

    def __init__(
        self,
        directory: Path,
        partitions: int = 1,
        options: DiskOptions = TINY_OPTIONS,
        settings: TopicSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.directory = directory
        self.record = TopicRecord(1, "Orders", "orders", partitions, settings, CREATED_US)
        self._files = FileSystem()
        self._options = options
        header = SegmentHeader(1, 0, CREATED_US, np.zeros(partitions, np.int64))
        _, handle = create_segment(self._files, directory, header)
        self._files.close(handle)
        self.log = self._opened(NOW_US)

    def reopen(self, now_us: int = NOW_US, killed: bool = False) -> None:
        """Close and open; if `killed`, a copy of what was there before the close is opened."""
        if killed:
            after = self.directory.with_name(self.directory.name + "+")
            shutil.copytree(self.directory, after)
            self.directory = after
        self.log.close()
        self.log = self._opened(now_us)

    def grow(self, partitions: int) -> None:
        self.record = replace(self.record, partitions=partitions)
        self.log.add_partitions(partitions)

    def _opened(self, now_us: int) -> DiskLog:
        recovered = recover(self._files, self.directory, self.record, now_us)
        return DiskLog(self._files, self.directory, self.record, self._options, recovered)
