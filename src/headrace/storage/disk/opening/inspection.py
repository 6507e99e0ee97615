"""What is in a topic's directory, found out without changing anything.

Recovery makes a directory ready for writing and reads as little as it can; the doctor reads all of it and touches only
what it may repair. What a file is worth is decided here for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.errors import Damaged
from headrace.core.hashes.columns import Int64s
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import SealedIndex
from headrace.storage.disk.files.segment import SegmentHeader, file_names, header_bytes
from headrace.storage.disk.files.watermark import Watermark
from headrace.storage.disk.opening.scan import Scanned, scan

NO_SEGMENT: Final = "the topic has no segment"
NEWEST_MISSING: Final = "the newest segment is missing: what was in it is lost"
WRONG_SNAPSHOT: Final = "the snapshot's checksum is wrong"


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """The files of a directory: segments in order, their indexes, and files that were never finished."""

    logs: list[Path]
    indexes: list[Path]
    unfinished: list[Path]

    @property
    def lone_indexes(self) -> list[Path]:
        """The indexes whose segment does not exist."""
        indexed = {path.with_suffix(".index") for path in self.logs}
        return [path for path in self.indexes if path not in indexed]


def list_files(files: FileSystem, directory: Path) -> TopicFiles:
    """The files of a topic."""
    names = files.list_directory(directory)
    return TopicFiles(
        [directory / name for name in file_names(names, "log")],
        [directory / name for name in file_names(names, "index")],
        [directory / name for name in names if name.endswith(".tmp")],
    )


def header_of(files: FileSystem, path: Path, topic_id: int) -> SegmentHeader | None:
    """The header of a segment, or None if it is damaged or of another topic."""
    header = SegmentHeader.read(files, path)
    return header if header is not None and header.topic_id == topic_id else None


def complete_bytes(path: Path, index: SealedIndex | None, mark: Watermark | None) -> int:
    """How many bytes of a segment are known to have been written completely."""
    covered = 0 if index is None else index.covered_bytes
    return max(covered, mark.bytes) if mark is not None and mark.segment == int(path.stem) else covered


def is_empty(files: FileSystem, path: Path, topic_id: int, partitions: int) -> bool:
    """Whether a segment without an intact header has no frames either."""
    if files.size(path) > header_bytes(partitions):
        return False
    return not scan(files.map(path), frame.ALIGNMENT, topic_id, str(path)).frames


def was_used(path: Path, index: SealedIndex | None, mark: Watermark | None) -> bool:
    """Whether an empty segment has ever held messages; otherwise a process died while it created the file."""
    return index is not None or (mark is not None and mark.segment >= int(path.stem))


def is_missing(newest: Path, mark: Watermark | None) -> bool:
    """Whether there was a newer segment than the newest."""
    return mark is not None and mark.segment > int(newest.stem)


def missing_in_manifest(mark: Watermark | None, ends: Sequence[int] | Int64s) -> str | None:
    """What the log left to the archive and the manifest, which ends there by partition, does not list; or None.

    A file is in the manifest before the log drops its messages: only an older catalog can lack it.
    """
    for partition, archived in enumerate(() if mark is None else mark.archived):
        end = ends[partition] if partition < len(ends) else 0
        if archived > end:
            dropped = f"the log dropped partition {partition} up to offset {archived} after it was archived"
            older = "the catalog is older than the log; restore the newer one"
            return f"{dropped}, and the manifest of the archive ends at {end}: {older}"
    return None


def shortened(complete: int) -> str:
    """Said of a segment that lost its end."""
    return f"the file was {complete} bytes long and is shorter now"


def forgotten_sources(known_to: int, first_number: int) -> str:
    """Said of a topic without an intact snapshot that reaches up to its oldest segment."""
    return f"no intact snapshot: what sources wrote in commits {known_to} to {first_number - 1} is forgotten"


def damage_of(path: Path, scanned: Scanned) -> list[Damaged]:
    """The damaged parts of a segment."""
    return [Damaged(str(path), hole.position, f"no intact frame up to byte {hole.end}") for hole in scanned.holes]
