"""The disk store: one directory, locked by one process.

    LOCK                              the number of the process that has the store open
    catalog.sqlite                    topics, groups, committed offsets
    topics/<topic id>/                the log of a topic
    stages/                           rows that wait to be published together

A topic is added to the catalog after its log was created, and its log is deleted after it was removed from the catalog;
what a crash leaves in between is deleted at the next opening. Other files in the directory are not touched.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from sqlalchemy import URL, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from headrace.core.errors import Damaged, StorageError, StoreUnavailable, UnknownFormat, exhausted
from headrace.core.reports.store_check import StoreReport
from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import SegmentHeader, create_segment, file_name, header_bytes
from headrace.storage.disk.log import DiskLog
from headrace.storage.disk.opening.inspection import missing_in_manifest
from headrace.storage.disk.opening.journal import redo
from headrace.storage.disk.opening.recovery import recover
from headrace.storage.disk.options import DiskOptions
from headrace.storage.disk.stages import DiskStages
from headrace.storage.disk.store_commit import StoreCommitter
from headrace.storage.interface import StoreCommit
from headrace.storage.tables import all_consumers, all_groups, all_topics

CATALOG: Final = "catalog.sqlite"
DIRECTORY_NAME: Final = re.compile(r"[0-9]{9}|[1-9][0-9]{9,}")
# A file that is written to see whether there is room, and its size: more than any commit of a group needs.
_PROBE: Final = "room.tmp"
_PROBE_BYTES: Final = 64 << 10

logger = logging.getLogger(__name__)


class DiskStore:
    """An open disk store."""

    def __init__(self, directory: Path, options: DiskOptions, files: FileSystem | None = None) -> None:
        self._files = files or FileSystem()
        self._options = options
        self._topics = directory / "topics"
        self._probing = threading.Lock()
        self._is_writable = True
        # Topics whose logs were created by this process, and not opened yet.
        self._new: set[int] = set()
        with store_errors(directory), ExitStack() as undo:
            self._files.make_directory(self._topics)
            # The directories may exist without being on the device: their creator may have died before the sync.
            self._files.sync_directory(directory)
            with suppress(PermissionError):
                self._files.sync_directory(directory.parent)
            lock = self._files.lock(directory / "LOCK")
            if lock is None:
                holder = self._files.read(directory / "LOCK", 20).decode().strip()
                raise StoreUnavailable(str(directory), f"process {holder or 'unknown'} has it open")
            undo.callback(self._files.close, lock)
            # Created here, readable by its owner only; the files SQLite adds get the same mode.
            self._files.close(self._files.open(directory / CATALOG))
            database = _sqlite(directory / CATALOG)
            undo.callback(database.dispose)
            check_whole_catalog(database, directory / CATALOG)
            self.catalog = Catalog(database, str(directory))
            self.stages = DiskStages(self._files, directory / "stages")
            self.signals: None = None
            topics = self.catalog.topics()
            committed = self.catalog.highest_offsets()
            # By topic whose log was not opened yet the highest offsets of its groups: one query for all.
            self._unopened = {topic.id: committed.get(topic.id, {}) for topic in topics}
            self._check_manifests(topics)
            self._remove_strays({topic.id for topic in topics})
            if entries := self.catalog.commits.begin_redo():
                redo(self._files, self._topics, entries)
                self.catalog.commits.clear()
            self._committer = StoreCommitter(self.catalog.commits)
            self._logs: WeakValueDictionary[int, DiskLog] = WeakValueDictionary()
            self._lock = lock
            undo.pop_all()

    def create_log(self, topic: TopicRecord, now_us: int) -> None:
        """Create the empty log of a topic, durably."""
        directory = self._directory(topic.id)
        with store_errors(directory):
            if not self._files.make_directory(directory):
                # Whoever created it before may have failed to sync its name.
                self._files.sync_directory(self._topics)
            header = SegmentHeader(topic.id, 0, now_us, np.zeros(topic.partitions, np.int64))
            try:
                _, handle = create_segment(self._files, directory, header)
            except Damaged as error:
                # The topic is not created; the next one with this id starts with an empty log.
                raise StoreUnavailable(str(directory), error.reason) from error
            self._files.close(handle)
            self._new.add(topic.id)
            self._unopened[topic.id] = {}

    def open_log(self, topic: TopicRecord, now_us: int) -> DiskLog:
        """Open the log of a topic, with recovery after a crash."""
        directory = self._directory(topic.id)
        with store_errors(directory):
            is_new = topic.id in self._new
            known = self._unopened.get(topic.id)
            if known is None:
                known = self.catalog.highest_offsets(topic.id).get(topic.id, {})
            known |= {
                partition: max(offset, known.get(partition, 0)) for partition, offset in enumerate(topic.deleted_before)
            }
            recovered = recover(self._files, directory, topic, now_us, known, self._options.segment_bytes, is_new)
            self._new.discard(topic.id)
            self._unopened.pop(topic.id, None)
            log = self._logs[topic.id] = DiskLog(self._files, directory, topic, self._options, recovered)
            return log

    def delete_log(self, topic_id: int) -> None:
        """Free the disk space of a topic."""
        self.stages.drop_topic(topic_id)
        directory = self._directory(topic_id)
        with store_errors(directory):
            for name in self._files.list_directory(directory):
                self._files.remove(directory / name)
            self._files.remove_directory(directory)
            self._files.sync_directory(self._topics)

    def commit(self, commit: StoreCommit) -> None:
        """Make a commit of several topics."""
        logs = [(self._logs[topic_id], decide) for topic_id, decide in sorted(commit.topics.items())]
        self._committer.commit(logs, commit)

    def disk_space(self) -> tuple[int, int]:
        """The size and the free space of the file system, in bytes."""
        with store_errors(self._topics):
            return self._files.space(self._topics)

    def can_write(self) -> bool:
        """Whether a small file can be written: a topic may have preallocated space when nothing else fits any more."""
        with self._probing:
            before = self._is_writable
            try:
                self._probe(self._topics.parent / _PROBE)
                self._is_writable = True
            except StorageError as error:
                self._is_writable = False
                if before:
                    logger.warning("not ready: %s", error)
            if self._is_writable and not before:
                logger.info("the store %s can be written again", self._topics.parent)
            return self._is_writable

    def _probe(self, path: Path) -> None:
        with store_errors(path):
            handle = self._files.open(path)
            try:
                self._files.write(handle, 0, [bytes(_PROBE_BYTES)])
            finally:
                self._files.close(handle)
                self._files.remove(path)

    def examine(self) -> Iterator[StoreReport]:
        """Check every frame, index and catalog row while the store is in use."""
        # Imported here: the doctor of closed stores needs this module.
        from headrace.storage.disk.doctor.online import RunningDoctor

        def partitions() -> dict[int, int]:
            return {topic.id: topic.partitions for topic in self.catalog.topics()}

        catalog = self._topics.parent / CATALOG
        return RunningDoctor(catalog, self._topics, partitions).run()

    def close(self) -> None:
        """Close the catalog and release the lock."""
        with suppress(StorageError):
            self._committer.close()
        self.catalog.close()
        self._files.close(self._lock)

    def _directory(self, topic_id: int) -> Path:
        return self._topics / f"{topic_id:09d}"

    def _check_manifests(self, topics: Sequence[TopicRecord]) -> None:
        """Refuse a catalog that does not list what logs left to the archive: these messages would be skipped."""
        ends = self.catalog.manifest.ends()
        for topic in topics:
            try:
                mark = watermark.read(self._files, self._directory(topic.id))
            except (Damaged, UnknownFormat):
                # Opening the log reports it.
                continue
            missing = missing_in_manifest(mark, ends.get(topic.id, ()))
            if missing is not None:
                path = self._topics.parent
                lost = f"if it is lost, `headrace doctor {path} --repair` accepts this one"
                raise StoreUnavailable(str(path / CATALOG), f"topic {topic.name!r}: {missing}; {lost}")

    def _remove_strays(self, known: set[int]) -> None:
        """Delete the logs and stages of topics that were being created or deleted when a process died.

        A log with messages of a topic that the catalog never had is kept: the catalog was lost, or is an older copy.
        """
        last_topic_id = self.catalog.last_topic_id()
        directories = {self._directory(topic_id).name for topic_id in known}
        for name in self._files.list_directory(self._topics):
            if name in directories or not DIRECTORY_NAME.fullmatch(name):
                continue
            if int(name) > last_topic_id and not self._was_being_made(self._topics / name):
                reason = "its topic was never in the catalog, which is not the one of these logs: restore the right one"
                raise StoreUnavailable(str(self._topics / name), reason)
            self.delete_log(int(name))
        for topic_id in self.stages.topics() - known:
            self.stages.drop_topic(topic_id)

    def _was_being_made(self, directory: Path) -> bool:
        """Whether there is only a first segment without messages."""
        first = directory / file_name(0, "log")
        names = self._files.list_directory(directory)
        if names != [first.name]:
            return not names
        header = SegmentHeader.read(self._files, first)
        return header is None or self._files.size(first) == header_bytes(len(header.base_offsets))


def open_disk_catalog(directory: Path, files: FileSystem | None = None) -> Catalog:
    """Open the catalog of an existing store, even if a server has it open."""
    with store_errors(directory):
        try:
            (files or FileSystem()).size(directory / CATALOG)
        except FileNotFoundError:
            raise StoreUnavailable(str(directory), "there is no store here: `headrace serve` creates one") from None
        return Catalog(_sqlite(directory / CATALOG), str(directory))


@contextmanager
def store_errors(directory: Path) -> Iterator[None]:
    """Translates errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise exhausted(f"the store {directory}", error) or StoreUnavailable(str(directory), str(error)) from error


def check_whole_catalog(database: Engine, path: Path) -> None:
    """Refuse a truncated or damaged catalog: otherwise every group would start over."""
    cure = "restore it from a backup; `headrace doctor` says what is wrong with the store"
    try:
        with database.connect() as connection:
            problems = [str(row[0]) for row in connection.execute(text("PRAGMA quick_check(10)"))]
            tables = set(inspect(connection).get_table_names())
    except DBAPIError as error:
        raise StoreUnavailable(str(path), f"the catalog is damaged ({error.orig}): {cure}") from error
    if problems != ["ok"]:
        problem = " ".join(problems[0].split())
        raise StoreUnavailable(str(path), f"the catalog is damaged ({problem}): {cure}")
    missing = {all_topics.name, all_groups.name, all_consumers.name} - tables
    if tables and missing:
        raise StoreUnavailable(str(path), f"the catalog has no table {min(missing)}: {cure}")


def _sqlite(path: Path) -> Engine:
    # Not from text: a path may have characters with a meaning in a URL.
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine
