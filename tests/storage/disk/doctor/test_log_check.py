"""The doctor on one topic's files: flipped bytes, cut files, missing files, and frames that do not fit."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.segment import file_name
from tests.storage.disk.doctor.damaged_stores import START, Patient

LOG, INDEX, STATE = (file_name(0, ending) for ending in ("log", "index", "state"))


def test_a_flipped_byte_in_a_frame(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=3)
    (_, _), (second, _), (third, _) = patient.frames(0)
    patient.flip(patient.file(0), second + 100)
    before = patient.content()
    assert patient.found() == [
        (LOG, second, "damage", "none"),
        (LOG, third, "damage", "none"),
        (LOG, third, "damage", "none"),
        (LOG, third, "damage", "none"),
    ]
    assert patient.told().splitlines() == [
        f"no intact frame up to byte {third}",
        "commits 1 to 1 are missing before it",
        "offsets 1 to 1 of partition 0 are missing before it",
        "offsets 1 to 1 of partition 1 are missing before it",
    ]
    # Nothing of this can be repaired, and nothing may be lost by trying: the index knows more than the frames.
    assert patient.examine(repair=True).is_damaged
    assert patient.content() == before


def test_a_flipped_byte_in_the_last_frame_of_a_complete_segment(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    position, length = patient.frames(0)[2]
    patient.flip(patient.file(0), position + length - 65)
    told = patient.told().splitlines()
    assert told[0] == f"no intact frame up to byte {position + length}"
    assert "commits 2 to 2 are missing before it" in told
    assert "offsets 2 to 2 of partition 1 are missing before it" in told


def test_a_cut_file_whose_index_remembers(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=3)
    position, _ = patient.frames(0)[2]
    with patient.file(0).open("r+b") as file:
        file.truncate(position)
    assert patient.found(repair=True) == [
        (LOG, position, "damage", "none"),
        (patient.topic.name, 0, "damage", "none"),
        (patient.topic.name, 0, "damage", "none"),
        ("00000000000000000003.state", 0, "damage", "none"),
    ]
    assert "is shorter now" in patient.told()
    assert "partition 1 ends at 2, and ended at 3 before" in patient.told()
    assert "the log ends with 1" in patient.told()


def test_a_cut_complete_segment(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    position, _ = patient.frames(0)[2]
    patient.file(0, "index").unlink()
    with patient.file(0).open("r+b") as file:
        file.truncate(position)
    assert "offsets 2 to 2 of partition 0 are missing before it" in patient.told()


def test_a_torn_tail(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2, killed=True)
    end = sum(patient.frames(0)[-1])
    with patient.file(0).open("ab") as file:
        file.write(b"HRfr and no more")
    before = patient.content()
    assert patient.found() == [(LOG, end, "leftover", "possible")]
    assert patient.content() == before
    report = patient.examine(repair=True)
    assert [finding.repair for finding in report.findings] == ["done"] and not report.is_damaged
    assert patient.file(0).stat().st_size == end
    assert patient.found() == []
    assert patient.values() == [[b"0", b"1"], [b"0", b"1"]]


def test_a_torn_tail_behind_damage_is_left_alone(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2, killed=True)
    patient.flip(patient.file(0), patient.frames(0)[0][0] + 100)
    with patient.file(0).open("ab") as file:
        file.write(b"HRfr and no more")
    before = patient.content()
    assert patient.found(repair=True)[-1][2:] == ("leftover", "none")
    assert patient.content() == before


def test_a_missing_index(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    right = patient.file(0, "index").read_bytes()
    patient.file(0, "index").unlink()
    # The newest segment needs none.
    patient.file(3, "index").unlink()
    assert patient.found() == [(INDEX, 0, "leftover", "possible")]
    assert not patient.file(0, "index").exists()
    assert patient.found(repair=True) == [(INDEX, 0, "leftover", "done")]
    assert patient.file(0, "index").read_bytes() == right
    assert patient.found() == []


def test_a_damaged_index(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    right = patient.file(0, "index").read_bytes()
    for number in (0, 3):
        patient.flip(patient.file(number, "index"), 60)
    newest = file_name(3, "index")
    assert patient.found() == [(INDEX, 0, "damage", "possible"), (newest, 0, "damage", "possible")]
    assert patient.examine().is_damaged
    assert patient.found(repair=True) == [(INDEX, 0, "damage", "done"), (newest, 0, "damage", "done")]
    assert patient.file(0, "index").read_bytes() == right
    assert not patient.file(3, "index").exists()
    assert patient.found() == []


def test_the_index_of_another_segment(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=7)
    right = patient.file(3, "index").read_bytes()
    shutil.copy(patient.file(0, "index"), patient.file(3, "index"))
    found = patient.found(repair=True)
    assert (file_name(3, "index"), 0, "damage", "done") in found
    assert patient.file(3, "index").read_bytes() == right


def test_an_index_of_a_shorter_newest_segment_is_right(tmp_path: Path) -> None:
    """As a crash leaves it after a clean close and an opening."""
    patient = Patient(tmp_path / "one", commits=2)
    short = Patient(tmp_path / "two", commits=1)
    shutil.copy(short.file(0, "index"), patient.file(0, "index"))
    assert patient.found() == []
    complete = Patient(tmp_path / "three", commits=4)
    shutil.copy(short.file(0, "index"), complete.file(0, "index"))
    assert complete.found() == [(INDEX, 0, "damage", "possible")]
    assert Patient(tmp_path / "four", commits=2).found() == []


def test_the_wrong_index_of_the_newest_segment(tmp_path: Path) -> None:
    patient = Patient(tmp_path / "one", commits=3)
    other = Patient(tmp_path / "two", commits=6)
    shutil.copy(other.file(3, "index"), patient.file(0, "index"))
    assert patient.found() == [(INDEX, 0, "damage", "possible")]
    assert patient.found(repair=True) == [(INDEX, 0, "damage", "done")]
    assert not patient.file(0, "index").exists()


def test_strays(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    lone = file_name(99, "index")
    for name in (lone, f"{STATE}.tmp", "notes.txt"):
        (patient.topic / name).write_bytes(b"x")
    assert patient.found() == [(f"{STATE}.tmp", 0, "leftover", "possible"), (lone, 0, "leftover", "possible")]
    assert [repair for *_, repair in patient.found(repair=True)] == ["done", "done"]
    assert patient.found() == []
    assert (patient.topic / "notes.txt").exists()


def test_snapshots(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    snapshot = patient.file(1, "state")
    shutil.copy(snapshot, patient.file(0, "state"))
    assert patient.found() == [(STATE, 0, "damage", "possible")]
    assert "it is the snapshot of commit 1" in patient.told()
    patient.flip(snapshot, 50)
    assert [repair for *_, repair in patient.found(repair=True)] == ["done", "done"]
    assert patient.found() == []


def test_what_sources_wrote_is_forgotten(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    for path in patient.topic.glob("*.state"):
        path.unlink()
    assert patient.found() == []
    patient.file(0).unlink()
    patient.file(0, "index").unlink()
    assert patient.told() == "no intact snapshot: what sources wrote in commits 0 to 2 is forgotten"


def test_a_damaged_header(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    patient.flip(patient.file(0), 20)
    assert patient.found() == [(LOG, 0, "damage", "none")]
    assert patient.examine().messages == 8


def test_a_damaged_first_header_of_a_topic_whose_beginning_was_dropped(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    for ending in ("log", "index"):
        patient.file(0, ending).unlink()
    patient.flip(patient.file(3), 20)
    assert patient.found() == [(file_name(3, "log"), 0, "damage", "none")]


def test_a_segment_that_was_just_begun(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2)
    patient.file(2).write_bytes(b"HRsg")
    assert patient.found() == [(file_name(2, "log"), 0, "leftover", "possible")]
    assert patient.found(repair=True) == [(file_name(2, "log"), 0, "leftover", "done")]
    assert not patient.file(2).exists()


def test_a_newest_segment_without_a_header_that_had_messages(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4, killed=True)
    patient.flip(patient.file(3), 20)
    assert (file_name(3, "log"), 0, "damage", "none") in patient.found(repair=True)
    patient.file(3).write_bytes(bytes(START))
    # The watermark says that this segment was begun; without it, it may have been just being begun.
    assert patient.found() == [(file_name(3, "log"), 0, "damage", "none")]
    (patient.topic / watermark.NAME).unlink()
    assert patient.found() == [(file_name(3, "log"), 0, "leftover", "possible")]
    patient.file(3).write_bytes(bytes(START + 64))
    assert (file_name(3, "log"), 0, "damage", "none") in patient.found(repair=True)


def test_a_segment_under_the_name_of_another(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=4)
    for ending in ("log", "index"):
        shutil.copy(patient.file(0, ending), patient.file(2, ending))
    told = patient.told().splitlines()
    assert told[0] == "its header is that of the segment from commit 0 on"
    assert "commit 0 exists twice" in told
    assert "offsets 0 to 2 of partition 0 exist twice" in told


def test_more_partitions_than_the_catalog_knows(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql("UPDATE all_topics SET partitions = 1")
    assert patient.told() == "it has 2 partitions, the catalog has 1"


def test_partitions_that_were_added_later(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1)
    patient.sql("UPDATE all_topics SET partitions = 5")
    assert patient.found() == []


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (48, "rows in the directory|in the directory"),  # rows in the header
        (64 + 4, "in the directory"),  # rows of a directory entry
        (64 + 16, "its partitions do not ascend"),  # the second partition
        (128 + 8, ""),  # the record batch
    ],
)
def test_a_frame_with_a_right_checksum_and_wrong_content(tmp_path: Path, at: int, told: str) -> None:
    patient = Patient(tmp_path, commits=2, killed=True)

    def edit(frame: bytearray) -> None:
        frame[at : at + 4] = struct.pack("<I", 0 if at == 80 else 77)

    patient.forge(0, 0, edit)
    first = patient.examine().findings[0]
    assert first.what.startswith("the checksum is right and the content is not")
    assert first.position == START


def test_a_frame_with_an_offset_that_was_given_before(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=2, killed=True)

    def edit(frame: bytearray) -> None:
        frame[64 + 8 : 64 + 16] = struct.pack("<q", 0)

    patient.forge(0, 1, edit)
    assert patient.told() == "offsets 0 to 0 of partition 0 exist twice"


def test_a_frame_of_a_partition_that_the_header_does_not_have(tmp_path: Path) -> None:
    patient = Patient(tmp_path, commits=1, killed=True)

    def edit(frame: bytearray) -> None:
        frame[64 + 16 : 64 + 20] = struct.pack("<I", 4)

    patient.forge(0, 0, edit)
    assert patient.found() == []
