"""The doctor on whole stores: what it finds, and what it leaves alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.core.errors import StoreUnavailable, UnknownFormat
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.storage.builders import NOW_US, DiskPlace, Topic, values
from tests.storage.disk.doctor.damaged_stores import Patient


def test_a_healthy_store(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=8)
    before = patient.content()
    report = patient.examine(repair=True)
    assert not report.findings and not report.is_damaged
    assert (report.topics, report.segments, report.frames, report.messages) == (1, 3, 8, 16)
    assert report.bytes == sum(len(content) for name, content in before.items() if name.endswith(".log"))
    assert patient.content() == before


def test_a_store_whose_process_was_killed_is_healthy(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=8, killed=True)
    assert patient.found() == []


def test_an_empty_store(tmp_path: Path) -> None:
    DiskStore(tmp_path / "store", DiskOptions()).close()
    assert examine(tmp_path / "store").findings == []


def test_only_a_store_that_nobody_has_open(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", DiskOptions())
    with pytest.raises(StoreUnavailable, match="stop the server first"):
        examine(tmp_path / "store")
    store.close()
    examine(tmp_path / "store")
    # The lock was given back.
    DiskStore(tmp_path / "store", DiskOptions()).close()


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_only_a_store(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreUnavailable, match="it is not a store"):
        examine(tmp_path / name)
    assert not (tmp_path / name / "LOCK").exists()


def test_a_missing_catalog(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    (patient.directory / "catalog.sqlite").unlink()
    report = patient.examine()
    assert [finding.what for finding in report.findings] == ["the catalog is missing"]
    # Its logs are checked all the same.
    assert report.messages == 2


def test_logs_of_another_catalog(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    shutil.copytree(patient.topic, patient.topic.with_name("000000007"))
    # Frames are tied to their topic: in a directory of another one they are none.
    assert patient.found() == [("000000007", 0, "leftover", "none")]
    patient.sql("DELETE FROM all_topics", "DELETE FROM sqlite_sequence")
    shutil.rmtree(patient.topic.with_name("000000007"))
    assert patient.found() == [("000000001", 0, "damage", "none")]
    assert "restore the right one" in patient.told()


def test_logs_of_a_deleted_topic(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql("DELETE FROM all_topics")
    assert patient.found(repair=True) == [("000000001", 0, "leftover", "none")]
    assert patient.topic.exists()


def test_what_people_put_into_a_store(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    (patient.directory / "topics" / "README").write_text("mine")
    (patient.directory / "stages").mkdir(exist_ok=True)
    (patient.directory / "stages" / "README").write_text("mine")
    assert patient.found(repair=True) == []


def test_a_topic_without_its_directory(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    shutil.rmtree(patient.topic)
    assert patient.found() == [("000000001", 0, "damage", "none")]


def test_stages(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path / "store")
    topic = Topic(place)
    place.store.stages.write(topic.record.id, "whole", values(b"a"), NOW_US)
    place.store.stages.write(topic.record.id, "torn", values(b"b"), NOW_US)
    place.store.stages.write(7, "lost", values(b"c"), NOW_US)
    place.close()
    torn = sorted((tmp_path / "store" / "stages").glob("1-*"))[0]
    torn.write_bytes(torn.read_bytes()[:-1])
    found = {Path(finding.file).name: finding for finding in examine(tmp_path / "store").findings}
    assert {name[:2]: finding.kind for name, finding in found.items()} == {"1-": "leftover", "7-": "leftover"}
    assert "not whole" in found[torn.name].what


def test_a_store_of_a_newer_headrace(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql("UPDATE headrace_catalog SET version = 99")
    with pytest.raises(UnknownFormat):
        patient.examine()


def test_the_catalog_is_not_changed_by_looking_at_it(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1, killed=True)
    before = patient.content()
    assert "catalog.sqlite-wal" in before
    patient.examine()
    after = patient.content()
    assert after["catalog.sqlite"] == before["catalog.sqlite"]
    assert after["catalog.sqlite-wal"] == before["catalog.sqlite-wal"]


def test_committed_offsets_past_the_end(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2)
    group = "INSERT INTO all_groups VALUES (1, 'billing', NULL, 0, '\"earliest\"', 0, 0)"
    rows = "(1, 'billing', 0, 2, NULL, NULL, NULL), (1, 'billing', 1, 3, NULL, NULL, NULL)"
    patient.sql(group, f"INSERT INTO all_consumers VALUES {rows}")
    assert patient.told() == (
        "topicid 1, groupname 'billing', partition 1: offset 3, but the partition ends at 2; "
        "the next opening raises the end, so that the group skips nothing"
    )
    # Where messages are missing the end is not known.
    patient.flip(patient.file(0), patient.frames(0)[1][0] + 100)
    assert "but the partition ends" not in patient.told()


def test_messages_deleted_past_the_end(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2)
    patient.sql("UPDATE all_topics SET deleted_before = '[2, 3]'")
    assert patient.told() == (
        "topicid 1, partition 1: messages below offset 3 were deleted, but the partition ends at 2; "
        "the next opening raises the end"
    )
