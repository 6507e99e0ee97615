"""A topic's log with its archive behind it: readers do not notice which of the two has a message.

The log itself is asked first. Only if it has deleted an offset is the manifest searched, and the file read through a
cache that all topics share. Everything else is the log's own.

The manifest is cached. The only server of a store changes it itself; of a shared store it is loaded again by
maintenance, when the log starts after what is known of the archive, and when a file is missing. A file that is missing
although the manifest lists it is damage. Thread-safe: the view is replaced, never changed. The log drops nothing
between a change of the manifest and the next look at it: readers would find the messages of a new file in neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from headrace.core.errors import Damaged, OffsetOutOfRange, StoreUnavailable
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.core.messages import content_bytes
from headrace.core.publish.state import TopicState
from headrace.core.reports.histogram import Histogram
from headrace.core.topics.retention import local_settings
from headrace.core.topics.settings import TopicSettings
from headrace.storage.archive.manifest import Manifest
from headrace.storage.archive.row_cache import RowCache
from headrace.storage.archive.view import ArchiveView, FoundRange
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import TopicLog
from headrace.storage.ranges import OffsetRange, check_range, deleted_to
from headrace.storage.shares import read_each, within_bytes

Result = TypeVar("Result")
_NO_ARCHIVE: Final = "old messages are in the archive, and this server has none: set archive.url"


class TieredLog:
    """The messages of one topic: those of its log, and older ones in the archive."""

    def __init__(
        self,
        log: TopicLog,
        topic: TopicRecord,
        manifest: Manifest,
        cache: RowCache | None,
        is_shared: bool,
        known: bool,
    ) -> None:
        """`known` says whether anything of the topic was archived."""
        self.inner = log
        self._topic = topic
        self._manifest = manifest
        self._cache = cache
        self._is_shared = is_shared
        self._view: ArchiveView | None = None
        # The start of the log for which the manifest was loaded last.
        self._loaded_for: Int64s | None = None
        self._reload_lock = threading.Lock()
        # Held while the manifest is changed and while the log drops segments; taken before the locks of both.
        self._change_lock = threading.Lock()
        # Why the last attempt of this server to archive the topic failed; None if it did not.
        self.archive_failure: str | None = None
        # The time of the newest message in the oldest segment that is not archived, when this server looked last.
        self.waiting_since_us: int | None = None
        # Called as they are: publishing must not get slower by what only concerns old messages.
        self.commit = log.commit
        # Old ranges are left to `read_many`, by its contract.
        self.read_ranges = log.read_ranges
        self.peek = log.peek
        self.window = log.window
        self.add_partitions = log.add_partitions
        self.delete_before = log.delete_before
        self.pieces = log.pieces
        self.seal = log.seal
        self.bytes_stored = log.bytes_stored
        self.close = log.close
        if known:
            self.reload()

    # What the log knows by itself

    @property
    def state(self) -> TopicState:
        """What planning knows."""
        return self.inner.state

    @property
    def sync_seconds(self) -> Histogram:
        """How long syncs took."""
        return self.inner.sync_seconds

    @property
    def failure(self) -> str | None:
        """Why nothing more is accepted, or None."""
        return self.inner.failure

    @property
    def damaged_segments(self) -> int:
        """The number of segments that were found damaged."""
        return self.inner.damaged_segments

    # The archive

    @property
    def view(self) -> ArchiveView | None:
        """The archive as last seen; None if nothing was archived."""
        return self._view

    def newest_view(self) -> ArchiveView | None:
        """The archive as it is now, whichever server changed it."""
        return self.reload() if self._is_shared else self._view

    def reload(self) -> ArchiveView | None:
        """Look at the manifest again, after it changed."""
        with self._reload_lock:
            known = None if self._view is None else self._view.manifest
            found = self._manifest.load(self._topic.id, known)
            if found is not known:
                self._view = None if found is None else ArchiveView(found)
            return self._view

    def change_manifest(self, change: Callable[[], bool]) -> bool:
        """Add or replace files; returns whether that counts. Readers know it before the log drops their messages."""
        with self._change_lock:
            counts = change()
            self.reload()
            return counts

    def lag(self, after_seconds: int, now_us: int) -> tuple[int, float]:
        """How many messages of the log are not archived, and by how many seconds archiving them is late."""
        local, view = self.inner.offsets(), self._view
        reached = np.zeros(len(local.end), np.int64) if view is None else view.ends(len(local.end))[: len(local.end)]
        messages = int(np.maximum(local.end - np.maximum(reached, local.start), 0).sum())
        due_us = self._topic.created_us if view is None else view.manifest.cut_us
        # An archive that is written all the time is late as well, if messages arrive faster.
        due_us = due_us if self.waiting_since_us is None else min(due_us, self.waiting_since_us)
        late_us = now_us - due_us - after_seconds * MICROSECONDS
        return messages, max(0, late_us) / MICROSECONDS if messages else 0.0

    def offsets(self) -> OffsetRange:
        """Start and end of every partition, as readers see them."""
        local = self.inner.offsets()
        view = self._up_to_date(local)
        return local if view is None else view.combined(local)

    def _up_to_date(self, local: OffsetRange) -> ArchiveView | None:
        """The view; loaded again if another server may have archived what the log no longer has."""
        view = self._view
        if not self._is_shared:
            return view
        reached = np.zeros(len(local.start), np.int64) if view is None else view.ends(len(local.start))
        if np.any(local.start > reached[: len(local.start)]) and not _is_same(self._loaded_for, local.start):
            view = self.reload()
            self._loaded_for = local.start
        return view

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        """Messages of one partition from `offset` on, within the limits but at least one if there is one."""
        try:
            return self.inner.read(partition, offset, messages_max, bytes_max)
        except OffsetOutOfRange as error:
            if offset > error.end:
                raise
        return self._read_archive(partition, offset, messages_max, bytes_max)

    def _read_archive(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        if offset < deleted_to(self.inner.offsets().deleted_before, partition):
            # The archive may still have it: this names the offset at which to continue.
            check_range(self._topic.name, self.offsets(), partition, offset)

        def read(view: ArchiveView | None) -> pa.RecordBatch:
            found = None if view is None else view.find(partition, offset)
            if found is None:
                # Names the offset at which to continue, if the archive does not have this one either. It looks at the
                # manifest again if another server has archived the offset.
                check_range(self._topic.name, self.offsets(), partition, offset)
                found = None if self._view is None else self._view.find(partition, offset)
            if found is None:
                return None
            return within_bytes(self._rows(found, offset).slice(0, messages_max), bytes_max)

        batch = self._with_files(read)
        # Retention moved the start, or a file was added, between two looks.
        return self.inner.read(partition, offset, messages_max, bytes_max) if batch is None else batch

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Messages of many partitions, each its share, the oldest first."""
        try:
            return self.inner.read_many(positions, messages_max, bytes_max)
        except OffsetOutOfRange:
            return self._read_both(positions, messages_max, bytes_max)

    def _read_both(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Partitions that the log does not have one by one, and then the others: those are newer."""
        start = self.inner.offsets().start
        old = {number: offset for number, offset in positions.items() if number < len(start) and offset < start[number]}
        new = {number: offset for number, offset in positions.items() if number not in old}
        if not old:
            return self.inner.read_many(new, messages_max, bytes_max)
        share = (max(1, limit * len(old) // len(positions)) for limit in (messages_max, bytes_max))
        batches = read_each(self, old, *share)
        messages_left = messages_max - sum(batch.num_rows for batch in batches)
        bytes_left = bytes_max - sum(map(content_bytes, batches))
        if new and messages_left > 0 and bytes_left > 0:
            # Retention may have dropped the first of them meanwhile.
            batches += self.read_many(new, messages_left, bytes_left)
        return batches

    def first_at(self, partition: int, time_us: int) -> int:
        """The first offset of a partition at or after a time; its end offset if all messages are older."""
        local = self.inner.offsets()
        view = self._up_to_date(local)
        found = None if view is None else view.find_time(partition, time_us)
        if found is None or found.first_offset >= local.start[partition]:
            return self.inner.first_at(partition, time_us)
        first = found.first_offset
        if found.first_us < time_us:
            first = self._with_files(lambda view: self._search(view, partition, time_us))
        return max(first, deleted_to(local.deleted_before, partition))

    def _search(self, view: ArchiveView | None, partition: int, time_us: int) -> int:
        """The first row of a range at or after a time: by row groups, and then within one."""
        found = None if view is None else view.find_time(partition, time_us)
        if found is None:
            return self.inner.first_at(partition, time_us)
        low, high = found.first_offset, found.end_offset
        while low < high:
            rows = self._rows(found, (low + high) // 2, whole=True)
            first = rows.column("offset")[0].as_py()
            times = np.asarray(rows.column("timestamp").cast(pa.int64()))
            place = int(np.searchsorted(times, time_us))
            if place == 0:
                high = first
            elif place == len(times):
                low = first + len(times)
            else:
                return int(first + place)
        return low

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it does not exist."""
        time_us = self.inner.time_of(partition, offset)
        if time_us is not None or self._view is None or self._view.find(partition, offset) is None:
            return time_us
        if offset < deleted_to(self.inner.offsets().deleted_before, partition):
            return None
        return self._with_files(lambda view: self._time_of(view, partition, offset))

    def _time_of(self, view: ArchiveView | None, partition: int, offset: int) -> int | None:
        found = None if view is None else view.find(partition, offset)
        if found is None:
            return None
        if offset == found.first_offset:
            return found.first_us
        if offset == found.end_offset - 1:
            return found.last_us
        return int(self._rows(found, offset).column("timestamp").cast(pa.int64())[0].as_py())

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int:
        """Drop segments and archived files past retention; returns how many.

        An archived topic drops no segment before it is archived, and no file before its segments. Important groups hold
        files of the archive then.
        """
        with self._change_lock:
            if settings.archive == "on":
                view = self._view
                reached = np.zeros(0, np.int64) if view is None else view.manifest.ends
                dropped = self.inner.drop_outlived(local_settings(settings), reached, now_us)
            else:
                dropped = self.inner.drop_outlived(settings, held, now_us)
        seconds = settings.archive_retention_seconds
        local = self.inner.offsets()
        if seconds is not None or len(local.deleted_before):
            # Looked up in the manifest: another thread, or server, may be adding a file.
            expired = self._manifest.expire(self._topic.id, seconds, local, held, self._is_shared, now_us)
            if expired:
                self.reload()
            dropped += expired
        return dropped

    def _rows(self, found: FoundRange, offset: int, whole: bool = False) -> pa.RecordBatch:
        """The rows of a range from an offset on, or all of them, as far as they are in the row group of the offset."""
        if self._cache is None:
            raise StoreUnavailable(f"of topic {self._topic.name!r}", _NO_ARCHIVE)
        return self._cache.rows(found, offset, whole)

    def _with_files(self, work: Callable[[ArchiveView | None], Result]) -> Result:
        """The result of work on the view, repeated once with a fresh one if a file was deleted meanwhile."""
        try:
            return work(self._view)
        except FileNotFoundError:
            pass
        try:
            return work(self.reload())
        except FileNotFoundError as error:
            raise Damaged(str(error), 0, "the manifest lists this file, and it is missing from the archive") from error


def _is_same(one: Int64s | None, other: Int64s) -> bool:
    return one is not None and np.array_equal(one, other)
