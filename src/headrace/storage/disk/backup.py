"""An online backup of a disk store: a consistent copy while a server keeps writing. It takes no lock.

What is copied, in this order, so that each part is at least as new as the one before it:

    complete segments     immutable; if retention drops one meanwhile, the older copies are removed too: if it was
                          archived, the manifest that is copied next has it
    the catalog           copied by SQLite: committed offsets at one moment
    snapshots             the state of planning, at that moment or later
    the other segments    everything written until then; of the newest one all complete commits

Of commits of several topics all are copied that were decided before the catalog was copied, and no later one: its end
may be missing in the segments of one topic, and is written there, and a later one is cut off with what follows it.

So no committed offset and no snapshot is beyond the copied log, and everything acknowledged before the start is in it.
If the store changed too much meanwhile (a topic was deleted or got partitions, or retention dropped what was copied
last), it starts over, a few times. Stages are not copied: they are not acknowledged.

If asked for, the files of the archive that the copied manifest lists are copied last, below `archive` in the target.
Each must have the size and the checksum of the manifest. A file that was merged or has expired since the manifest was
copied exists for `archive.stray_seconds` longer; if it was deleted, the copy fails.

The copy has the name of the target only once it is complete and on the device. If anything fails, nothing is left.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from headrace.core.archive.manifest import ArchiveFile
from headrace.core.errors import Damaged, InvalidInput, StoreUnavailable
from headrace.storage.archive.files import ArchiveFiles, DirectoryFiles
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.engine import CATALOG, open_disk_catalog, store_errors
from headrace.storage.disk.files import frame, snapshot
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.disk.files.segment import SegmentHeader, file_names, header_bytes, index_anew, load_index
from headrace.storage.disk.opening.journal import begins_after, read_journal, redo
from headrace.storage.disk.opening.scan import Scanned, scan
from headrace.storage.tables import all_topics, headrace_catalog

# The directory of the archive's files in a copy that has them.
ARCHIVE: Final = "archive"
ATTEMPTS_MAX: Final = 10
_CATALOG_SECONDS: Final = 30.0
_READ_BYTES: Final = 4 << 20


class BackedUp(msgspec.Struct, frozen=True):
    """What a backup holds."""

    topics: int
    segments: int
    bytes: int
    archive_files: int = 0
    archive_bytes: int = 0


def back_up(
    source: Path, target: Path, files: FileSystem | None = None, archive: ArchiveFiles | None = None
) -> BackedUp:
    """Copy a store, whether a server runs on it or not, to a directory that does not exist yet.

    With an `archive`, that of the store, its files are in the copy too.
    """
    files = files or FileSystem()
    if CATALOG not in files.list_directory(source):
        raise StoreUnavailable(str(source), "it is not a store: give the directory that contains catalog.sqlite")
    if target.exists():
        raise InvalidInput("directory", repr(str(target)), "it exists: choose a directory that does not exist")
    partial = target.with_name(f"{target.name}.partial")
    with store_errors(source):
        _remove_tree(files, partial)
        try:
            copied = _Backup(files, source, partial).run()
            if archive is not None:
                copied = _with_archive(copied, partial, archive, files)
            files.replace(partial, target)
            files.sync_directory(target.parent)
        except BaseException:
            _remove_tree(files, partial)
            raise
    return copied


def _with_archive(copied: BackedUp, target: Path, archive: ArchiveFiles, files: FileSystem) -> BackedUp:
    with closing(open_disk_catalog(target)) as catalog:
        manifests = [catalog.manifest.load(topic_id) for topic_id in catalog.manifest.ends()]
    listed = [file for manifest in manifests if manifest is not None for file in manifest.files]
    for file in listed:
        _copy_archived(file, archive, DirectoryFiles(target / ARCHIVE, files))
    size = sum(file.bytes for file in listed)
    return msgspec.structs.replace(copied, archive_files=len(listed), archive_bytes=size)


def _copy_archived(file: ArchiveFile, source: ArchiveFiles, target: ArchiveFiles) -> None:
    try:
        opened = source.open(file.path)
    except FileNotFoundError:
        reason = "it is missing: deleted since the backup began, which another one will show, or lost"
        raise StoreUnavailable(f"{source.url}: {file.path}", reason) from None
    with opened, target.writing(file.path) as sink:
        while data := opened.read(_READ_BYTES):
            sink.write(data)
        if (sink.bytes, sink.checksum) != (file.bytes, file.checksum):
            found = f"it has {sink.bytes} bytes with checksum {sink.checksum}"
            raise Damaged(file.path, 0, f"{found}, and {file.bytes} with {file.checksum} in the manifest")


class _Backup:
    """A running backup."""

    def __init__(self, files: FileSystem, source: Path, target: Path) -> None:
        self._files = files
        self._source = source
        self._target = target
        # Copies of complete segments; what was copied of the newest one is copied again when it is complete.
        self._complete: set[Path] = set()
        # The newest segment of each topic before the catalog was copied, if it had one.
        self._newest: dict[str, list[str]] = {}
        # What the copied catalog knows of commits of several topics.
        self._journal: list[JournalEntry] = []
        self._last_commit = 0

    def run(self) -> BackedUp:
        for _ in range(ATTEMPTS_MAX):
            for name in self._files.list_directory(self._source / "topics"):
                self._copy_complete(name)
            partitions = self._copy_catalog()
            if all(self._copy_rest(topic_id, count) for topic_id, count in partitions.items()):
                return self._finish(partitions)
        reason = "topics were deleted, grew or lost segments to retention while they were copied: try again"
        raise StoreUnavailable(str(self._source), reason)

    def _copy_complete(self, name: str) -> None:
        """Copy the complete segments of a topic that are not copied yet, oldest first."""
        source, target = self._source / "topics" / name, self._target / "topics" / name
        listed = file_names(self._files.list_directory(source), "log")
        if not self._continues(target, listed):
            self._forget(target)
        self._newest[name] = listed[-1:]
        for log in listed[:-1]:
            if not self._copy_segment(source / log, target / log):
                # Retention dropped it: there would be a gap after the segments copied before it.
                self._forget(target)

    def _copy_catalog(self) -> dict[int, int]:
        """Copy the catalog at one moment; returns the partitions of its topics by id."""
        self._files.make_directory(self._target)
        target = self._target / CATALOG
        self._files.remove(target)
        # Read-write: SQLite creates files beside a catalog that no server has open, and deletes them.
        url = f"file:{quote(str(self._source / CATALOG))}?mode=rw"
        try:
            with (
                closing(sqlite3.connect(url, uri=True, timeout=_CATALOG_SECONDS)) as database,
                closing(sqlite3.connect(target)) as copy,
            ):
                database.backup(copy)
                _rename_store(copy)
                query = f"SELECT {all_topics.c.topicid.name}, {all_topics.c.partitions.name} FROM {all_topics.name}"
                self._last_commit, self._journal = read_journal(copy)
                return dict(copy.execute(query).fetchall())
        except sqlite3.Error as error:
            raise StoreUnavailable(str(self._source / CATALOG), str(error)) from error

    def _copy_rest(self, topic_id: int, partitions: int) -> bool:
        """Copy the snapshots of a topic, then the rest of its log; returns whether all of it fits together."""
        name = f"{topic_id:09d}"
        source, target = self._source / "topics" / name, self._target / "topics" / name
        if not all(self._copy_file(source / state, target / state) for state in snapshot.names(self._files, source)):
            # Newer ones replaced it, and the segments before them may be dropped.
            return False
        listed = file_names(self._files.list_directory(source), "log")
        if not listed or not self._continues(target, listed):
            return False
        if not set(self._newest.get(name, ())) <= set(listed):
            # It was archived and dropped, and the copied manifest may be older than that.
            return False
        # Segments that were complete before the catalog was copied have at most its partitions.
        later = [log for log in listed[:-1] if target / log not in self._complete]
        if not all(self._copy_segment(source / log, target / log) for log in listed[:-1]):
            return False
        fits = all(self._fits(target / log, partitions, self._last_commit) for log in later)
        return fits and self._copy_newest(source / listed[-1], target / listed[-1], topic_id, partitions)

    def _copy_segment(self, source: Path, target: Path) -> bool:
        """Copy a complete segment with its index, unless it was copied before; returns whether a copy exists."""
        if target in self._complete and _size(self._files, source) in (None, self._files.size(target)):
            return True
        if not self._copy_file(source, target):
            return False
        self._complete.add(target)
        # It may never have been written: an index can be rebuilt from the log at any time.
        self._copy_file(source.with_suffix(".index"), target.with_suffix(".index"))
        return True

    def _copy_newest(self, source: Path, target: Path, topic_id: int, partitions: int) -> bool:
        """Copy the newest segment up to its last complete commit; returns whether it exists and fits the catalog.

        What was being written during the read looks like damage, and no longer does when it is read again.
        """
        known: set[int] | None = None
        while True:
            if not self._copy_file(source, target):
                return False
            header = SegmentHeader.read(self._files, target)
            if header is None:
                return self._leave_begun(target, partitions)
            here = [each for each in self._journal if (each.topic_id, each.segment) == (topic_id, header.first_number)]
            redo(self._files, self._target / "topics", here)
            scanned = self._scanned(target, header, topic_id)
            holes = {hole.position for hole in scanned.holes}
            if not holes or (known is not None and holes <= known):
                break
            known = holes
        later = begins_after(self._files.map(target), scanned, self._last_commit)
        self._cut(target, scanned.end if later is None else later[0])
        states = [int(Path(name).stem) for name in snapshot.names(self._files, target.parent)]
        if later is not None and max(states, default=0) > later[1].number:
            # A snapshot must not know more than the log.
            return False
        return self._fits(target, partitions)

    def _leave_begun(self, target: Path, partitions: int) -> bool:
        """A new segment without a header is skipped; any other one without is damage, and copied as it is."""
        if self._files.size(target) <= header_bytes(partitions):
            self._files.remove(target)
        return True

    def _scanned(self, target: Path, header: SegmentHeader, topic_id: int) -> Scanned:
        return scan(self._files.map(target), header_bytes(len(header.base_offsets)), topic_id, str(target))

    def _cut(self, target: Path, end: int) -> None:
        handle = self._files.open(target)
        try:
            self._files.truncate(handle, end)
            self._files.sync(handle)
        finally:
            self._files.close(handle)

    def _fits(self, target: Path, partitions: int, last_commit: int | None = None) -> bool:
        """Whether a copied segment knows no more partitions, and commits of several topics, than the copied catalog."""
        header = SegmentHeader.read(self._files, target)
        if header is None:
            return True
        if len(header.base_offsets) > partitions:
            return False
        view = self._files.map(target)
        found = scan(view, header_bytes(len(header.base_offsets)), header.topic_id, str(target), len(view))
        if last_commit is not None and begins_after(view, found, last_commit) is not None:
            return False
        directories = (frame.decode_directory(view, position, each) for position, each in found.frames)
        return all(int(each.partition.max(initial=-1)) < partitions for each in directories)

    def _forget(self, target: Path) -> None:
        """Start over with a topic."""
        _remove_tree(self._files, target)
        self._complete = {path for path in self._complete if path.parent != target}

    def _continues(self, target: Path, listed: list[str]) -> bool:
        """Whether the copied segments of a topic continue in those that exist now."""
        copied = file_names(self._files.list_directory(target), "log")
        return not copied or copied[-1] in listed

    def _copy_file(self, source: Path, target: Path) -> bool:
        """Copy a file; returns whether it existed."""
        self._files.make_directory(target.parent)
        try:
            self._files.copy(source, target)
        except FileNotFoundError:
            self._files.remove(target)
            return False
        return True

    def _finish(self, partitions: dict[int, int]) -> BackedUp:
        """Remove topics that are not in the catalog, and sync all directories."""
        topics = self._target / "topics"
        self._files.make_directory(topics)
        known = {f"{topic_id:09d}" for topic_id in partitions}
        segments = size = 0
        for name in self._files.list_directory(topics):
            if name not in known:
                _remove_tree(self._files, topics / name)
                continue
            logs = file_names(self._files.list_directory(topics / name), "log")
            segments += len(logs)
            size += sum(self._files.size(topics / name / log) for log in logs)
            for log in logs[:-1]:
                self._index(topics / name / log)
            self._files.sync_directory(topics / name)
        self._files.sync_directory(topics)
        self._files.sync_directory(self._target)
        return BackedUp(len(partitions), segments, size)

    def _index(self, log: Path) -> None:
        """Build the index of a complete segment, if it had none when it was copied."""
        view, header = self._files.map(log), SegmentHeader.read(self._files, log)
        known = load_index(self._files, log.with_suffix(".index"))
        if header is not None and (known is None or known.covered_bytes != len(view)):
            index, _ = index_anew(view, header, str(log), len(view))
            write_whole(self._files, log.with_suffix(".index"), index.encode(), durable=True)


def _size(files: FileSystem, path: Path) -> int | None:
    try:
        return files.size(path)
    except FileNotFoundError:
        return None


def _remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a directory with all that is in it; one that does not exist is fine."""
    for name in files.list_directory(path):
        if (path / name).is_dir():
            _remove_tree(files, path / name)
        else:
            files.remove(path / name)
    files.remove_directory(path)


def _rename_store(copy: sqlite3.Connection) -> None:
    """Let the copy get an id of its own: it must not delete files that the original writes to the archive."""
    columns = {row[1] for row in copy.execute(f"PRAGMA table_info({headrace_catalog.name})")}
    if headrace_catalog.c.storeid.name in columns:
        copy.execute(f"UPDATE {headrace_catalog.name} SET {headrace_catalog.c.storeid.name} = NULL")
        copy.commit()
