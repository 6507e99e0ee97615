"""Opening a topic's directory: after a clean close, after a crash, and with damage in it.

Only the newest segment is read. Its torn tail, which was never acknowledged, is cut. What planning knows comes from
the newest intact snapshot and the frames after it. Damage is collected and reported; everything else stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.core.errors import Damaged
from headrace.core.hashing import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.core.planning import TopicState, replay
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk import frame, snapshot
from headrace.storage.disk.filesystem import FileSystem
from headrace.storage.disk.index import GrowingIndex
from headrace.storage.disk.scan import Scanned, scan
from headrace.storage.disk.segment import Segment, SegmentHeader, header_bytes, index_anew, load_index


@dataclass(slots=True)
class Recovered:
    """A topic's files as they were found and mended; the newest segment comes last and ends at `end`."""

    segments: list[Segment]
    state: TopicState
    end: int
    snapshot_number: int
    damage: list[Damaged] = field(default_factory=list)


def recover(files: FileSystem, directory: Path, topic: TopicRecord, now_us: int) -> Recovered:
    """Read a topic's directory and make it ready for writing."""
    damage: list[Damaged] = []
    segments = _find_segments(files, directory, damage)
    newest = segments[-1]
    index, scanned = _mend_newest(files, newest, damage)
    newest.growing = index
    state = TopicState(np.zeros(topic.partitions, np.int64))
    state, damaged_snapshots = snapshot.restore_newest(files, directory, state)
    damage += [Damaged(str(directory / name), 0, "the snapshot's checksum is wrong") for name in damaged_snapshots]
    snapshot_number = state.next_number
    if snapshot_number < segments[0].header.first_number:
        lost = f"what sources wrote in commits {snapshot_number} to {segments[0].header.first_number - 1} is forgotten"
        damage.append(Damaged(str(directory), 0, f"no intact snapshot: {lost}"))
    _replay(files, segments, scanned, state, topic, now_us)
    state.end_offsets = _end_offsets(newest.header.base_offsets, index, topic.partitions)
    state.next_number = max(state.next_number, newest.header.first_number)
    state.last_time_us = max(state.last_time_us, newest.header.created_us)
    return Recovered(segments, state, scanned.end, snapshot_number, damage)


def _find_segments(files: FileSystem, directory: Path, damage: list[Damaged]) -> list[Segment]:
    names = files.list_directory(directory)
    for name in names:
        if name.endswith(".tmp"):
            files.remove(directory / name)
    segments = []
    logs = [directory / name for name in names if name.endswith(".log")]
    for path in logs:
        header = SegmentHeader.read(files, path)
        if header is not None:
            segments.append(Segment(files, path, header))
        elif path == logs[-1] and segments:
            # The process died while it began this segment: nothing in it was ever acknowledged.
            files.remove(path)
        else:
            damage.append(Damaged(str(path), 0, "the segment's header is wrong, none of its messages can be read"))
    if not segments:
        raise Damaged(str(directory), 0, "no segment of this topic can be read")
    return segments


def _mend_newest(files: FileSystem, segment: Segment, damage: list[Damaged]) -> tuple[GrowingIndex, Scanned]:
    """Index the newest segment and cut its torn tail."""
    view = files.map(segment.path)
    sealed = load_index(files, segment.index_path)
    complete = 0 if sealed is None else sealed.covered_bytes
    if complete > len(view):
        damage.append(Damaged(str(segment.path), len(view), f"the file was {complete} bytes long and is shorter now"))
        complete = 0
    index, scanned = index_anew(view, segment.header, str(segment.path), complete)
    damage += [
        Damaged(str(segment.path), hole.position, f"no intact frame up to byte {hole.end}") for hole in scanned.holes
    ]
    if scanned.end < len(view):
        handle = files.open(segment.path)
        try:
            files.truncate(handle, scanned.end)
            files.sync(handle)
        finally:
            files.close(handle)
    return index, scanned


def _end_offsets(base: Int64s, index: GrowingIndex, partitions: int) -> Int64s:
    ends = np.concatenate([base, np.zeros(partitions - len(base), np.int64)])
    index.raise_ends(ends)
    return ends


def _replay(
    files: FileSystem, segments: list[Segment], scanned: Scanned, state: TopicState, topic: TopicRecord, now_us: int
) -> None:
    """Take in the frames after the snapshot."""
    window_us = topic.settings.deduplication_window_seconds * MICROSECONDS
    by_payload = topic.settings.deduplication == "payload"
    for position, header, view in _frames_from(files, segments, scanned, state.next_number):
        remember = by_payload and header.time_us > now_us - window_us
        if remember or header.key_bytes or frame.has_sources(header.columns):
            directory = frame.decode_directory(view, position, header)
            body = view[position + header.body : position + header.body + header.body_bytes]
            rows = frame.decode_rows(body, header.columns)
            keys = frame.decode_keys(view, position, header)
            state.apply(replay(header.number, header.time_us, rows, directory, header.round_robin, keys, remember))
        state.next_number, state.last_time_us = header.number + 1, header.time_us
        state.round_robin = header.round_robin


def _frames_from(
    files: FileSystem, segments: list[Segment], scanned: Scanned, number: int
) -> Iterator[tuple[int, frame.Header, memoryview]]:
    """The intact frames with this commit number and above."""
    for place, segment in enumerate(segments):
        is_newest = place == len(segments) - 1
        if not is_newest and segments[place + 1].header.first_number <= number:
            continue
        view = files.map(segment.path)
        start = header_bytes(len(segment.header.base_offsets))
        found = scanned if is_newest else scan(view, start, segment.header.topic_id, str(segment.path))
        for position, header in found.frames:
            if header.number >= number:
                yield position, header, view
