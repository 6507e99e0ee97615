"""The journal of commits of several topics: what a process that stopped has left to do (`store_commit`).

An entry is the last frame of a topic's part of a commit that was decided. It is written to where it belongs, once more
if it is there already; nothing else is at that place, since the frame in front of it says that the commit goes on.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from headrace.core.publish.state import STORE_COMMITS
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import file_name
from headrace.storage.disk.opening.scan import Scanned
from headrace.storage.tables import all_journal, headrace_catalog

logger = logging.getLogger(__name__)


def read_journal(catalog: sqlite3.Connection) -> tuple[int, list[JournalEntry]]:
    """The number of the last commit of several topics, and the journal."""
    columns = [column.name for column in all_journal.c]
    entries = f"SELECT {', '.join(columns[1:])} FROM {all_journal.name} ORDER BY {', '.join(columns[:2])}"
    try:
        found = catalog.execute(f"SELECT {headrace_catalog.c.commits.name} FROM {headrace_catalog.name}").fetchone()
        return 0 if found is None else found[0], [JournalEntry(*row) for row in catalog.execute(entries)]
    except sqlite3.DatabaseError:
        # An earlier version had no such commits; the check of the catalog reports damage.
        return 0, []


def is_done(files: FileSystem, topics: Path, entry: JournalEntry) -> bool:
    """Whether an entry is in its segment, or never will be."""
    found = _before(files, topics, entry)
    return found is None or bytes(found[entry.position : entry.position + len(entry.frame)]) == entry.frame


def redo(files: FileSystem, topics: Path, entries: Iterable[JournalEntry]) -> None:
    """Write entries to their segments, durably; those whose segment does not reach up to there are left out."""
    for entry in entries:
        if _before(files, topics, entry) is not None:
            handle = files.open(path_of(topics, entry))
            try:
                files.write(handle, entry.position, [entry.frame])
                files.sync(handle)
            finally:
                files.close(handle)


def begins_after(view: memoryview, scanned: Scanned, number: int) -> tuple[int, frame.Header] | None:
    """Where the first commit begins that is one of several topics with a higher number, and its first frame."""
    first: tuple[int, frame.Header] | None = None
    for position, header in scanned.frames:
        first = first or (position, header)
        if header.key_bytes and _number(view, position, header) > number:
            return first
        if not header.continues:
            first = None
    return None


def _number(view: memoryview, position: int, header: frame.Header) -> int:
    keys = frame.decode_keys(view, position, header)
    return max((key.number for key in keys if key.writer == STORE_COMMITS), default=-1)


def _before(files: FileSystem, topics: Path, entry: JournalEntry) -> memoryview | None:
    """The segment of an entry if the frame in front of it is there."""
    path = path_of(topics, entry)
    try:
        view = files.map(path)
    except FileNotFoundError:
        # The topic was deleted, or retention dropped the segment.
        return None
    before = frame.read_intact(view, entry.before_position, entry.topic_id, str(path))
    if before is None or before.checksum != entry.before_checksum:
        logger.error("%s: the end of a commit of several topics at %d is lost", path, entry.position)
        return None
    return view


def path_of(topics: Path, entry: JournalEntry) -> Path:
    """The segment that an entry belongs to."""
    return topics / f"{entry.topic_id:09d}" / file_name(entry.segment, "log")
