"""The archive of a store: its files, its manifest, and the cache that all readers share."""

from __future__ import annotations

from typing import Final

from headrace.core.errors import InvalidInput
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.archive.row_cache import RowCache
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.interface import TopicLog

NO_ARCHIVE: Final = "this server has no archive: set archive.url and start it again"


class Archives:
    """The archive of an open store; without files nothing is archived, and what was archived cannot be read."""

    def __init__(self, catalog: Catalog, is_shared: bool, files: ArchiveFiles | None, cache_bytes: int) -> None:
        self.manifest = catalog.manifest
        self.files = files
        self.cache = None if files is None else RowCache(files, cache_bytes)
        self._is_shared = is_shared
        self._known = set(self.manifest.ends())

    @property
    def url(self) -> str | None:
        """What the paths of files are relative to."""
        return None if self.files is None else self.files.url

    def tier(self, topic: TopicRecord, log: TopicLog) -> TieredLog:
        """The log of a topic with its archive behind it."""
        # In a shared store, another server may have archived the first messages since.
        known = (self._is_shared and topic.settings.archive == "on") or topic.id in self._known
        return TieredLog(log, topic, self.manifest, self.cache, self._is_shared, known)

    def check(self, settings: TopicSettings, before: TopicSettings = DEFAULT_SETTINGS) -> None:
        """Refuse to begin to archive a topic without an archive."""
        if settings.archive == "on" and before.archive == "off" and self.files is None:
            raise InvalidInput("archive", "'on'", NO_ARCHIVE)
