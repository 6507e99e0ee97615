"""The doctor: checks a disk store that no server has open, and repairs what can be repaired without loss.

Without `repair` the store is not changed. With it, indexes are rebuilt, files that belong to nothing are removed and
torn tails are cut; a readable message is never dropped. What cannot be repaired is reported with its file and position
and left as it is: everything around it stays readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.core.errors import StoreUnavailable
from headrace.core.hashes.columns import Int64s
from headrace.core.reports.store_check import Finding, Kind, Repair, StoreReport
from headrace.core.topics.offsets import widened
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.doctor.catalog_check import CheckedCatalog, check_catalog
from headrace.storage.disk.doctor.log_check import LogCheck
from headrace.storage.disk.engine import CATALOG, DIRECTORY_NAME, store_errors
from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import file_names
from headrace.storage.disk.files.watermark import Watermark
from headrace.storage.disk.opening import inspection
from headrace.storage.disk.opening.journal import is_done, path_of, redo
from headrace.storage.disk.opening.scan import scan
from headrace.storage.disk.stages import FILE_NAME


def examine(directory: Path, repair: bool = False, files: FileSystem | None = None) -> StoreReport:
    """Check a whole store; it is locked meanwhile."""
    files = files or FileSystem()
    with store_errors(directory):
        names = files.list_directory(directory)
        if CATALOG not in names and "topics" not in names:
            raise StoreUnavailable(str(directory), "it is not a store: give the directory that contains catalog.sqlite")
        lock = files.lock(directory / "LOCK")
        if lock is None:
            raise StoreUnavailable(str(directory), "a process has it open: stop the server first")
        try:
            return _Doctor(files, directory, repair).run()
        finally:
            files.close(lock)


class _Doctor:
    """One run of the doctor."""

    def __init__(self, files: FileSystem, directory: Path, repair: bool) -> None:
        self._files = files
        self._directory = directory
        self._topics = directory / "topics"
        self._repair = repair
        self._report = StoreReport()

    def run(self) -> StoreReport:
        catalog = self._check_catalog()
        for complaint in catalog.complaints:
            self._find(self._directory / CATALOG, 0, "damage", complaint)
        self._check_journal(catalog.journal)
        ends: dict[int, Int64s] = {}
        for topic_id, partitions in catalog.partitions.items():
            checked = self._check_log(topic_id, partitions)
            if checked.ends is not None:
                ends[topic_id] = checked.ends
            if not catalog.complaints:
                self._check_manifest(topic_id, checked.mark, catalog.archived.get(topic_id, []))
        for complaint in catalog.offsets_past(ends):
            self._find(self._directory / CATALOG, 0, "damage", complaint)
        self._check_strays(catalog)
        self._check_stages(catalog)
        return self._report

    def _check_catalog(self) -> CheckedCatalog:
        names = self._files.list_directory(self._directory)
        if CATALOG not in names:
            return CheckedCatalog(complaints=["the catalog is missing"])
        return check_catalog(self._directory / CATALOG, is_closed=f"{CATALOG}-wal" not in names)

    def _check_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Commits of several topics that were decided, and are not in all of their logs: before those are checked."""
        left = [entry for entry in entries if not is_done(self._files, self._topics, entry)]
        if left and self._repair:
            redo(self._files, self._topics, left)
        for entry in left:
            path = path_of(self._topics, entry)
            what = "the end of a commit of several topics is not written yet; the next opening does it"
            self._find(path, entry.position, "leftover", what, "done" if self._repair else "possible")

    def _check_log(self, topic_id: int, partitions: int | None) -> LogCheck:
        self._report.topics += 1
        directory = self._topics / f"{topic_id:09d}"
        check = LogCheck(self._files, directory, topic_id, partitions, self._repair, self._report)
        check.run()
        return check

    def _check_manifest(self, topic_id: int, mark: Watermark | None, ends: list[int]) -> None:
        """The manifest of the archive must list what the log left to it; a repair accepts that it does not."""
        missing = inspection.missing_in_manifest(mark, ends)
        if mark is None or missing is None:
            return
        directory = self._topics / f"{topic_id:09d}"
        if self._repair:
            known = widened(ends, len(mark.archived))
            accepted = np.minimum(mark.archived, known[: len(mark.archived)]).tolist()
            watermark.write(self._files, directory, msgspec.structs.replace(mark, archived=accepted))
        what = f"{missing}; a repair accepts this one, and readers skip the messages between, which stay in the archive"
        self._find(directory / watermark.NAME, 0, "damage", what, "done" if self._repair else "possible")

    def _check_strays(self, catalog: CheckedCatalog) -> None:
        """Logs without a topic in the catalog; those of deleted topics are removed at the next opening, no others."""
        for name in self._files.list_directory(self._topics):
            if not DIRECTORY_NAME.fullmatch(name) or int(name) in catalog.partitions:
                continue
            directory, topic_id = self._topics / name, int(name)
            if catalog.complaints:
                # The catalog does not show whether the topic was deleted.
                self._check_log(topic_id, None)
            elif topic_id <= catalog.last_topic_id or not self._has_messages(directory, topic_id):
                what = "a topic that was being made or deleted when a process died; the next opening removes it"
                self._find(directory, 0, "leftover", what)
            else:
                what = "its topic was never in the catalog, which is not the one of these logs: restore the right one"
                self._find(directory, 0, "damage", what)

    def _has_messages(self, directory: Path, topic_id: int) -> bool:
        paths = [directory / name for name in file_names(self._files.list_directory(directory), "log")]
        return any(scan(self._files.map(path), 0, topic_id, str(path)).frames for path in paths)

    def _check_stages(self, catalog: CheckedCatalog) -> None:
        """Stages are not synced, so an incomplete one is not damage; the next opening deletes it."""
        directory = self._directory / "stages"
        for name in self._files.list_directory(directory):
            if not FILE_NAME.fullmatch(name):
                continue
            topic_id = int(name.split("-")[0])
            found = scan(self._files.map(directory / name), 0, topic_id, str(directory / name))
            if not found.frames or found.holes:
                self._find(directory / name, 0, "leftover", "a stage that is not whole; the next opening removes it")
            elif topic_id not in catalog.partitions:
                self._find(directory / name, 0, "leftover", "a stage of no topic; the next opening removes it")

    def _find(self, path: Path, position: int, kind: Kind, what: str, repair: Repair = "none") -> None:
        self._report.findings.append(Finding(str(path), position, kind, what, repair))
