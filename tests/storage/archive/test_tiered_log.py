"""Readers do not notice what is in the archive, on every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.core.errors import Damaged, OffsetOutOfRange, PartitionNotFound, StoreUnavailable
from headrace.storage.archive.archives import Archives
from headrace.storage.ranges import Gap, OffsetRange
from tests.storage.archive.builders import ArchivedTopic, file_names, values_of
from tests.storage.builders import EVERYTHING, NOW_US, Place, batch_of, read_all
from tests.storage.contract import FULL_ROW

SECOND_US = 1_000_000
YEARS_US = 10**15


def fill(topic: ArchivedTopic, commits: int, first: int = 0) -> None:
    """Commits a second apart, each with two messages in partition 0 and one in partition 1."""
    for number in range(first, first + commits):
        rows = [
            {"value": b"a%d" % number, "partition": 0, "key": b"k"},
            FULL_ROW | {"value": b"b%d" % number, "partition": 0, "seqno": number + 1},
            {"value": b"c%d" % number, "partition": 1},
        ]
        topic.publish(batch_of(rows), now_us=NOW_US + number * SECOND_US)


def test_messages_are_the_same_before_and_after_they_leave_the_log(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 7)
    before = topic.rows()
    times = [topic.log.first_at(0, NOW_US + number * SECOND_US // 2) for number in range(16)]
    assert [file.rows for file in topic.archive()] == [21]
    topic.drop_local(NOW_US + 10 * SECOND_US)
    place.reopen()
    fill(topic, 2, first=7)
    start = topic.inner.offsets().start
    assert start[0] >= 12 and start[1] >= 6
    assert topic.rows()[:14] == before[:14] and topic.rows()[18:25] == before[14:]
    assert topic.table() == before
    log = topic.tiered()
    assert [log.first_at(0, NOW_US + number * SECOND_US // 2) for number in range(14)] == times[:14]
    assert log.offsets().by_partition() == {0: (0, 18), 1: (0, 9)}
    assert [log.time_of(0, offset) for offset in (0, 5, 13)] == [NOW_US + n * SECOND_US for n in (0, 2, 6)]
    assert log.time_of(1, 100) is None
    assert log.read(0, 3, 2, EVERYTHING)["offset"].to_pylist() == [3, 4]
    assert log.read(0, 3, 100, 1).num_rows == 1
    assert log.read(0, 18, 100, 1).num_rows == 0


def test_many_partitions_are_read_from_both(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 3)
    topic.archive()
    topic.drop_local()
    fill(topic, 3, first=3)
    log = topic.tiered()
    values = [batch["value"].to_pylist() for batch in log.read_many({0: 0, 1: 0}, 100, EVERYTHING)]
    assert sorted(values)[0][:4] == [b"a0", b"b0", b"a1", b"b1"] and sorted(values)[1][:2] == [b"c0", b"c1"]
    start = int(topic.inner.offsets().start[1])
    values = [batch["value"].to_pylist() for batch in log.read_many({0: 0, 1: start}, 100, EVERYTHING)]
    assert values[0][:2] == [b"a0", b"b0"] and values[1][0] == b"c%d" % start
    # No room is left for the newer partition.
    assert [batch.num_rows for batch in log.read_many({0: 0, 1: start}, 1, EVERYTHING)] == [1]
    assert [batch.num_rows for batch in log.read_many({0: start * 2, 1: start}, 2, EVERYTHING)] == [1, 1]


def test_many_partitions_are_read_while_retention_drops_them(
    memory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    fill(topic, 3)
    topic.archive()
    topic.drop_local()
    log, now = topic.tiered(), topic.inner.offsets()
    looks = [OffsetRange(np.array([6, 0]), now.end)]
    monkeypatch.setattr(topic.inner, "offsets", lambda: looks.pop() if looks else now)
    found = [batch["value"].to_pylist()[0] for batch in log._read_both({0: 0, 1: 0}, 100, EVERYTHING)]
    assert found == [b"a0", b"c0"]
    # The old one is not left out if there is little room, and the new one has nothing.
    assert [batch.num_rows for batch in log.read_many({0: 0, 1: 3}, 1, EVERYTHING)] == [1]
    with pytest.raises(OffsetOutOfRange):
        log.read_many({0: 7, 1: 3}, 1, EVERYTHING)


def test_offsets_outside_are_refused_as_without_an_archive(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 3)
    topic.archive()
    topic.drop_local()
    for partition, offset in ((0, 7), (1, 4)):
        with pytest.raises(OffsetOutOfRange):
            topic.log.read(partition, offset, 1, 1)
    with pytest.raises(PartitionNotFound):
        topic.log.read(9, 0, 1, 1)


def test_nothing_is_dropped_before_it_is_archived(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", local_retention_seconds=1)
    fill(topic, 6)
    assert topic.tiered().drop_outlived(topic.record.settings, None, NOW_US + YEARS_US) == 0
    topic.archive()
    fill(topic, 1, first=6)
    assert topic.tiered().drop_outlived(topic.record.settings, None, NOW_US + YEARS_US) > 0
    assert values_of(topic.rows())[-1] == b"c6" and len(topic.rows()) == 21


def test_archive_retention_deletes_files_unless_an_important_group_needs_them(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", archive_retention_seconds=10)
    fill(topic, 3)
    topic.archive()
    topic.drop_local()
    later_us = NOW_US + 100 * SECOND_US
    held = np.array([2, 0])
    settings = topic.record.settings
    if place.store.signals is None:
        topic.tiered().drop_outlived(settings, held, later_us)
        assert len(topic.rows()) == 9
    topic.tiered().drop_outlived(settings, None, later_us)
    assert topic.tiered().offsets().start.tolist() == topic.inner.offsets().start.tolist() == [6, 3]
    assert topic.table() == []
    # What was expired is not archived again.
    assert topic.archive() == []
    topic.archiver().sweep(topic.record, NOW_US + YEARS_US)
    assert file_names(tmp_path / "archive") == []
    assert place.store.catalog.manifest.listed(topic.record.id) == {}


def test_what_was_deleted_while_the_archive_was_off_is_a_gap(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 3)
    topic.archive()
    fill(topic, 3, first=3)
    off = topic.record.settings.change(archive="off", retention_seconds=1)
    topic.tiered().drop_outlived(off, None, NOW_US + YEARS_US)
    fill(topic, 3, first=6)
    log = topic.tiered()
    assert log.offsets().gaps == (Gap(0, 6, 12), Gap(1, 3, 6))
    with pytest.raises(OffsetOutOfRange) as refused:
        log.read(0, 7, 10, EVERYTHING)
    assert refused.value.start == 12
    assert log.read(0, 5, 10, EVERYTHING)["value"].to_pylist() == [b"b2"]
    assert log.time_of(0, 7) is None
    topic.archive()
    view = topic.tiered().view
    assert view is not None
    found = [(each.partition, each.first_offset, each.rows) for each in view.manifest.files[1].ranges]
    assert found == [(0, 6, 0), (0, 12, 6), (1, 3, 0), (1, 6, 3)]
    topic.drop_local(NOW_US + 20 * SECOND_US)
    assert topic.tiered().offsets().gaps == (Gap(0, 6, 12), Gap(1, 3, 6))
    assert topic.tiered().read(0, 12, 10, EVERYTHING)["value"].to_pylist()[0] == b"a6"


def test_a_missing_file_is_damage_and_a_new_list_is_used(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    for number in range(4):
        fill(topic, 1, first=number)
        topic.archive()
    topic.drop_local(NOW_US + 10 * SECOND_US)
    stale = topic.tiered()
    merged = topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US)
    assert merged is not None
    topic.archiver().sweep(topic.record, NOW_US + 1)
    assert file_names(tmp_path / "archive") == [merged.path]
    assert stale.read(0, 0, 100, EVERYTHING)["value"].to_pylist()[-3:] == [b"b2", b"a3", b"b3"]
    topic.files.remove(merged.path)
    for attempt, arguments in {"read": (0, 1, 1, 1), "time_of": (0, 1), "first_at": (0, NOW_US + 1)}.items():
        with pytest.raises(Damaged, match="missing from the archive"):
            getattr(topic.tiered(), attempt)(*arguments)


def test_files_that_are_not_what_the_manifest_says_are_damage(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    fill(topic, 3)
    [file] = topic.archive()
    topic.drop_local()
    path = tmp_path / "archive" / file.path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(Damaged, match="not a Parquet file"):
        topic.tiered().read(0, 0, 1, 1)
    for position in range(4, len(whole) // 2):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            topic.tiered().read(0, 0, 1, 1)
        except Damaged:
            break
    else:
        pytest.fail("no damage was noticed")
    path.write_bytes(whole)
    # Another file in its place, with other rows or as many.
    fill(topic, 1, first=3)
    [second] = topic.archive()
    fill(topic, 3, first=4)
    [third] = topic.archive()
    for other, what in ((second, "3 rows, and 9 in the manifest"), (third, "as the manifest says")):
        path.write_bytes((tmp_path / "archive" / other.path).read_bytes())
        with pytest.raises(Damaged, match=what):
            topic.tiered().read(0, 0, 1, 1)


def test_without_an_archive_old_messages_are_unavailable_and_the_log_is_kept(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    fill(topic, 3)
    topic.archive()
    topic.drop_local()
    fill(topic, 2, first=3)
    log = Archives(memory.store.catalog, False, None, 0).tier(topic.record, topic.inner)
    assert log.offsets().by_partition() == {0: (0, 10), 1: (0, 5)}
    with pytest.raises(StoreUnavailable, match=r"set archive\.url"):
        log.read(0, 0, 1, 1)
    assert log.read(0, 6, 1, EVERYTHING)["value"].to_pylist() == [b"a3"]
    assert log.drop_outlived(topic.record.settings.change(retention_seconds=1), None, NOW_US + YEARS_US) == 0
    assert read_all(topic.tiered()).num_rows == 10


def test_what_was_deleted_cannot_be_read_from_the_archive(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 2)
    topic.archive()
    topic.drop_local(NOW_US + 10 * SECOND_US)
    fill(topic, 1, first=2)
    topic.delete_before({0: 3})
    place.reopen()
    log = topic.tiered()
    assert log.offsets().by_partition() == {0: (3, 6), 1: (0, 3)}
    for offset in range(3):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(0, offset, 10, EVERYTHING)
        assert caught.value.start == 3
        assert log.time_of(0, offset) is None
    assert [log.first_at(0, time_us) for time_us in (0, NOW_US, NOW_US + 1)] == [3, 3, 3]
    assert log.time_of(0, 3) == NOW_US + SECOND_US
    assert values_of(topic.rows()) == [b"b1", b"a2", b"b2", b"c0", b"c1", b"c2"]
    settings = topic.record.settings
    assert log.drop_outlived(settings, None, NOW_US) == 0, "the file has messages of partition 1"
    topic.delete_before({0: 5, 1: 2})
    assert topic.tiered().drop_outlived(settings, np.array([0, 0]), NOW_US) >= 1
    assert topic.table() == []
    assert topic.archiver().sweep(topic.record, NOW_US + YEARS_US) == 1
    assert values_of(topic.rows()) == [b"b2", b"c2"]
    assert [file.rows for file in topic.archive()] == [2]
    assert topic.tiered().offsets().by_partition() == {0: (5, 6), 1: (2, 3)}
