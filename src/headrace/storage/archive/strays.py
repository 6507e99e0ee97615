"""Which files that no manifest lists may be deleted: those of which the archive has every message elsewhere.

A process that dies leaves such files behind, and their messages are archived again. But if an older catalog was
restored, files that only the newer one lists look the same, and the log has dropped their messages. So a file is
deleted only if the manifest accounts for each message: by offset and by time, since offsets that were given before a
restore are given again after it. Every other file stays until the newer catalog is restored, or somebody deletes it.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.core.archive.manifest import ArchiveRange
from headrace.core.errors import Damaged
from headrace.core.limits import ARCHIVE_GROUP_BYTES
from headrace.storage.archive.files import UNFINISHED, ArchiveFiles
from headrace.storage.archive.manifest import TopicManifest
from headrace.storage.archive.parquet import ParquetFile
from headrace.storage.archive.row_cache import RowCache
from headrace.storage.archive.view import ArchiveView
from headrace.storage.catalog import TopicRecord
from headrace.storage.ranges import deleted_to


class Strays:
    """The files of one topic that its manifest does not list."""

    def __init__(self, files: ArchiveFiles, topic: TopicRecord, manifest: TopicManifest) -> None:
        self._files = files
        self._topic = topic
        self._view = ArchiveView(manifest)
        self._cache = RowCache(files, ARCHIVE_GROUP_BYTES)

    def is_redundant(self, path: str) -> bool:
        """Whether a file can be deleted without losing a message."""
        if path.endswith(UNFINISHED):
            return True
        try:
            file = ParquetFile(self._files, path)
        except Damaged:
            # It was broken off: a file is listed only after it was written whole.
            return True
        try:
            return all(self._is_elsewhere(run) for run in file.runs())
        except (Damaged, FileNotFoundError):
            # It cannot be read, or the file that should have the same messages cannot.
            return False

    def _is_elsewhere(self, run: ArchiveRange) -> bool:
        """Whether consecutive messages are in a live file too, have expired, or were deleted on request."""
        view, partition = self._view, run.partition
        deleted = deleted_to(self._topic.deleted_before, partition)
        if run.end_offset <= max(deleted, view.start(partition)):
            return True
        if view.has_lost(partition, max(deleted, run.first_offset), run.end_offset):
            return False
        found = view.find(partition, run.end_offset - 1)
        if found is None:
            return False
        last = self._cache.rows(found, run.end_offset - 1).column("timestamp").cast(pa.int64())[0]
        return bool(last.as_py() == run.last_us)
