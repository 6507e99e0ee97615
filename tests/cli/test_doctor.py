"""`headrace doctor`: what it prints and how it ends; what it finds is tested with the storage."""

from __future__ import annotations

from pathlib import Path

from tests.cli.processes import Server, headrace
from tests.storage.disk.doctor.damaged_stores import Patient


def test_a_healthy_store(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    told = headrace("doctor", str(patient.directory))
    assert told.lines() == [
        f"{patient.directory}: 1 topic, 2 segments, 4 frames, 8 messages, 2.1 KiB",
        "no damage",
    ]
    report = headrace("doctor", str(patient.directory), "--json").json()
    assert report["damaged"] is False and report["report"]["messages"] == 8


def test_damage(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    position, _ = patient.frames(0)[1]
    patient.flip(patient.file(0), position + 70)
    told = headrace("doctor", str(patient.directory))
    assert told.code == 1 and told.err == ""
    row = next(line for line in told.out.splitlines() if "no intact frame" in line)
    assert "topics/000000001/00000000000000000000.log" in row and f"{position:,}" in row
    # It cannot be repaired, so it stays damage.
    assert headrace("doctor", str(patient.directory), "--repair").code == 1


def test_repair(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    patient.flip(patient.file(0, "index"), 60)
    assert headrace("doctor", str(patient.directory)).code == 1
    repaired = headrace("doctor", str(patient.directory), "--repair")
    assert repaired.code == 0 and "damaged in 1 place, 1 of them repaired" in repaired.out
    assert headrace("doctor", str(patient.directory)).lines()[-1] == "no damage"


def test_a_store_that_cannot_be_checked(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        assert "stop the server first" in headrace("doctor", str(tmp_path / "store")).refused(2)
        assert server.stop() == 0
    assert "it is not a store" in headrace("doctor", str(tmp_path)).refused(2)


def test_a_running_server_checks_its_own_store(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    position, _ = patient.frames(0)[1]
    with Server(patient.directory) as server:
        told = server.run("doctor")
        assert told.lines()[-1] == "no damage" and "the store of the server: 1 topic, " in told.out
        assert server.run("doctor", "--json").json()["damaged"] is False
        patient.flip(patient.file(0), position + 70)
        told = server.run("doctor")
        assert told.code == 1 and "damaged in " in told.out
        assert "need the directory" in server.run("doctor", "--repair").refused(2)
    with Server("memory:") as server:
        assert "not on a disk of this server" in server.run("doctor").refused(1)
