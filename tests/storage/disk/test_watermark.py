"""The watermark: its bytes, what opening makes of it, and what the doctor says of it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from headrace.core.errors import Damaged, OffsetOutOfRange, UnknownFormat
from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.watermark import Watermark, gaps_between, merged
from headrace.storage.ranges import Gap
from tests.group_writes import put_offsets, remove_group
from tests.storage.builders import EVERYTHING, values, values_in
from tests.storage.disk.builders import TINY_OPTIONS, DiskTopic
from tests.storage.disk.doctor.damaged_stores import Patient

FILES = FileSystem()
MARK = Watermark(3, 128, 7, [4, 5], [(0, 1, 3)], [(2, 5)], [2, 0])
# A segment that is gone may have held so many rows.
BOUND = TINY_OPTIONS.segment_bytes // 4


def filled(tmp_path: Path, commits: int, partitions: int = 1) -> DiskTopic:
    """A topic in segments of three commits."""
    topic = DiskTopic(tmp_path / "store", partitions=partitions)
    for number in range(commits):
        topic.publish(values(b"%d" % number))
    return topic


class TestBytes:
    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        assert watermark.read(FILES, tmp_path) is None
        watermark.write(FILES, tmp_path, MARK)
        found = watermark.read(FILES, tmp_path)
        assert found == MARK
        assert found.skipped == (Gap(0, 1, 3),)

    def test_every_flipped_bit_is_noticed(self, tmp_path: Path) -> None:
        watermark.write(FILES, tmp_path, MARK)
        path = tmp_path / watermark.NAME
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(Damaged, match="the watermark's checksum is wrong"):
                watermark.read(FILES, tmp_path)
        path.write_bytes(whole[:10])
        with pytest.raises(Damaged, match="the watermark is cut"):
            watermark.read(FILES, tmp_path)

    def test_a_newer_version_is_refused(self, tmp_path: Path) -> None:
        content = struct.pack("<II", 2, 0)
        (tmp_path / watermark.NAME).write_bytes(b"HRwm" + struct.pack("<I", crc32c(content)) + content)
        with pytest.raises(UnknownFormat):
            watermark.read(FILES, tmp_path)


def test_gaps_are_put_together_and_old_ones_forgotten() -> None:
    assert gaps_between(np.array([1, 5, 2]), np.array([4, 5, 3])) == [Gap(0, 1, 4), Gap(2, 2, 3)]
    gaps = [Gap(1, 5, 9), Gap(0, 0, 2), Gap(0, 8, 9), Gap(0, 2, 4), Gap(0, 10, 12), Gap(2, 0, 3)]
    start = np.array([0, 9, 1])
    assert merged(gaps, start) == (Gap(0, 0, 4), Gap(0, 8, 9), Gap(0, 10, 12), Gap(2, 0, 3))


class TestOpening:
    def test_a_committed_offset_raises_the_end_for_good(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 2, partitions=2)
        put_offsets(topic.store.catalog, topic.record.id, "g", {0: 2, 1: 9})
        log = topic.reopen()
        assert log.offsets().end.tolist() == [2, 9]
        # A partition that begins with a gap begins behind it.
        assert log.offsets().start.tolist() == [0, 9]
        assert log.offsets().gaps == (Gap(1, 0, 9),)
        remove_group(topic.store.catalog, topic.record.id, "g")
        topic.kill()
        assert topic.open().offsets().end.tolist() == [2, 9]
        assert topic.publish(values(b"new", partition=1))[0].offset.tolist() == [9]
        log = topic.reopen()
        assert values_in(log, 1) == [b"new"]
        assert log.time_of(1, 4) is None and log.time_of(1, 9) is not None
        with pytest.raises(OffsetOutOfRange, match="it must be 9"):
            log.read(1, 4, 1, EVERYTHING)

    @pytest.mark.parametrize("is_indexed", [True, False])
    @pytest.mark.parametrize("is_removed", [True, False])
    def test_a_missing_newest_segment_is_named(self, tmp_path: Path, is_removed: bool, is_indexed: bool) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        newest = topic.paths()[-1]
        newest.unlink() if is_removed else newest.write_bytes(b"")
        if not is_indexed:
            newest.with_suffix(".index").unlink()
        log = topic.open()
        (damage,) = log.damage
        assert damage.file == str(newest)
        assert ("missing" if is_removed else "emptied") in damage.reason
        assert log.offsets().end.tolist() == [5 + BOUND]
        assert log.state.next_number == 5
        assert not newest.exists() and not newest.with_suffix(".index").exists()
        topic.publish(values(b"new"))
        log = topic.reopen()
        assert log.damage == []
        assert log.offsets().gaps == (Gap(0, 3, 5 + BOUND),)
        assert log.time_of(0, 4) is None
        assert log.read(0, 5 + BOUND, 1, EVERYTHING)["value"].to_pylist() == [b"new"]

    @pytest.mark.parametrize("is_removed", [True, False])
    def test_an_index_knows_without_a_watermark(self, tmp_path: Path, is_removed: bool) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        newest = topic.paths()[-1]
        newest.unlink() if is_removed else newest.write_bytes(b"")
        (topic.directory / watermark.NAME).unlink()
        log = topic.open()
        assert [damage.file for damage in log.damage] == [str(newest)]
        assert log.offsets().end.tolist() == [5 + BOUND]

    def test_without_either_a_segment_was_just_being_begun(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        newest = topic.paths()[-1]
        newest.write_bytes(b"")
        newest.with_suffix(".index").unlink()
        (topic.directory / watermark.NAME).unlink()
        log = topic.open()
        assert log.damage == [] and log.offsets().gaps == ()

    def test_a_damaged_one_is_reported_and_rewritten(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        (topic.directory / watermark.NAME).write_bytes(b"rubbish")
        log = topic.open()
        assert [damage.reason for damage in log.damage] == ["the watermark is cut"]
        assert values_in(topic.reopen()) == [b"%d" % number for number in range(5)]
        assert topic.log.damage == []

    def test_a_catalog_with_fewer_partitions_is_refused(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 2)
        topic.close()
        watermark.write(FILES, topic.directory, Watermark(0, 0, 2, [2, 0, 0]))
        with pytest.raises(Damaged, match="it has 3 partitions, the catalog 1: the catalog is older than the log"):
            topic.open()

    def test_it_knows_of_a_cut_that_no_index_knows_of(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 2)
        topic.close()
        (path,) = topic.paths()
        path.with_suffix(".index").unlink()
        length = path.stat().st_size
        path.write_bytes(path.read_bytes()[: length - 64])
        log = topic.open()
        assert [damage.reason for damage in log.damage] == [f"the file was {length} bytes long and is shorter now"]
        assert log.offsets().gaps == (Gap(0, 1, 2 + BOUND),)


class TestDoctor:
    def test_gaps_are_reported_and_are_no_damage(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 2)
        put_offsets(topic.store.catalog, topic.record.id, "g", {0: 6})
        topic.reopen()
        topic.publish(values(b"new"))
        for number in range(4):
            topic.publish(values(b"more-%d" % number))
        remove_group(topic.store.catalog, topic.record.id, "g")
        topic.close()
        (tmp_path / "store").rename(tmp_path / "was")
        patient = Patient(tmp_path, commits=1)
        shutil.rmtree(patient.directory)
        (tmp_path / "was").rename(patient.directory)
        assert patient.found() == [(watermark.NAME, 0, "gap", "none")]
        assert patient.told() == "offsets 2 to 5 of partition 0 were lost, and are skipped"

    @pytest.mark.parametrize("is_removed", [True, False])
    def test_a_newest_segment_that_is_missing(self, tmp_path: Path, is_removed: bool) -> None:
        patient = Patient(tmp_path, commits=5)
        patient.file(3).unlink() if is_removed else patient.file(3).write_bytes(b"")
        report = patient.examine()
        assert report.is_damaged
        told = patient.told()
        assert "partition 0 ends at 3, and ended at 5 before" in told
        assert ("the newest segment is missing" if is_removed else "the segment's header is wrong") in told

    def test_an_emptied_segment_that_only_its_index_knows(self, tmp_path: Path) -> None:
        patient = Patient(tmp_path, commits=5)
        patient.file(3).write_bytes(b"")
        (patient.topic / watermark.NAME).unlink()
        assert "the segment's header is wrong" in patient.told()

    def test_missing_commits_that_were_noted_are_no_damage(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        topic.paths()[-1].unlink()
        topic.open()
        topic.publish(values(b"new"))
        topic.close()
        patient = Patient(tmp_path / "other", commits=1)
        shutil.rmtree(patient.directory)
        shutil.copytree(topic.root, patient.directory)
        assert [kind for _, _, kind, _ in patient.found()] == ["gap"]

    def test_a_damaged_one_is_removed_by_a_repair(self, tmp_path: Path) -> None:
        patient = Patient(tmp_path, commits=2)
        (patient.topic / watermark.NAME).write_bytes(b"rubbish")
        assert patient.found() == [(watermark.NAME, 0, "damage", "possible")]
        patient.examine(repair=True)
        assert patient.found() == []
