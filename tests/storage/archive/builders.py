"""Archived topics for the tests: a store, an archive beside it, and the archiver as the broker runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headrace.core.archive.manifest import ArchiveFile, misfits
from headrace.core.reports.store_check import StoreReport
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.archive.archiver import Archiver
from headrace.storage.archive.archives import Archives
from headrace.storage.archive.check import check_archive
from headrace.storage.archive.files import ArchiveFiles, DirectoryFiles
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.interface import TopicLog
from tests.storage.builders import NOW_US, Place, Topic, read_all

ARCHIVED = {"archive": "on", "archive_after_seconds": 0}
MANY_BYTES = 1 << 30


def no_rest() -> None:
    """The archiver of a test does not wait."""


class ArchivedTopic(Topic):
    """A topic with its archive: `log` is the tiered one."""

    def __init__(
        self, place: Place, directory: Path, partitions: int = 2, files: ArchiveFiles | None = None, **settings: Any
    ) -> None:
        self.directory = directory
        self.files: ArchiveFiles = files or DirectoryFiles(directory)
        self.cache_bytes = MANY_BYTES
        super().__init__(place, partitions=partitions, settings=DEFAULT_SETTINGS.change(**(ARCHIVED | settings)))

    @property
    def archives(self) -> Archives:
        store = self.place.store
        return Archives(store.catalog, store.signals is not None, self.files, self.cache_bytes)

    @property
    def log(self) -> TopicLog:
        return self.tiered()

    @property
    def inner(self) -> TopicLog:
        return self.place.log(self.record.id)

    def tiered(self) -> TieredLog:
        """The log as a server that just started sees it."""
        return self.archives.tier(self.record, self.inner)

    def archiver(self, file_bytes: int = MANY_BYTES, rest: Callable[[], None] = no_rest) -> Archiver:
        manifest = self.place.store.catalog.manifest
        return Archiver(self.files, manifest, manifest.store_id(), file_bytes, 0, rest)

    def epoch(self, holder: str | None = None, seconds: float = 60) -> int:
        found = self.place.store.catalog.manifest.claim(self.record.id, holder, seconds)
        assert found is not None
        return found

    def archive(self, file_bytes: int = MANY_BYTES, now_us: int = NOW_US) -> list[ArchiveFile]:
        """Archive everything; returns the files that were written."""
        files = []
        while (file := self.archiver(file_bytes).archive(self.record, self.tiered(), self.epoch(), now_us)) is not None:
            files.append(file)
        return files

    def drop_local(self, now_us: int = NOW_US) -> None:
        """Drop all segments of the log that may go."""
        settings = self.record.settings.change(local_retention_seconds=1, archive_retention_seconds=None)
        self.tiered().drop_outlived(settings, None, now_us + 1000_000_000)

    def rows(self) -> list[dict[str, Any]]:
        """Everything readers see, partition after partition."""
        log = self.tiered()
        return [row for number in range(self.record.partitions) for row in read_all(log, number).to_pylist()]

    def table(self) -> list[dict[str, Any]]:
        """Everything in the live files, as any reader of Parquet sees it; the manifest is checked on the way."""
        view = self.tiered().view
        files = [] if view is None else view.manifest.files
        assert list(misfits(files)) == []
        rows: list[dict[str, Any]] = []
        for file in files:
            read = pq.ParquetFile(self.files.open(file.path)).read()
            assert read.num_rows == file.rows
            order = list(zip(read["partition"].to_pylist(), read["offset"].to_pylist(), strict=True))
            assert order == sorted(order)
            assert order == [
                (r.partition, o) for r in file.ranges if r.rows for o in range(r.first_offset, r.end_offset)
            ]
            rows += read.to_pylist()
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def values_of(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def file_names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def doctor(topic: ArchivedTopic, repair: bool = False) -> list[tuple[str, str]]:
    """What the doctor finds in the archive: kind and words."""
    report = StoreReport()
    check_archive(topic.place.store.catalog, topic.files, report, repair)
    return [(finding.kind, finding.what) for finding in report.findings]
