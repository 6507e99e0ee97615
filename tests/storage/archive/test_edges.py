"""Rare paths: what the log answers by itself, races between two looks, lost ranges in merges, many open files."""

from __future__ import annotations

import bisect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange
from headrace.core.errors import Damaged
from headrace.storage.archive import parquet, row_cache
from headrace.storage.archive.files import checksum_text
from headrace.storage.archive.manifest import TopicManifest
from headrace.storage.archive.parquet import ParquetFile
from headrace.storage.archive.row_cache import RowCache
from headrace.storage.archive.view import ArchiveView
from headrace.storage.ranges import Gap, OffsetRange
from tests.storage.archive.builders import MANY_BYTES, ArchivedTopic, doctor
from tests.storage.builders import EVERYTHING, NOW_US, MemoryPlace, Place, Topic, values


def filled(place: Place, directory: Path) -> ArchivedTopic:
    topic = ArchivedTopic(place, directory, partitions=1)
    topic.publish(values(b"a", b"b", b"c"))
    topic.archive()
    return topic


def test_the_log_answers_for_itself(memory: Place, tmp_path: Path) -> None:
    topic = filled(memory, tmp_path)
    log = topic.tiered()
    assert log.state is topic.inner.state and log.sync_seconds is topic.inner.sync_seconds
    assert (log.failure, log.damaged_segments) == (None, 0)
    assert log.newest_view() is log.view


def test_what_left_the_archive_between_two_looks_is_in_the_log(memory: Place, tmp_path: Path) -> None:
    topic = filled(memory, tmp_path)
    log = topic.tiered()
    log._view = None
    assert log._read_archive(0, 1, 1, EVERYTHING)["value"].to_pylist() == [b"b"]
    assert log._search(None, 0, NOW_US) == 0
    assert log._time_of(None, 0, 0) is None
    topic.drop_local()
    assert topic.tiered().time_of(0, 2) == NOW_US


def test_an_archive_without_live_files_changes_no_offsets(memory: Place, tmp_path: Path) -> None:
    topic = filled(memory, tmp_path)
    local = OffsetRange(np.array([3]), np.array([3]))
    memory.store.catalog.manifest.expire(topic.record.id, 0, local, None, False, NOW_US + 10)
    log = topic.tiered()
    assert log.view is not None and log.view.combined(topic.inner.offsets()).by_partition() == {0: (0, 3)}


def test_gaps_that_touch_are_one() -> None:
    lost = [ArchiveRange(0, 0, 2, 2, 1, 1), ArchiveRange(0, 2, 4, 0, 0, 0), ArchiveRange(1, 0, 1, 1, 1, 1)]
    files = (ArchiveFile("x", 3, 1, "", 1, 1, lost),)
    view = ArchiveView(TopicManifest(1, np.array([4, 1]), 0, files))
    local = OffsetRange(np.array([6, 0]), np.array([9, 9]))
    seen = view.combined(local)
    assert seen.gaps == (Gap(0, 2, 6),) and seen.by_partition() == {0: (0, 9), 1: (0, 9)}


def test_files_with_lost_ranges_are_merged(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path, partitions=1)
    manifest, id_ = memory.store.catalog.manifest, topic.record.id
    topic.epoch()
    for number in range(4):
        lost = ArchiveRange(0, number, number + 1, 0, 0, 0)
        path = f"x/{number}.parquet"
        file = replace(_empty(topic, path), ranges=[lost])
        assert manifest.append(id_, 0, file, np.array([number]), NOW_US)
    merged = topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US)
    assert merged is not None and merged.ranges == [ArchiveRange(0, 0, 4, 0, 0, 0)] and merged.rows == 0


def _empty(topic: ArchivedTopic, path: str) -> ArchiveFile:
    from headrace.storage.archive.parquet import write

    return write(topic.files, path, [], [])


def test_only_a_few_files_are_open_and_two_readers_may_read_the_same(
    memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "_OPEN_FILES_MAX", 1)
    topic = filled(memory, tmp_path)
    topic.publish(values(b"d"))
    topic.archive()
    view = topic.tiered().view
    assert view is not None
    first, second = (file.path for file in view.manifest.files)
    cache = RowCache(topic.files, MANY_BYTES)
    assert cache.group(first, 0).num_rows == 3 and cache.group(second, 0).num_rows == 1
    assert list(cache._open) == [second]
    cache._groups.clear()
    file = cache.file(first)
    read = file.group

    def raced(place: int) -> object:
        monkeypatch.setattr(file, "group", read)
        cache.group(first, place)
        return read(place)

    monkeypatch.setattr(file, "group", raced)
    lock = cache._open[first][1]
    cache._open[first] = file, type("Free", (), {"__enter__": lambda _: None, "__exit__": lambda *_: None})()
    assert cache.group(first, 0).num_rows == 3
    assert not lock.locked()


def test_an_error_of_the_archive_is_not_taken_for_damage(memory: Place, tmp_path: Path) -> None:
    topic = filled(memory, tmp_path)
    view = topic.tiered().view
    assert view is not None
    file = ParquetFile(topic.files, view.manifest.files[0].path)

    class Down:
        def read_row_group(self, *_: object, **__: object) -> None:
            raise OSError("AWS Error NETWORK_CONNECTION")

    file._file = Down()
    with pytest.raises(OSError, match="NETWORK"):
        file.group(0)

    class Wrong:
        def read_row_group(self, *_: object, **__: object) -> None:
            raise pa.ArrowInvalid("no such type")

    file._file = Wrong()
    with pytest.raises(Damaged, match="no such type"):
        file.group(0)


def test_a_time_is_found_in_any_row_group(memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ARCHIVE_GROUP_ROWS", 2)
    topic = ArchivedTopic(memory, tmp_path, partitions=1)
    for number in range(9):
        topic.publish(values(b"%d" % number), now_us=NOW_US + 10 * (number // 2))
    topic.archive()
    topic.drop_local()
    log = topic.tiered()
    times = [log.time_of(0, offset) or 0 for offset in range(9)]
    for time_us in range(NOW_US, NOW_US + 45):
        assert log.first_at(0, time_us) == bisect.bisect_left(times, time_us)


def test_the_doctor_reads_what_has_the_right_checksum(memory: Place, tmp_path: Path) -> None:
    topic = filled(memory, tmp_path)
    Topic(memory, "never archived")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y").write_bytes(b"abc")
    file = ArchiveFile("x/y", 1, 3, checksum_text(crc32c(b"abc")), 0, 0, [ArchiveRange(0, 3, 4, 1, 0, 0)])
    assert memory.store.catalog.manifest.append(topic.record.id, 0, file, np.array([3]), NOW_US)
    [(kind, what)] = doctor(topic)
    assert kind == "damage" and "not a Parquet file" in what


def test_a_memory_store_is_archived_too(tmp_path: Path) -> None:
    place = MemoryPlace()
    topic = filled(place, tmp_path)
    assert len(topic.table()) == 3
    place.close()
