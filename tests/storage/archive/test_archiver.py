"""Files are written, merged and swept; whatever fails leaves no gap, no overlap and nothing twice."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import update

from headrace.core.archive.plan import Span
from headrace.core.errors import Damaged, OffsetOutOfRange, TopicDeleted
from headrace.core.topics.retention import trimmed
from headrace.storage.archive import log_rows, parquet
from headrace.storage.archive.files import DirectoryFiles
from headrace.storage.interface import TopicLog
from headrace.storage.ranges import Gap, OffsetRange
from headrace.storage.tables import all_archives
from tests.faults.filesystems import EVERY_CHANGE, FailingFileSystem
from tests.storage.archive.builders import ArchivedTopic, doctor, file_names, no_rest, values_of
from tests.storage.builders import NOW_US, Place, batch_of

HOUR_US = 3600 * 1_000_000


def fill(topic: ArchivedTopic, first: int, count: int) -> None:
    """Messages one by one, over all partitions in turn."""
    for number in range(first, first + count):
        partition = number % topic.record.partitions
        row = {"value": b"v%d" % number, "partition": partition, "attributes": [("n", b"%d" % number)]}
        topic.publish(batch_of([row], topic.record.partitions), now_us=NOW_US + number)


def test_files_are_cut_by_size_and_by_time(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", archive_after_seconds=60)
    fill(topic, 0, 6)
    assert topic.archive(now_us=NOW_US + 10) == []
    files = topic.archive(file_bytes=1, now_us=NOW_US + 10)
    assert len(files) > 1
    fill(topic, 6, 1)
    assert topic.archive(now_us=NOW_US + 20) == []
    assert topic.tiered().lag(60, NOW_US + 20) == (1, 0.0)
    assert topic.tiered().lag(60, NOW_US + 90_000_010) == (1, 30.0)
    assert [file.rows for file in topic.archive(now_us=NOW_US + HOUR_US)] == [1]
    assert topic.tiered().lag(60, NOW_US + HOUR_US) == (0, 0.0)
    assert topic.table() == topic.rows() and len(topic.rows()) == 7
    assert doctor(topic) == []


def test_an_archive_is_late_while_messages_arrive_faster_than_it_is_written(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    for number in range(3):
        fill(topic, number, 1)
    log, later_us = topic.tiered(), NOW_US + HOUR_US
    for left in (2, 1):
        assert topic.archiver(file_bytes=1).archive(topic.record, log, topic.epoch(), later_us) is not None
        messages, late_seconds = log.lag(0, later_us)
        assert messages == left and late_seconds == pytest.approx(3600), "though a file was cut just now"
    topic.archiver().archive(topic.record, log, topic.epoch(), later_us)
    assert log.lag(0, later_us) == (0, 0.0)


def test_what_is_published_while_a_file_is_written_is_in_the_next_one(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0, 5)
    archiver = topic.archiver(rest=lambda: fill(topic, 5, 5))
    first = archiver.archive(topic.record, topic.tiered(), topic.epoch(), NOW_US)
    assert first is not None and first.rows == 5
    assert topic.tiered().lag(0, NOW_US)[0] == 5
    assert [file.rows for file in topic.archive()] == [5]
    topic.drop_local()
    assert topic.table() == topic.rows() and len(topic.rows()) == 10 and doctor(topic) == []


def test_what_is_trimmed_while_a_file_is_written_does_not_come_back(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0, 4)
    topic.archive()
    fill(topic, 4, 4)

    def trim() -> None:
        topic.tiered().drop_outlived(trimmed(topic.record.settings, 0), None, NOW_US + HOUR_US)

    archiver = topic.archiver(rest=trim)
    assert archiver.archive(topic.record, topic.tiered(), topic.epoch(), NOW_US) is None
    assert topic.rows() == topic.table() == []
    topic.archive()
    fill(topic, 8, 2)
    topic.archive()
    topic.drop_local(NOW_US + HOUR_US)
    assert values_of(topic.rows()) == values_of(topic.table()) == [b"v8", b"v9"]
    assert doctor(topic) == []


def test_what_is_deleted_before_it_is_read_is_no_failure(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", partitions=1)
    fill(topic, 0, 4)

    def deleted(log: TopicLog, wanted: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        topic.delete_before({0: 3})
        return log_rows.rows_of(log, wanted)

    monkeypatch.setattr("headrace.storage.archive.archiver.rows_of", deleted)
    log = topic.tiered()
    assert topic.archiver().archive(topic.record, log, topic.epoch(), NOW_US) is None
    assert [file.rows for file in topic.archive()] == [1] and len(topic.rows()) == 1

    def out_of_range(log: TopicLog, wanted: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise OffsetOutOfRange("orders", 0, 4, 9, 9)

    monkeypatch.setattr("headrace.storage.archive.archiver.rows_of", out_of_range)
    fill(topic, 4, 1)
    with pytest.raises(OffsetOutOfRange):
        topic.archive()


def test_the_log_drops_nothing_between_a_new_file_and_the_view_of_readers(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0, 4)
    topic.archive()
    fill(topic, 4, 4)
    log, manifest = topic.tiered(), place.store.catalog.manifest
    append = manifest.append
    off = topic.record.settings.change(archive="off", retention_seconds=1)
    retention = threading.Thread(target=lambda: log.drop_outlived(off, None, NOW_US + HOUR_US))
    seen: list[OffsetRange] = []

    def appended(*given: Any) -> bool:
        counts = append(*given)
        # The archive is switched off, and retention runs, at the worst moment.
        retention.start()
        retention.join(0.1)
        seen.append(log.offsets())
        return counts

    monkeypatch.setattr(manifest, "append", appended)
    file = topic.archiver().archive(topic.record, log, topic.epoch(), NOW_US)
    retention.join()
    seen.append(log.offsets())
    assert file is not None
    for offsets in seen:
        assert offsets.gaps == () and offsets.start.tolist() == [0, 0], "all messages are in the archive"
    assert len(topic.rows()) == 8


def test_partitions_that_are_added_are_archived(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", partitions=1)
    fill(topic, 0, 3)
    topic.archive()
    topic.grow(3)
    fill(topic, 3, 6)
    topic.archive()
    topic.drop_local()
    place.reopen()
    assert len(topic.rows()) == 9 and topic.table() == topic.rows()
    assert topic.tiered().offsets().by_partition() == {0: (0, 5), 1: (0, 2), 2: (0, 2)}


def test_small_files_become_one_and_readers_of_old_lists_have_time(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", partitions=3)
    for step in range(5):
        fill(topic, 10 * step, 10)
        topic.archive()
    before, names = topic.table(), file_names(tmp_path / "archive")
    assert len(names) == 5
    merged = topic.archiver().merge(topic.record, topic.tiered(), topic.epoch(), lambda: NOW_US)
    assert merged is not None and merged.rows == 50
    assert topic.archiver().merge(topic.record, topic.tiered(), topic.epoch(), lambda: NOW_US) is None
    assert topic.table() == before == topic.rows()
    assert file_names(tmp_path / "archive") == sorted([*names, merged.path])
    assert topic.archiver().sweep(topic.record, NOW_US) == 0
    assert topic.archiver().sweep(topic.record, NOW_US + 1) == 5
    assert file_names(tmp_path / "archive") == [merged.path]
    assert doctor(topic) == []
    fill(topic, 50, 10)
    topic.archive()
    topic.drop_local()
    assert len(topic.rows()) == 60


def test_files_are_kept_from_when_they_were_replaced_not_from_when_the_merge_began(
    memory: Place, tmp_path: Path
) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    for number in range(4):
        fill(topic, number, 1)
        topic.archive()
    now_us = NOW_US

    def rest() -> None:
        nonlocal now_us
        now_us += 2 * HOUR_US

    archiver = replace(topic.archiver(rest=rest), stray_seconds=3600)
    before = file_names(tmp_path / "archive")
    assert archiver.merge(topic.record, topic.tiered(), topic.epoch(), lambda: now_us) is not None
    assert archiver.sweep(topic.record, now_us) == 0, "a snapshot from just before has these files"
    assert set(before) < set(file_names(tmp_path / "archive"))
    assert archiver.sweep(topic.record, now_us + HOUR_US + 1) == 4


def test_many_rows_are_merged_in_steps(memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("merge", "parquet", "log_rows"):
        monkeypatch.setattr(f"headrace.storage.archive.{module}.ARCHIVE_GROUP_ROWS", 8)
    monkeypatch.setattr("headrace.storage.archive.merge._READ_ROWS", 3)
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=8)
    for step in range(4):
        rows = [{"value": b"%d" % number, "partition": min(7, number % 11)} for number in range(30)]
        topic.publish(batch_of(rows), now_us=NOW_US + step)
        topic.archive()
    assert topic.table() == topic.rows()
    assert topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US) is not None
    topic.drop_local()
    assert topic.table() == topic.rows() and len(topic.rows()) == 120
    log = topic.tiered()
    times = [log.first_at(7, NOW_US + step) for step in range(5)]
    assert times == [0, 9, 18, 27, 36]
    # One row group of the whole fits into the cache at a time.
    topic.cache_bytes = 1
    assert len(topic.rows()) == 120


def test_small_partitions_are_read_together_unless_they_are_large(
    memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=4)
    rows = [{"value": b"x" * 100, "partition": number % 4} for number in range(40)]
    topic.publish(batch_of(rows), now_us=NOW_US)
    spans = [Span(number, 0, 10, True) for number in range(4)] + [Span(9, 0, 1, False)]
    whole = pa.concat_batches(list(log_rows.rows_of(topic.inner, spans)))
    for bytes_max in (600, 2500):
        monkeypatch.setattr(log_rows, "ARCHIVE_GROUP_BYTES", bytes_max)
        assert pa.concat_batches(list(log_rows.rows_of(topic.inner, spans))) == whole
    assert whole["partition"].to_pylist() == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10
    # Two spans of a partition are read one after the other.
    split = [Span(0, 0, 4, True), Span(0, 4, 6, False), Span(0, 6, 10, True)]
    assert [row for batch in log_rows.rows_of(topic.inner, split) for row in batch["offset"].to_pylist()] == [
        *range(4),
        *range(6, 10),
    ]


def test_row_groups_have_at_most_so_many_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ARCHIVE_GROUP_ROWS", 10)
    batch = pa.RecordBatch.from_pydict({"n": np.arange(25)})
    assert [group.num_rows for group in parquet.grouped([batch, batch.slice(0, 3)])] == [10, 10, 8]
    monkeypatch.setattr(parquet, "ARCHIVE_GROUP_BYTES", 8)
    assert [group.num_rows for group in parquet.grouped([batch.slice(0, 3), batch.slice(0, 3)])] == [3, 3]
    assert list(parquet.grouped([])) == []


def test_rows_that_were_not_announced_are_refused(tmp_path: Path, memory: Place) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    fill(topic, 0, 6)
    rows = topic.inner.read(0, 0, 10, 1000)
    for spans in ([Span(0, 0, 2, True)], [Span(0, 1, 3, True)], [Span(0, 0, 3, True), Span(1, 0, 1, True)], []):
        with pytest.raises(ValueError, match="instead of"):
            parquet.write(topic.files, "x/y.parquet", [rows], spans)
    gap = pa.concat_batches([rows.slice(0, 1), rows.slice(2, 1)])
    with pytest.raises(ValueError, match="instead of"):
        parquet.write(topic.files, "x/y.parquet", [gap], [Span(0, 0, 3, True)])
    assert file_names(tmp_path / "archive") == []


def test_offsets_that_the_log_lost_are_named_in_the_manifest(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1)
    fill(topic, 0, 10)
    log = topic.tiered()
    whole = log.inner.offsets()
    log.inner.offsets = lambda: OffsetRange(whole.start, whole.end, gaps)  # type: ignore[method-assign]
    gaps = (Gap(0, 3, 5),)
    file = topic.archiver().archive(topic.record, log, topic.epoch(), NOW_US)
    assert file is not None
    assert [each[1:4] for each in file.ranges] == [(0, 3, 3), (3, 5, 0), (5, 10, 5)]


@pytest.mark.parametrize("call", sorted(EVERY_CHANGE - {"truncate", "remove_directory"}))
def test_a_failing_disk_leaves_no_gap_and_nothing_twice(call: str, memory: Place, tmp_path: Path) -> None:
    disk = FailingFileSystem()
    topic = ArchivedTopic(memory, tmp_path / "archive", files=DirectoryFiles(tmp_path / "archive", disk))
    fill(topic, 0, 4)
    topic.archive()
    for step in range(1, 4):
        fill(topic, 10 * step, 4)
        for skip in range(4):
            with disk.failing(errno.EIO, frozenset({call}), skip=skip, times=1):
                try:
                    topic.archive()
                    topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US)
                except OSError:
                    assert disk.hits
            fill(topic, 10 * step + 4 + skip, 1)
    topic.archive()
    topic.archiver().sweep(topic.record, NOW_US + 1)
    topic.drop_local()
    assert topic.table() == topic.rows()
    assert sorted(values_of(topic.rows())) == sorted(
        b"v%d" % number for number in [*range(4), *(10 * step + n for step in range(1, 4) for n in range(8))]
    )
    assert doctor(topic) == []


class Death(BaseException):
    """The process dies here."""


def test_a_process_that_dies_at_any_point_leaves_only_strays(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0, 6)

    def die() -> None:
        raise Death

    # In the middle of a file, and after the file before its row.
    for rest in (die, no_rest):
        archiver = topic.archiver(rest=rest)
        with pytest.raises(Death):
            if rest is no_rest:
                append, topic.place.store.catalog.manifest.append = topic.place.store.catalog.manifest.append, _dead  # type: ignore[method-assign, assignment]
            try:
                archiver.archive(topic.record, topic.tiered(), topic.epoch(), NOW_US)
            finally:
                if rest is no_rest:
                    topic.place.store.catalog.manifest.append = append  # type: ignore[method-assign]
    place.reopen()
    assert topic.table() == []
    assert len(file_names(tmp_path / "archive")) == 1 and doctor(topic)[0][0] == "leftover"
    topic.archive()
    assert topic.archiver().sweep(topic.record, NOW_US + 1) == 1
    assert topic.table() == topic.rows() and doctor(topic) == []


def _dead(*_: object) -> bool:
    raise Death


def test_files_of_deleted_topics_are_swept_and_others_are_not_touched(place: Place, tmp_path: Path) -> None:
    first = ArchivedTopic(place, tmp_path / "archive")
    fill(first, 0, 3)
    first.archive()
    stranger = tmp_path / "archive" / first.archiver().store_id / "notes.txt"
    stranger.write_text("mine")
    (stranger.parent / f"topic-{first.record.id}" / "notes.txt").write_text("mine")
    first.delete()
    again = ArchivedTopic(place, tmp_path / "archive")
    assert again.record.id != first.record.id
    fill(again, 0, 2)
    again.archive()
    known = {topic.id for topic in place.store.catalog.topics()}
    archiver = again.archiver()
    assert archiver.sweep_deleted(lambda topic_id: topic_id not in known, NOW_US) == 0, "they are too young"
    assert archiver.sweep_deleted(lambda topic_id: topic_id not in known, NOW_US + 1) == 1
    assert archiver.sweep_deleted(lambda topic_id: topic_id not in known, NOW_US + 1) == 0
    assert len([name for name in file_names(tmp_path / "archive") if name.endswith(".parquet")]) == 1
    assert stranger.exists() and values_of(again.rows()) == [b"v0", b"v1"]


def test_a_writer_whose_topic_was_deleted_changes_nothing(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0, 3)
    epoch, log, archiver = topic.epoch(), topic.tiered(), topic.archiver()
    place.store.catalog.remove_topic(topic.record.id)
    manifest = place.store.catalog.manifest
    with suppress(TopicDeleted):
        assert archiver.archive(topic.record, log, epoch, NOW_US) is None
    assert file_names(tmp_path / "archive") == []
    assert manifest.claim(topic.record.id, None, 1) is None
    nothing = OffsetRange(np.zeros(2, np.int64), np.zeros(2, np.int64))
    assert manifest.expire(topic.record.id, 1, nothing, None, True, NOW_US) == 0


def test_the_doctor_names_what_is_wrong(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    for step in range(3):
        fill(topic, 2 * step, 2)
        topic.archive()
    view = topic.tiered().view
    assert view is not None and doctor(topic) == []
    paths = [tmp_path / "archive" / file.path for file in view.manifest.files]
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole + b"!")
    paths[1].unlink()
    flipped = bytearray(paths[2].read_bytes())
    flipped[50] ^= 1
    paths[2].write_bytes(flipped)
    stray = paths[0].with_name("stray.parquet")
    stray.write_bytes(b"")
    found = doctor(topic)
    assert [kind for kind, _ in found] == ["damage"] * 3 + ["leftover"]
    for (_, what), expected in zip(found, ("bytes, and", "is missing", "checksum", "does not list"), strict=True):
        assert expected in what
    doctor(topic, repair=True)
    assert not stray.exists()


def test_the_doctor_reads_footers_and_ends(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1)
    fill(topic, 0, 2)
    [file] = topic.archive()
    manifest = memory.store.catalog.manifest
    ends = np.array([2])
    other = parquet.write(topic.files, "a/b.parquet", [topic.inner.read(0, 0, 1, 99)], [Span(0, 0, 1, True)])
    shifted = [other.ranges[0]._replace(first_offset=2, end_offset=3)]
    lied = replace(other, rows=2, ranges=shifted)
    assert manifest.append(topic.record.id, 0, lied, ends, NOW_US)
    manifest._do(lambda connection: connection.execute(update(all_archives).values(ends="[9]")))
    assert sorted(what for _, what in doctor(topic)) == [
        "it has 1 rows, and 2 in the manifest",
        "topic 'Orders': the files of partition 0 end at offset 3, and the manifest says 9",
    ]
    (tmp_path / "archive" / file.path).write_bytes(b"x" * file.bytes)
    with pytest.raises(Damaged):
        parquet.ParquetFile(topic.files, file.path)
