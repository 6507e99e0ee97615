"""The watermark: a lower bound of where the log of a topic ends, the offsets it skips, and what it left to the archive.

    header | a msgpack struct

It is written when a segment is started, with every snapshot, at a clean close, and when recovery finds that the log
ends before an offset that was given. So a newest segment that is missing, emptied or truncated can be distinguished
from a new one, and an offset that was acknowledged is never given to another message.

It is also written before segments are dropped because their messages are archived. So a catalog that does not list
these messages is recognised as older than the log.

A gap is a range of offsets that were given, or may have been, and whose messages are lost. The file is replaced
atomically and durably. If it is damaged or missing, only this information is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from crc32c import crc32c

from headrace.core.errors import Damaged, UnknownFormat
from headrace.core.hashes.columns import Int64s
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.ranges import Gap

NAME: Final = "log.watermark"
MAGIC: Final = b"HRwm"
VERSION: Final = 1

# magic, checksum, version, bytes of the struct
_HEADER: Final = struct.Struct("<4sIII")
_CHECKED_FROM: Final = 8


class Watermark(msgspec.Struct, frozen=True, array_like=True):
    """The content of the file.

    segment: the first commit number of the newest segment; bytes: how long its file was.
    next_number, ends: the next commit number, and the next offset of every partition.
    gaps: as (partition, first offset, end offset), oldest first in every partition.
    missing_numbers: ranges of commit numbers that are lost, as (first, end).
    archived: by partition the offset below which messages were dropped because the archive had them.
    """

    segment: int
    bytes: int
    next_number: int
    ends: list[int]
    gaps: list[tuple[int, int, int]] = []
    missing_numbers: list[tuple[int, int]] = []
    archived: list[int] = []

    @property
    def skipped(self) -> tuple[Gap, ...]:
        """The gaps by their names."""
        return tuple(Gap(*gap) for gap in self.gaps)


_MARK: Final = msgspec.msgpack.Decoder(Watermark)


def write(files: FileSystem, directory: Path, mark: Watermark) -> None:
    """Replace the watermark of a topic, durably."""
    content = msgspec.msgpack.encode(mark)
    unchecked = _HEADER.pack(MAGIC, 0, VERSION, len(content))
    checksum = crc32c(content, crc32c(unchecked[_CHECKED_FROM:]))
    header = _HEADER.pack(MAGIC, checksum, VERSION, len(content))
    write_whole(files, directory / NAME, [header, content], durable=True)


def read(files: FileSystem, directory: Path) -> Watermark | None:
    """The watermark of a topic, or None; raises if it is damaged."""
    path = directory / NAME
    if NAME not in files.list_directory(directory):
        return None
    view = files.map(path)
    if len(view) < _HEADER.size:
        raise Damaged(str(path), 0, "the watermark is cut")
    magic, checksum, version, length = _HEADER.unpack_from(view)
    if magic != MAGIC or crc32c(view[_CHECKED_FROM:]) != checksum:
        raise Damaged(str(path), 0, "the watermark's checksum is wrong")
    if version > VERSION:
        raise UnknownFormat(str(path), version, VERSION)
    return _MARK.decode(view[_HEADER.size : _HEADER.size + length])


def gaps_between(found: Int64s, raised: Int64s) -> list[Gap]:
    """The gaps that raising the ends of partitions leaves."""
    return [Gap(place, int(found[place]), int(raised[place])) for place in np.flatnonzero(raised > found).tolist()]


def merged(gaps: Iterable[Gap], start: Int64s) -> tuple[Gap, ...]:
    """Gaps in order, adjacent ones merged, without those below the start of their partition."""
    result: list[Gap] = []
    for gap in sorted(gaps):
        if gap.partition < len(start) and gap.end <= start[gap.partition]:
            continue
        last = result[-1] if result else None
        if last is not None and last.partition == gap.partition and gap.first <= last.end:
            result[-1] = Gap(gap.partition, last.first, max(last.end, gap.end))
        else:
            result.append(gap)
    return tuple(result)


def as_lists(gaps: Sequence[Gap]) -> list[tuple[int, int, int]]:
    """Gaps as they are stored."""
    return [(gap.partition, gap.first, gap.end) for gap in gaps]
