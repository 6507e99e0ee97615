"""Writes what a topic has not archived yet, merges small files, and deletes files that nobody needs.

    cut ──► spans ──► rows of the log ──► Parquet on the archive ──► row of the manifest

Only the last step counts. Whatever fails before it leaves at most a file that no manifest lists: a stray, which `sweep`
deletes once its messages are in another file. Files are listed before the manifest is read, by the only archiver of the
topic, so that a file which is about to be listed cannot be taken for a stray. One topic is archived by one thread at a
time.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.archive.manifest import ArchiveFile
from headrace.core.archive.plan import Span, choose_cut, choose_merge, spans, unarchived
from headrace.core.errors import OffsetOutOfRange
from headrace.core.limits import ARCHIVE_SMALL_BYTES, MICROSECONDS
from headrace.core.text import counted
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.archive.log_rows import rows_of
from headrace.storage.archive.manifest import Manifest
from headrace.storage.archive.merge import merge
from headrace.storage.archive.parquet import grouped, write
from headrace.storage.archive.strays import Strays
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.catalog import TopicRecord

logger = logging.getLogger(__name__)

# The name of a file: its place among the files of the topic, when it was begun, and something unique.
_NAME: Final = re.compile(r"[0-9]{20}-([0-9a-f]{16})-[0-9a-f]{12}\.parquet(\.tmp)?")
TOPIC_DIRECTORY: Final = re.compile(r"topic-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Archiver:
    """Archives the topics of one store.

    file_bytes: the size of messages in a file, and the most that merging makes of small files.
    stray_seconds: how old a file must be before it is deleted, if it is not live.
    rest: called between row groups; it may sleep, renew a lease, or raise to break off.
    """

    files: ArchiveFiles
    manifest: Manifest
    store_id: str
    file_bytes: int
    stray_seconds: float
    rest: Callable[[], None]

    def archive(self, topic: TopicRecord, log: TieredLog, epoch: int, now_us: int) -> ArchiveFile | None:
        """Write the next file, if it is due; returns it if it counts."""
        view = log.view
        archived = np.zeros(topic.partitions, np.int64) if view is None else view.ends(topic.partitions)
        cut_us = topic.created_us if view is None else view.manifest.cut_us
        after_seconds = topic.settings.archive_after_seconds
        waiting = unarchived(log.pieces(), archived)
        log.waiting_since_us = waiting[0].newest_us if waiting else None
        cut = choose_cut(waiting, archived, cut_us, after_seconds, self.file_bytes, now_us)
        if cut is None:
            return None
        local = log.inner.offsets()
        wanted = spans(archived, cut, local.start, local.gaps)
        path = self._path(topic, int(archived.sum()), now_us)
        rows = self._resting(grouped(rows_of(log.inner, wanted)))
        are_there = partial(_are_there, log, wanted)
        try:
            file = write(self.files, path, rows, wanted, topic.settings.value_schema)
        except OffsetOutOfRange:
            if are_there():
                raise
            # Messages of the file were deleted before they were read: the next one begins after them.
            return None
        append = partial(self.manifest.append, topic.id, epoch, file, archived, now_us, are_there)
        return self._finished(file, log.change_manifest(append))

    def merge(self, topic: TopicRecord, log: TieredLog, epoch: int, clock: Callable[[], int]) -> ArchiveFile | None:
        """Merge small files, if there are enough; returns the new one if it counts.

        The clock is read again when the new file is written, which may take long: from then on the others are removed.
        """
        known = () if log.view is None else log.view.manifest.files
        chosen = choose_merge([file.bytes for file in known], ARCHIVE_SMALL_BYTES, self.file_bytes)
        if chosen is None:
            return None
        sources = known[chosen]
        path = self._path(topic, sum(each.first_offset for each in sources[0].ranges), clock())
        file = merge(self.files, path, sources, self._resting, topic.settings.value_schema)
        replace = partial(self.manifest.replace, topic.id, epoch, sources, file, clock())
        return self._finished(file, log.change_manifest(replace))

    def _finished(self, file: ArchiveFile, counts: bool) -> ArchiveFile | None:
        if counts:
            return file
        # Another server archives this topic now, or the topic or messages of the file were deleted.
        with suppress(OSError):
            self.files.remove(file.path)
        return None

    def sweep(self, topic: TopicRecord, now_us: int) -> int:
        """Delete redundant strays and removed files of a topic; returns how many. The caller has its lease."""
        directory = f"{self.store_id}/topic-{topic.id}"
        names = self.files.list(directory)
        listed = self.manifest.listed(topic.id)
        before_us = now_us - int(self.stray_seconds * MICROSECONDS)
        strays = [f"{directory}/{name}" for name in names if _begun_us(name) < before_us]
        strays = self._redundant(topic, [path for path in strays if path not in listed])
        removed = [path for path, removed_us in listed.items() if removed_us is not None and removed_us < before_us]
        for path in [*strays, *(path for path in removed if path.startswith(f"{self.store_id}/"))]:
            self.files.remove(path)
        if removed:
            self.manifest.forget(topic.id, removed)
        return len(strays) + len(removed)

    def _redundant(self, topic: TopicRecord, paths: Sequence[str]) -> list[str]:
        """The strays that can be deleted without losing a message."""
        manifest = self.manifest.load(topic.id) if paths else None
        if manifest is None:
            return []
        strays = Strays(self.files, topic, manifest)
        redundant = [path for path in paths if strays.is_redundant(path)]
        if kept := len(paths) - len(redundant):
            logger.warning(
                "topic %r: %s in the archive that the manifest does not list %s messages that are not in others, and "
                "%s kept: if the catalog is older than the archive, restore the newer one",
                *(topic.name, counted(kept, "file"), *(("has", "is") if kept == 1 else ("have", "are"))),
            )
        return redundant

    def sweep_deleted(self, is_deleted: Callable[[int], bool], now_us: int) -> int:
        """Delete the files of topics that no longer exist; returns how many."""
        count = 0
        before_us = now_us - int(self.stray_seconds * MICROSECONDS)
        for name in self.files.list(self.store_id):
            found = TOPIC_DIRECTORY.fullmatch(name)
            if found is None:
                continue
            directory = f"{self.store_id}/{name}"
            paths = [f"{directory}/{file}" for file in self.files.list(directory) if _begun_us(file) < before_us]
            # Asked after listing: a topic is in the catalog before it has files.
            if paths and is_deleted(int(found[1])):
                for path in paths:
                    self.files.remove(path)
                count += len(paths)
        return count

    def _path(self, topic: TopicRecord, place: int, now_us: int) -> str:
        return f"{self.store_id}/topic-{topic.id}/{place:020d}-{now_us:016x}-{uuid.uuid4().hex[:12]}.parquet"

    def _resting(self, groups: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in groups:
            yield group
            self.rest()


def _are_there(log: TieredLog, spans: Sequence[Span]) -> bool:
    """Whether the log still has what was written: what was trimmed meanwhile must not come back with the file."""
    start = log.inner.offsets().start
    return all(span.first_offset >= start[span.partition] for span in spans if span.has_rows)


def _begun_us(name: str) -> int:
    """When a file was begun; files that are not ours are never old enough to be deleted."""
    found = _NAME.fullmatch(name)
    return 1 << 63 if found is None else int(found[1], 16)
