"""The tasks of the archive, on a thread of their own: write what is due, merge, sweep; and how far each topic is.

While messages are being published, the writer pauses after each row group until its thread has had no more than its
part of a core, so that publishers keep most of their rate: little if threads have to wait for a core, more if cores are
idle (`next_cores`). It has normal priority: one of low priority that is not run while it holds Python's lock would stop
all threads. A topic that fails is retried at the next interval, and does not affect the others; its log has the reason
(`TieredLog.archive_failure`). In a shared store a topic is archived by the server that has its lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from headrace.broker.clock import Clock
from headrace.broker.cluster.notifications import Notifications
from headrace.broker.counters import Counters
from headrace.broker.maintenance import Task
from headrace.broker.settings import ArchiveSettings
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.archive.plan import Work, next_cores, pause_seconds
from headrace.core.errors import Closed, HeadraceError, StoreUnavailable
from headrace.core.limits import ARCHIVE_CORES_MAX, ARCHIVE_CORES_MIN, ARCHIVE_TYPED_CORES_MAX
from headrace.storage.archive.archiver import Archiver
from headrace.storage.archive.archives import NO_ARCHIVE, Archives
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.catalog import TopicRecord

logger = logging.getLogger(__name__)

_SCHEDULE: Final = Path("/proc/thread-self/schedstat")
# A lease is renewed after this part of it.
_RENEWALS_PER_LEASE: Final = 3


class _LeaseLost(Exception):
    """Another server archives this topic now."""


class ArchiveTasks:
    """Archives all topics of a store that ask for it."""

    def __init__(
        self,
        archives: Archives,
        topics: Topics,
        settings: ArchiveSettings,
        clock: Clock,
        counters: Counters,
        holder: str | None,
    ) -> None:
        """`holder` is the name of this server in leases; None if the store is not shared."""
        self._archives = archives
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._holder = holder
        self._stopping = threading.Event()
        self._lease: tuple[int, int, float] | None = None
        self._meter = _Meter()
        self._cores = ARCHIVE_CORES_MIN
        self._cores_max = ARCHIVE_CORES_MAX
        self._late_seconds = 0.0
        self._published = 0
        files = archives.files
        self._archiver = None
        if files is not None:
            self._archiver = Archiver(
                files,
                archives.manifest,
                archives.manifest.store_id(),
                settings.file_bytes,
                settings.stray_seconds,
                self._rest,
            )

    def tasks(self) -> dict[Task, float]:
        """All tasks with their intervals in seconds."""
        return {self.archive: self._settings.check_seconds, self.sweep: self._settings.sweep_seconds}

    def stop(self) -> None:
        """Break off at the next row group."""
        self._stopping.set()

    def archive(self) -> None:
        """Write the files that are due, and merge small ones."""
        for opened in self._topics.all():
            log = opened.topic.log
            if isinstance(log, TieredLog) and (opened.record.settings.archive == "on" or log.view is not None):
                self._attempt(opened, log)

    def _attempt(self, opened: OpenTopic, log: TieredLog) -> None:
        """One topic; a failure is remembered, and logged when it begins and when it ends."""
        record, before = opened.record, log.archive_failure
        try:
            self._archive(opened, log)
        except (Closed, _LeaseLost):
            return
        except Exception as error:  # also of a kind that nobody expects: the topics after this one come first
            if Notifications(self._topics).was_deleted(opened, error):
                return
            self._counters.add("archive_failures", 1)
            log.archive_failure = str(error) or repr(error)
            if before is None:
                logger.exception("topic %r cannot be archived now, will retry", record.name)
            return
        if before is not None:
            logger.info("topic %r is archived again", record.name)
        log.archive_failure = None

    def _archive(self, opened: OpenTopic, log: TieredLog) -> None:
        archiver, record = self._archiver, opened.record
        if archiver is None:
            if record.settings.archive == "on":
                raise StoreUnavailable("archive", NO_ARCHIVE)
            return
        epoch = self._claim(record.id)
        if self._holder is not None:
            # Also without the lease: readers must not see what another server has deleted.
            log.reload()
        if epoch is None:
            return
        is_typed = record.settings.value_schema is not None
        self._cores_max = ARCHIVE_TYPED_CORES_MAX if is_typed else ARCHIVE_CORES_MAX
        self._meter.begin()
        while record.settings.archive == "on" and not self._stopping.is_set():
            now_us = self._clock.now_us()
            self._late_seconds = log.lag(record.settings.archive_after_seconds, now_us)[1]
            file = archiver.archive(record, log, epoch, now_us)
            if file is None:
                break
            self._counters.add_all(
                {"archive_files_written": 1, "archive_messages": file.rows, "archive_bytes": file.bytes}
            )
            record = opened.record
        self._late_seconds = 0.0
        while not self._stopping.is_set():
            merged = archiver.merge(record, log, epoch, self._clock.now_us)
            if merged is None:
                break
            self._counters.add("archive_merges", 1)

    def sweep(self) -> None:
        """Delete files that no manifest lists, or that were replaced or have expired long enough ago."""
        archiver = self._archiver
        if archiver is None:
            return
        for opened in self._topics.all():
            log, record = opened.topic.log, opened.record
            if isinstance(log, TieredLog) and log.view is not None and self._claim(record.id) is not None:
                self._sweep(partial(self._swept, archiver, record), record.name)
        # Looked up in the catalog, not here: another server may have created the topic.
        self._sweep(lambda: archiver.sweep_deleted(self._topics.was_deleted, self._sweep_us()), "deleted topics")

    def _swept(self, archiver: Archiver, record: TopicRecord) -> int:
        return archiver.sweep(record, self._sweep_us())

    def _sweep_us(self) -> int:
        """The time by which files are old; in a shared store that of the database, if this server's clock is ahead."""
        now_us = self._clock.now_us()
        return now_us if self._holder is None else min(now_us, self._archives.manifest.database_us())

    def _sweep(self, work: Callable[[], int], what: str) -> None:
        try:
            self._counters.add("archive_swept", work())
        except (HeadraceError, OSError) as error:
            logger.warning("cannot delete old files of the archive (%s) now, will retry: %s", what, error)

    def _claim(self, topic_id: int) -> int | None:
        epoch = self._archives.manifest.claim(topic_id, self._holder, self._settings.lease_seconds)
        self._lease = None if epoch is None else (topic_id, epoch, time.monotonic())
        return epoch

    def _rest(self) -> None:
        """Between two row groups: let publishers go first, keep the lease, stop if the broker does."""
        before, self._published = self._published, self._counters["messages_written"]
        work, pause = self._meter.work(), 0.0
        if self._published != before:
            self._cores = next_cores(self._cores, work, self._late_seconds, self._cores_max)
            pause = pause_seconds(work, self._cores)
        if self._stopping.wait(min(pause, self._settings.lease_seconds / _RENEWALS_PER_LEASE)):
            raise Closed("the broker")
        self._keep_lease()
        self._meter.begin()

    def _keep_lease(self) -> None:
        lease, seconds = self._lease, self._settings.lease_seconds
        if self._holder is None or lease is None or time.monotonic() - lease[2] < seconds / _RENEWALS_PER_LEASE:
            return
        topic_id, epoch, _ = lease
        if self._claim(topic_id) != epoch:
            raise _LeaseLost


class _Meter:
    """What the calling thread has worked since `begin`."""

    def __init__(self) -> None:
        self._server = time.process_time() - time.thread_time(), time.monotonic()
        self.begin()

    def begin(self) -> None:
        self._cpu, self._waiting, self._clock = time.thread_time(), _waiting_seconds(), time.monotonic()

    def work(self) -> Work:
        waiting = _waiting_seconds()
        waited = None if waiting is None or self._waiting is None else waiting - self._waiting
        cpu, now, before = time.thread_time(), time.monotonic(), self._server
        self._server = time.process_time() - cpu, now
        server_cores = (self._server[0] - before[0]) / max(now - before[1], 1e-6)
        return Work(cpu - self._cpu, waited, now - self._clock, server_cores)


def _waiting_seconds() -> float | None:
    """How long this thread was ready to run and waited for a core, since it began; Linux tells it."""
    try:
        return int(_SCHEDULE.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
