"""The check of a store that is open: real damage is found, and nothing that only moves looks like it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.core.reports.store_check import StoreReport
from headrace.storage.disk.doctor import online
from headrace.storage.disk.doctor.catalog_check import CheckedCatalog
from headrace.storage.disk.doctor.online import CopyingFileSystem, RunningDoctor
from headrace.storage.disk.engine import CATALOG
from tests.storage.builders import NOW_US, DiskPlace, Topic, batch_of
from tests.storage.disk.doctor.damaged_stores import OPTIONS, Patient


class Ward:
    """An open store with the topic `Orders`, whose segments hold three commits of one message."""

    def __init__(self, directory: Path, commits: int) -> None:
        self.place = DiskPlace(directory / "store", OPTIONS)
        self.topic = Topic(self.place, partitions=1)
        self.publish(commits)
        self.directory = directory / "store"
        self.log = self.directory / "topics" / f"{self.topic.record.id:09d}"

    def publish(self, commits: int) -> None:
        for number in range(commits):
            self.topic.publish(batch_of([{"value": b"%d" % number}]), now_us=NOW_US)

    def examine(self, files: CopyingFileSystem | None = None) -> StoreReport:
        def partitions() -> dict[int, int]:
            return {topic.id: topic.partitions for topic in self.place.store.catalog.topics()}

        *_, last = RunningDoctor(self.directory / CATALOG, self.directory / "topics", partitions, files).run()
        return last

    def kinds(self, files: CopyingFileSystem | None = None) -> list[tuple[str, str]]:
        return [(Path(each.file).name, each.kind) for each in self.examine(files).findings]


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path, commits=8)
    yield made
    made.place.close()


class Meddling(CopyingFileSystem):
    """Does something before each of the first reads of a file."""

    def __init__(self, ending: str, meddle: Callable[[], None], times: int = 1) -> None:
        self._ending = ending
        self._meddle = meddle
        self._times = times

    def map(self, path: Path) -> memoryview:
        if path.name.endswith(self._ending) and self._times:
            self._times -= 1
            self._meddle()
        return super().map(path)


def test_an_open_store_without_damage(ward: Ward) -> None:
    report = list(ward.place.store.examine() or ())[-1]
    assert report.findings == []
    assert (report.topics, report.segments, report.frames, report.messages) == (1, 3, 8, 8)


def test_an_empty_store(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path / "store", OPTIONS)
    assert [report.findings for report in place.store.examine() or ()] == [[], []]
    place.close()


@pytest.mark.parametrize("commits", [1, 2, 4])
def test_a_store_that_is_written_to_meanwhile_has_no_damage(ward: Ward, commits: int) -> None:
    assert ward.kinds(Meddling(".log", lambda: ward.publish(commits), times=10)) == []
    assert ward.kinds() == []


def test_damage_in_a_complete_segment_is_found_and_left(ward: Ward) -> None:
    path = ward.log / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)
    report = ward.examine()
    assert report.is_damaged and {Path(each.file).name for each in report.findings} == {path.name}
    assert report.segments == 3
    assert path.read_bytes() == bytes(content)


def test_a_gap_is_told_and_is_no_damage(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=8)
    # The newest segment is lost, and the offsets that it had are skipped from the next opening on.
    patient.file(6).unlink()
    patient.values()
    place = DiskPlace(patient.directory, OPTIONS)
    place.opened(place.store.catalog.topics()[0], NOW_US)
    report = list(place.store.examine() or ())[-1]
    place.close()
    assert {each.kind for each in report.findings} == {"gap"}


def test_a_topic_whose_segments_vanish_again_and_again_is_to_be_checked_again(ward: Ward) -> None:
    def vanish() -> None:
        raise FileNotFoundError

    assert ward.kinds(Meddling(".log", vanish, times=100)) == [(ward.log.name, "leftover")]


def test_a_topic_that_is_deleted_meanwhile_is_left_out(ward: Ward) -> None:
    def delete() -> None:
        ward.place.store.catalog.remove_topic(ward.topic.record.id)
        shutil.rmtree(ward.log)

    assert ward.examine(Meddling(".log", delete)) == StoreReport()


def test_rows_of_the_catalog_that_contradict_its_logs(ward: Ward) -> None:
    def sql(statement: str) -> None:
        with closing(sqlite3.connect(ward.directory / CATALOG)) as database:
            database.execute(statement)
            database.commit()

    sql("INSERT INTO all_groups VALUES (1, 'billing', NULL, 0, '\"earliest\"', 1, 0)")
    sql("INSERT INTO all_consumers VALUES (1, 'billing', 0, 9, NULL, NULL, NULL)")
    assert [(Path(each.file).name, "the partition ends at 8" in each.what) for each in ward.examine().findings] == [
        (CATALOG, True)
    ]
    sql("INSERT INTO all_consumers VALUES (1, 'nobody', 0, 1, NULL, NULL, NULL)")
    assert any("there is no such group" in each.what for each in ward.examine().findings)


def test_a_row_that_is_being_added_is_no_damage(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([CheckedCatalog(complaints=["no such group"]), CheckedCatalog()])
    monkeypatch.setattr(online, "check_catalog", lambda *_, **__: next(answers))
    assert ward.kinds() == []
