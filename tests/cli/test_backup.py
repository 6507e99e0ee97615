"""`headrace backup` as users run it: beside a running server, and restored."""

from __future__ import annotations

from pathlib import Path

from tests.cli.processes import Server, headrace
from tests.storage.disk.doctor.damaged_stores import Patient


def test_a_running_server_is_backed_up_and_restored(tmp_path: Path) -> None:
    store, copy = f"file:{tmp_path}/store", tmp_path / "copy"
    with Server(store) as server:
        server.run("topic", "create", "orders", "--partitions", "1")
        server.run("produce", "orders", stdin="one\ntwo\n")
        told = headrace("backup", str(copy), "--store", store)
        assert told.lines()[0].startswith(f"{copy}: 1 topic, 1 segment, ")
        assert told.lines()[0].endswith(", 2 messages")
        server.run("produce", "orders", stdin="three\n")
    assert headrace("doctor", str(copy)).lines()[-1] == "no damage"
    with Server(copy) as restored:
        assert restored.run("consume", "orders").lines() == ["one", "two"]


def test_the_files_of_the_archive_are_in_the_copy_if_asked_for(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    store, archive = f"file:{patient.directory}", str(tmp_path / "archive")
    told = headrace("backup", str(tmp_path / "copy"), "--store", store, "--archive", archive)
    assert told.lines()[1] == "archive: 0 files, 0 B"
    other = headrace("backup", str(tmp_path / "other"), "--store", store, "--archive", "s3://me:secret@bucket").refused(
        2
    )
    assert "without credentials" in other and "secret" not in other


def test_for_programs(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    told = headrace("backup", str(tmp_path / "copy"), "--json", HEADRACE_STORE=f"file:{patient.directory}").json()
    assert told["copied"]["topics"] == 1 and told["damaged"] is False and told["report"]["messages"] == 8
    quick = headrace("backup", str(tmp_path / "other"), "--no-check", "--store", f"file:{patient.directory}")
    assert "messages" not in quick.lines()[0]


def test_damage_is_reported(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    position, _ = patient.frames(0)[1]
    patient.flip(patient.file(0), position + 70)
    told = headrace("backup", str(tmp_path / "copy"), "--store", f"file:{patient.directory}")
    assert told.code == 1 and "damage" in told.out


def test_what_cannot_be_backed_up(tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    refused = headrace("backup", copy, "--store", "postgresql://someone:secret@host/db").refused(2)
    assert "pg_dump" in refused and "secret" not in refused
    assert "it is not a store" in headrace("backup", copy, "--store", f"file:{tmp_path}/nothing").refused(2)
    assert "file:" in headrace("backup", copy, "--store", "memory:").refused(2)
    patient = Patient(tmp_path, commits=1)
    refused = headrace("backup", str(tmp_path), "--store", f"file:{patient.directory}").refused(2)
    assert "it exists" in refused
