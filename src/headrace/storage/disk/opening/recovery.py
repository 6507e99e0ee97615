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
from headrace.core.publish.plan import TopicState, replay
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.files import frame, snapshot
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex, SealedIndex, end_offsets
from headrace.storage.disk.files.segment import Segment, SegmentHeader, file_names, header_bytes, index_anew, load_index
from headrace.storage.disk.opening.repair import raise_past_holes, repaired_header
from headrace.storage.disk.opening.scan import Scanned, scan


@dataclass(slots=True)
class Recovered:
    """A topic's files as they were found and repaired; the newest segment comes last and ends at `end`."""

    segments: list[Segment]
    state: TopicState
    end: int
    snapshot_number: int
    damage: list[Damaged] = field(default_factory=list)


def recover(files: FileSystem, directory: Path, topic: TopicRecord, now_us: int) -> Recovered:
    """Read a topic's directory and make it ready for writing."""
    damage: list[Damaged] = []
    segments = _find_segments(files, directory, topic, damage)
    newest = segments[-1]
    sealed = load_index(files, newest.index_path)
    index, scanned = _repair_newest(files, newest, 0 if sealed is None else sealed.covered_bytes, damage)
    newest.growing = index
    # The names of a segment and of a snapshot count from here on too, and may never have been synced.
    files.sync_directory(directory)
    ends = _end_offsets(newest, index, sealed, topic)
    raise_past_holes(ends, scanned, index, sealed)
    state = TopicState(np.zeros(topic.partitions, np.int64))
    state.window.messages_max = topic.settings.deduplication_window_messages
    state, damaged_snapshots = snapshot.restore_newest(files, directory, state)
    damage += [Damaged(str(directory / name), 0, "the snapshot's checksum is wrong") for name in damaged_snapshots]
    snapshot_number = state.next_number
    if snapshot_number < segments[0].header.first_number:
        lost = f"what sources wrote in commits {snapshot_number} to {segments[0].header.first_number - 1} is forgotten"
        damage.append(Damaged(str(directory), 0, f"no intact snapshot: {lost}"))
    for position, header, view in _frames_from(files, segments, scanned, snapshot_number, damage):
        _replay(position, header, view, state, topic, now_us)
    state.end_offsets = ends
    frames_known = 0 if sealed is None else len(sealed.frames["rows"])
    state.next_number = max(state.next_number, newest.header.first_number + frames_known)
    state.last_time_us = max(state.last_time_us, newest.header.created_us)
    return Recovered(segments, state, scanned.end, snapshot_number, damage)


def _find_segments(files: FileSystem, directory: Path, topic: TopicRecord, damage: list[Damaged]) -> list[Segment]:
    logs = _swept_logs(files, directory)
    headers = [_header_of(files, path, topic) for path in logs]
    segments: list[Segment] = []
    for path, header, after in zip(logs, headers, [*headers[1:], None], strict=False):
        if header is None:
            if path == logs[-1] and segments and not _was_begun(files, path, topic):
                files.remove(path)
                continue
            header = repaired_header(files, path, topic, segments[-1] if segments else None, after)
            damage.append(_wrong_header(path, header))
        if header is not None:
            segments.append(Segment(files, path, header))
        elif path == logs[-1]:
            # To go on without it would give its offsets and its name away again.
            raise Damaged(str(path), 0, "the newest segment's header is wrong: restore the file, or move it away")
    if not segments:
        raise Damaged(str(directory), 0, "the topic has no segment")
    return segments


def _header_of(files: FileSystem, path: Path, topic: TopicRecord) -> SegmentHeader | None:
    header = SegmentHeader.read(files, path)
    return header if header is not None and header.topic_id == topic.id else None


def _wrong_header(path: Path, repaired: SegmentHeader | None) -> Damaged:
    outcome = "none of its messages can be read" if repaired is None else "what it said was found elsewhere"
    return Damaged(str(path), 0, f"the segment's header is wrong, {outcome}")


def _swept_logs(files: FileSystem, directory: Path) -> list[Path]:
    """The files of the segments in order, once what belongs to none is removed."""
    names = files.list_directory(directory)
    logs = [directory / name for name in file_names(names, "log")]
    # The index of a log that was moved away must not meet another log of the same name.
    known = {path.with_suffix(".index").name for path in logs}
    lone = [name for name in file_names(names, "index") if name not in known]
    for name in [name for name in names if name.endswith(".tmp")] + lone:
        files.remove(directory / name)
    return logs


def _was_begun(files: FileSystem, path: Path, topic: TopicRecord) -> bool:
    """Whether a segment without a right header got past it; one that did not never held anything acknowledged."""
    is_longer = files.size(path) > header_bytes(topic.partitions)
    return is_longer or bool(scan(files.map(path), frame.ALIGNMENT, topic.id, str(path)).frames)


def _repair_newest(
    files: FileSystem, segment: Segment, complete: int, damage: list[Damaged]
) -> tuple[GrowingIndex, Scanned]:
    """Index the newest segment, of which so many bytes are known to have been complete, and cut its torn tail."""
    view = files.map(segment.path)
    if complete > len(view):
        damage.append(Damaged(str(segment.path), len(view), f"the file was {complete} bytes long and is shorter now"))
        complete = 0
    index, scanned = index_anew(view, segment.header, str(segment.path), complete)
    damage += _reported(segment, scanned)
    handle = files.open(segment.path)
    try:
        if scanned.end < len(view):
            files.truncate(handle, scanned.end)
        # What is found here counts as published, and the process that wrote it may have died before its sync. If that
        # sync failed, the system takes the bytes for written though they are not: only writing them again helps.
        last = max(complete, scanned.last_commit)
        if last < scanned.end:
            files.write(handle, last, [bytes(view[last : scanned.end])])
        files.sync(handle)
    finally:
        files.close(handle)
    return index, scanned


def _end_offsets(newest: Segment, index: GrowingIndex, sealed: SealedIndex | None, topic: TopicRecord) -> Int64s:
    """Where the partitions end; a sealed index also knows of messages that are lost, whose offsets stay taken."""
    known = end_offsets(newest.header.base_offsets, [index] if sealed is None else [index, sealed])
    if len(known) > topic.partitions:
        reason = f"it has {len(known)} partitions, the catalog {topic.partitions}: the catalog is older than the log"
        raise Damaged(str(newest.path), 0, reason)
    return np.concatenate([known, np.zeros(topic.partitions - len(known), np.int64)])


def _reported(segment: Segment, scanned: Scanned) -> list[Damaged]:
    return [
        Damaged(str(segment.path), hole.position, f"no intact frame up to byte {hole.end}") for hole in scanned.holes
    ]


def _replay(
    position: int, header: frame.Header, view: memoryview, state: TopicState, topic: TopicRecord, now_us: int
) -> None:
    """Take a frame after the snapshot in; rows that planning would not remember are not decoded."""
    window_us = topic.settings.deduplication_window_seconds * MICROSECONDS
    remember = header.remembered and header.time_us > now_us - window_us
    if remember or header.key_bytes or frame.has_sources(header.columns):
        directory = frame.decode_directory(view, position, header)
        body = view[position + header.body : position + header.body + header.body_bytes]
        rows = frame.decode_rows(body, header.columns)
        keys = frame.decode_keys(view, position, header)
        resets = frame.decode_resets(view, position, header)
        numbers = header.number, header.time_us
        state.apply(replay(*numbers, rows, directory, header.round_robin, keys, remember, resets))
    state.next_number, state.last_time_us = header.number + 1, header.time_us
    state.round_robin = header.round_robin


def _frames_from(
    files: FileSystem, segments: list[Segment], scanned: Scanned, number: int, damage: list[Damaged]
) -> Iterator[tuple[int, frame.Header, memoryview]]:
    """The intact frames with this commit number and above."""
    for place, segment in enumerate(segments):
        is_newest = place == len(segments) - 1
        if not is_newest and segments[place + 1].header.first_number <= number:
            continue
        view = files.map(segment.path)
        found = scanned
        if not is_newest:
            start = header_bytes(len(segment.header.base_offsets))
            found = scan(view, start, segment.header.topic_id, str(segment.path), complete_bytes=len(view))
            damage += _reported(segment, found)
        for position, header in found.frames:
            if header.number >= number:
                yield position, header, view
