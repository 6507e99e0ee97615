"""Recovery: opens a topic's directory after a clean close, after a crash, or with damage.

Only the newest segment is read. Its torn tail, which was never acknowledged, is truncated. The state of planning is
restored from the newest intact snapshot and the frames after it. Damage is collected and reported; everything else
stays readable.

Then the end of the log is compared with all other evidence of it: indexes, the watermark and the committed offsets of
groups. Where one of them is beyond the end, the end of the partition is raised to it, the offsets between are a gap,
and that is stored before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.core.errors import Damaged
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS, SEGMENT_BYTES
from headrace.core.publish.plan import replay
from headrace.core.publish.state import TopicState
from headrace.core.topics.offsets import widened
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.files import frame, snapshot, watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex, SealedIndex, end_offsets
from headrace.storage.disk.files.segment import (
    Segment,
    SegmentHeader,
    file_name,
    header_bytes,
    index_anew,
    load_index,
)
from headrace.storage.disk.files.watermark import Watermark
from headrace.storage.disk.opening import inspection
from headrace.storage.disk.opening.repair import ROW_BYTES_MIN, raise_past_holes, repaired_header
from headrace.storage.disk.opening.scan import Scanned, scan
from headrace.storage.ranges import Gap


@dataclass(slots=True)
class Recovered:
    """A topic's files after recovery; the newest segment is last and ends at `end`.

    gaps: the offsets that are absent. mark: the watermark as it is on the disk. notes: what this recovery
    found.
    """

    segments: list[Segment]
    state: TopicState
    end: int
    snapshot_number: int
    damage: list[Damaged] = field(default_factory=list)
    gaps: tuple[Gap, ...] = ()
    missing_numbers: list[tuple[int, int]] = field(default_factory=list)
    mark: Watermark | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """The usable segments, and what is known of a newest one that is not.

    indexes: those of newest segments that are missing or empty. doomed: files to delete once that is
    stored. missing: the newest segment, if it has an index and no file. is_lost: whether the newest segment is missing,
    empty, or shorter than it was.
    """

    segments: list[Segment]
    indexes: list[SealedIndex] = field(default_factory=list)
    doomed: list[Path] = field(default_factory=list)
    missing: Path | None = None
    is_lost: bool = False


def recover(
    files: FileSystem,
    directory: Path,
    topic: TopicRecord,
    now_us: int,
    committed: Mapping[int, int] | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    is_new: bool = False,
) -> Recovered:
    """Read a topic's directory and make it ready for writing.

    committed: by partition the highest offset that a group has committed, or below which messages were deleted.
    is_new: whether this process has just created the log, durably.
    """
    damage: list[Damaged] = []
    mark = _watermark(files, directory, damage)
    found = _find_segments(files, directory, topic, mark, damage)
    segments = found.segments
    newest = segments[-1]
    sealed = load_index(files, newest.index_path)
    complete = inspection.complete_bytes(newest.path, sealed, mark)
    if complete > (length := files.size(newest.path)):
        damage.append(Damaged(str(newest.path), length, inspection.shortened(complete)))
        found.is_lost, complete = True, 0
        # It would be reported again at every opening.
        found.doomed.append(newest.index_path)
    index, scanned = _index_newest(files, newest, complete, damage)
    newest.growing = index
    if not (is_new or _was_closed(newest, scanned, length, mark)):
        _cut_torn_tail(files, newest, scanned, complete, length)
        # Segments and snapshots are relied on from here, and their names may never have been synced.
        files.sync_directory(directory)
    ends = _end_offsets(newest, index, sealed if complete else None, topic)
    raise_past_holes(ends, scanned, index, sealed)
    state = TopicState(np.zeros(topic.partitions, np.int64))
    state.window.messages_max = topic.settings.deduplication_window_messages
    state, damaged_snapshots = snapshot.restore_newest(files, directory, state)
    damage += [Damaged(str(directory / name), 0, inspection.WRONG_SNAPSHOT) for name in damaged_snapshots]
    snapshot_number = state.next_number
    if snapshot_number < segments[0].header.first_number:
        lost = inspection.forgotten_sources(snapshot_number, segments[0].header.first_number)
        damage.append(Damaged(str(directory), 0, lost))
    for position, header, view in _frames_from(files, segments, scanned, snapshot_number, damage):
        _replay(position, header, view, state, topic, now_us)
    frames_known = 0 if sealed is None else len(sealed.frames["rows"])
    state.next_number = max(state.next_number, newest.header.first_number + frames_known)
    state.last_time_us = max(state.last_time_us, newest.header.created_us)
    recovered = Recovered(segments, state, scanned.end, snapshot_number, damage)
    number_found = scanned.frames[-1][1].number + 1 if scanned.frames else newest.header.first_number
    known = [*found.indexes, *([] if sealed is None else [sealed])]
    _raise_ends(recovered, ends, known, mark, committed or {}, segment_bytes if found.is_lost else 0, number_found)
    _write_down(files, directory, recovered, mark, found.doomed)
    return recovered


def _watermark(files: FileSystem, directory: Path, damage: list[Damaged]) -> Watermark | None:
    try:
        return watermark.read(files, directory)
    except Damaged as error:
        damage.append(error)
        return None


def _raise_ends(
    recovered: Recovered,
    ends: Int64s,
    indexes: Sequence[SealedIndex],
    mark: Watermark | None,
    committed: Mapping[int, int],
    lost_bytes: int,
    number_found: int,
) -> None:
    """Raise the ends of partitions to the highest known ones, and find the gaps that this leaves."""
    partitions = len(ends)
    known = _within(end_offsets(ends, indexes) if indexes else ends, partitions, recovered.segments[-1].path)
    if mark is not None:
        known = np.maximum(known, _within(np.array(mark.ends, np.int64), partitions, recovered.segments[-1].path))
        recovered.state.next_number = max(recovered.state.next_number, mark.next_number)
        recovered.missing_numbers = list(mark.missing_numbers)
    highest = np.array([committed.get(place, 0) for place in range(partitions)], np.int64)
    for place in np.flatnonzero(highest > known).tolist():
        what = f"the catalog knows offset {highest[place]} of partition {place}, the log ends at {known[place]}"
        recovered.notes.append(what)
    known = np.maximum(known, highest)
    if lost_bytes:
        # The loss is unknown: skip as many offsets as a segment could hold rows.
        known = known + lost_bytes // ROW_BYTES_MIN
    if number_found < recovered.state.next_number:
        numbers = (number_found, recovered.state.next_number)
        kept = [other for other in recovered.missing_numbers if other[0] != number_found]
        recovered.missing_numbers = [*kept, numbers]
    before = () if mark is None else mark.skipped
    start = np.zeros(partitions, np.int64)
    base = recovered.segments[0].header.base_offsets
    start[: len(base)] = base
    recovered.gaps = watermark.merged([*before, *watermark.gaps_between(ends, known)], start)
    for gap in sorted(set(recovered.gaps) - set(before)):
        lost = f"offsets {gap.first} to {gap.end - 1} of partition {gap.partition} are lost, and are skipped"
        recovered.notes.append(lost)
    recovered.state.end_offsets = known


def _write_down(
    files: FileSystem, directory: Path, recovered: Recovered, mark: Watermark | None, doomed: Sequence[Path]
) -> None:
    """Make the gaps durable, and only then delete the evidence of them."""
    before = ((), []) if mark is None else (mark.skipped, mark.missing_numbers)
    recovered.mark = mark
    if before != (recovered.gaps, recovered.missing_numbers):
        recovered.mark = _marked(recovered)
        watermark.write(files, directory, recovered.mark)
    for path in doomed:
        files.remove(path)
    if doomed:
        files.sync_directory(directory)


def _marked(recovered: Recovered) -> Watermark:
    """The watermark right after recovery."""
    newest, state = recovered.segments[-1], recovered.state
    return Watermark(
        newest.header.first_number,
        recovered.end,
        state.next_number,
        state.end_offsets.tolist(),
        watermark.as_lists(recovered.gaps),
        recovered.missing_numbers,
        [] if recovered.mark is None else recovered.mark.archived,
    )


def _find_segments(
    files: FileSystem, directory: Path, topic: TopicRecord, mark: Watermark | None, damage: list[Damaged]
) -> _Found:
    found = _Found([])
    segments = found.segments
    logs = _swept_logs(files, directory, found)
    headers = [inspection.header_of(files, path, topic.id) for path in logs]
    for path, header, after in zip(logs, headers, [*headers[1:], None], strict=False):
        if header is None:
            if path == logs[-1] and segments and inspection.is_empty(files, path, topic.id, topic.partitions):
                _pass_over(files, path, mark, found, damage)
                continue
            header = repaired_header(files, path, topic, segments[-1] if segments else None, after)
            damage.append(_wrong_header(path, header))
        if header is not None:
            segments.append(Segment(files, path, header))
        elif path == logs[-1]:
            # Continuing without it would reuse its offsets and its name.
            raise Damaged(str(path), 0, "the newest segment's header is wrong: restore the file, or move it away")
    if not segments:
        raise Damaged(str(directory), 0, inspection.NO_SEGMENT)
    if mark is not None and inspection.is_missing(logs[-1], mark):
        found.missing = directory / file_name(mark.segment, "log")
    if found.missing is not None:
        damage.append(Damaged(str(found.missing), 0, inspection.NEWEST_MISSING))
        found.is_lost = True
    return found


def _pass_over(files: FileSystem, path: Path, mark: Watermark | None, found: _Found, damage: list[Damaged]) -> None:
    """Skip a newest segment without header and frames: a process died while it created the file, or it was emptied."""
    index_path = path.with_suffix(".index")
    index = load_index(files, index_path)
    if not inspection.was_used(path, index, mark):
        files.remove(path)
        return
    found.doomed += [path, index_path]
    found.indexes += [] if index is None else [index]
    found.is_lost = True
    damage.append(Damaged(str(path), 0, "the newest segment was emptied: what was in it is lost"))


def _wrong_header(path: Path, repaired: SegmentHeader | None) -> Damaged:
    outcome = "none of its messages can be read" if repaired is None else "what it said was found elsewhere"
    return Damaged(str(path), 0, f"the segment's header is wrong, {outcome}")


def _swept_logs(files: FileSystem, directory: Path, found: _Found) -> list[Path]:
    """The files of the segments in order; unfinished files are deleted.

    The index of a log that was moved away must not be used with another log of the same name: it is deleted too, once
    its information is stored.
    """
    listed = inspection.list_files(files, directory)
    for path in listed.unfinished:
        files.remove(path)
    for path in listed.lone_indexes:
        index = load_index(files, path)
        if index is not None:
            found.indexes.append(index)
            if listed.logs and path.stem > listed.logs[-1].stem:
                found.missing = path.with_suffix(".log")
    found.doomed += listed.lone_indexes
    return listed.logs


def _index_newest(
    files: FileSystem, segment: Segment, complete: int, damage: list[Damaged]
) -> tuple[GrowingIndex, Scanned]:
    """Index the newest segment, whose first `complete` bytes were written completely."""
    index, scanned = index_anew(files.map(segment.path), segment.header, str(segment.path), complete)
    damage += inspection.damage_of(segment.path, scanned)
    return index, scanned


def _was_closed(newest: Segment, scanned: Scanned, length: int, mark: Watermark | None) -> bool:
    """Whether nothing was written since the watermark: it is written after what it covers is on the device."""
    written = (newest.header.first_number, length)
    return mark is not None and (mark.segment, mark.bytes) == written and scanned.end == length


def _cut_torn_tail(files: FileSystem, segment: Segment, scanned: Scanned, complete: int, length: int) -> None:
    """Truncate the torn tail of the newest segment, and bring the rest of it to the device."""
    view = files.map(segment.path)
    handle = files.open(segment.path)
    try:
        if scanned.end < length:
            files.truncate(handle, scanned.end)
        # What is found here counts as published, but its writer may have died before the sync. If that sync failed, the
        # kernel believes that the pages are clean although they are not on the device: only writing them again helps.
        last = max(complete, scanned.last_commit)
        if last < scanned.end:
            files.write(handle, last, [bytes(view[last : scanned.end])])
        files.sync(handle)
    finally:
        files.close(handle)


def _end_offsets(newest: Segment, index: GrowingIndex, sealed: SealedIndex | None, topic: TopicRecord) -> Int64s:
    """The end offsets; a sealed index also has lost messages, whose offsets are not reused."""
    known = end_offsets(newest.header.base_offsets, [index] if sealed is None else [index, sealed])
    return _within(known, topic.partitions, newest.path)


def _within(offsets: Int64s, partitions: int, path: Path) -> Int64s:
    """Offsets for all partitions of the catalog; more partitions are an error."""
    if len(offsets) > partitions:
        reason = f"it has {len(offsets)} partitions, the catalog {partitions}: the catalog is older than the log"
        raise Damaged(str(path), 0, reason)
    return widened(offsets, partitions)


def _replay(
    position: int, header: frame.Header, view: memoryview, state: TopicState, topic: TopicRecord, now_us: int
) -> None:
    """Apply a frame after the snapshot; rows that do not affect the state are not decoded."""
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
            damage += inspection.damage_of(segment.path, found)
        for position, header in found.frames:
            if header.number >= number:
                yield position, header, view
