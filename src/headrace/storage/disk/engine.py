"""The disk store: one directory, locked by one process.

    LOCK                              the number of the process that has the store open
    catalog.sqlite                    topics, groups, committed offsets
    topics/<topic id>/                the log of a topic
    stages/                           rows that wait to be published together

A topic is in the catalog only once its log is there, and its log is removed only once it is out of the catalog; what
a crash leaves between the two is removed at the next opening.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, create_engine, event

from headrace.core.errors import StoreUnavailable
from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.disk.filesystem import FileSystem
from headrace.storage.disk.log import DiskLog, create_segment
from headrace.storage.disk.options import DiskOptions
from headrace.storage.disk.recovery import recover
from headrace.storage.disk.segment import SegmentHeader
from headrace.storage.disk.stages import DiskStages


class DiskStore:
    """An open disk store."""

    def __init__(self, directory: Path, options: DiskOptions, files: FileSystem | None = None) -> None:
        self._files = files or FileSystem()
        self._options = options
        self._topics = directory / "topics"
        try:
            self._files.make_directory(self._topics)
            lock = self._files.lock(directory / "LOCK")
        except OSError as error:
            raise StoreUnavailable(str(directory), str(error)) from error
        if lock is None:
            holder = self._files.read(directory / "LOCK", 20).decode().strip()
            raise StoreUnavailable(str(directory), f"process {holder or 'unknown'} has it open")
        self._lock = lock
        try:
            self.catalog = Catalog(_sqlite(directory / "catalog.sqlite"), str(directory))
            self.stages = DiskStages(self._files, directory / "stages")
            self._remove_strays()
        except BaseException:
            self._files.close(lock)
            raise

    def create_log(self, topic: TopicRecord, now_us: int) -> None:
        """Make the empty log of a topic, durably."""
        directory = self._directory(topic.id)
        try:
            self._files.make_directory(directory)
            header = SegmentHeader(topic.id, 0, now_us, np.zeros(topic.partitions, np.int64))
            _, handle = create_segment(self._files, directory, header)
            self._files.close(handle)
            self._files.sync_directory(self._topics)
        except OSError as error:
            raise StoreUnavailable(str(directory), str(error)) from error

    def open_log(self, topic: TopicRecord, now_us: int) -> DiskLog:
        """Open the log of a topic, mending what a crash left."""
        directory = self._directory(topic.id)
        recovered = recover(self._files, directory, topic, now_us)
        return DiskLog(self._files, directory, topic, self._options, recovered)

    def delete_log(self, topic_id: int) -> None:
        """Give the disk of a topic back."""
        self.stages.drop_topic(topic_id)
        directory = self._directory(topic_id)
        for name in self._files.list_directory(directory):
            self._files.remove(directory / name)
        self._files.remove_directory(directory)
        self._files.sync_directory(self._topics)

    def close(self) -> None:
        """Close the catalog and let the next process in."""
        self.catalog.close()
        self._files.close(self._lock)

    def _directory(self, topic_id: int) -> Path:
        return self._topics / f"{topic_id:09d}"

    def _remove_strays(self) -> None:
        """Remove the logs of topics that were being made or deleted when a process died."""
        known = {self._directory(topic.id).name for topic in self.catalog.topics()}
        for name in self._files.list_directory(self._topics):
            if name not in known:
                self.delete_log(int(name))


def _sqlite(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine
