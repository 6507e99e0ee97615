"""Room: zeros ahead of small commits, which nobody ever takes for messages, damage or a torn tail."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.errors import DiskFull, OutcomeUnknown
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import load_index
from headrace.storage.disk.options import DiskOptions
from tests.storage.builders import values, values_in
from tests.storage.disk.builders import BROKEN, NO_SPACE, DiskTopic, FailingFiles, frame_positions

ROOM_BYTES = 16 << 10
OPTIONS = DiskOptions(segment_bytes=64 << 10, room_bytes=ROOM_BYTES)


def small(number: int) -> pa.RecordBatch:
    return values(b"%d" % number)


def filled(
    directory: Path, options: DiskOptions = OPTIONS, files: FileSystem | None = None, count: int = 8
) -> DiskTopic:
    """A topic with so many small commits."""
    topic = DiskTopic(directory, options=options, files=files)
    for number in range(count):
        topic.publish(small(number))
    return topic


def room_of(topic: DiskTopic) -> int:
    """The bytes behind the last frame of the newest segment, all of them zero."""
    data = topic.paths()[-1].read_bytes()
    used = topic.log.bytes_stored() - sum(path.stat().st_size for path in topic.paths()[:-1])
    assert not any(data[used:])
    return len(data) - used


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_small_commits_get_room_that_is_no_part_of_what_is_stored(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store")
    room = room_of(topic)
    assert 0 < room < ROOM_BYTES
    size = topic.paths()[0].stat().st_size
    topic.publish(small(8))
    assert topic.paths()[0].stat().st_size == size, "it was written into the room"
    assert room_of(topic) < room
    assert values_in(topic.log) == numbers(9)
    topic.close()


def test_a_segment_gets_none_before_it_has_begun(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store", count=1)
    assert room_of(topic) == 0
    topic.close()


@pytest.mark.parametrize(
    "options",
    [DiskOptions(room_bytes=0), DiskOptions(room_bytes=ROOM_BYTES, durability="os"), DiskOptions()],
    ids=["not-wanted", "not-synced", "far-too-short"],
)
def test_there_is_none_where_it_is_not_worth_it(tmp_path: Path, options: DiskOptions) -> None:
    topic = filled(tmp_path / "store", options)
    assert room_of(topic) == 0
    topic.close()


def test_a_large_commit_gets_none(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store", count=1)
    topic.publish(values(bytes(2 * ROOM_BYTES)))
    assert room_of(topic) == 0
    topic.close()


def test_room_ends_with_the_segment_and_a_complete_one_has_none(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", options=OPTIONS)
    number = 0
    while len(topic.paths()) < 2:
        assert topic.paths()[0].stat().st_size <= OPTIONS.segment_bytes + 512
        topic.publish(small(number))
        number += 1
    complete = load_index(topic.files, topic.paths("index")[0])
    assert complete is not None
    assert complete.covered_bytes == topic.paths()[0].stat().st_size
    assert values_in(topic.log) == numbers(number)
    topic.close()


def test_a_clean_close_gives_it_back(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store")
    stored = topic.log.bytes_stored()
    topic.close()
    assert topic.paths()[0].stat().st_size == stored
    assert values_in(topic.open()) == numbers(8)
    topic.close()


def test_a_close_that_cannot_cut_it_loses_nothing(tmp_path: Path) -> None:
    files = FailingFiles()
    topic = filled(tmp_path / "store", files=files)
    files.fail("truncate", BROKEN)
    topic.close()
    assert values_in(topic.open()) == numbers(8)
    assert topic.log.damage == []
    topic.close()


def test_a_killed_process_leaves_it_behind_and_it_is_neither_damage_nor_a_torn_tail(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store")
    assert room_of(topic) > 0
    topic.kill()
    assert examine(topic.root).findings == []
    assert values_in(topic.open()) == numbers(8)
    assert topic.log.damage == []
    assert room_of(topic) == 0
    topic.publish(small(8))
    assert values_in(topic.reopen()) == numbers(9)
    topic.close()


def test_a_frame_that_is_torn_in_the_room_is_cut_at_every_byte(tmp_path: Path) -> None:
    topic = filled(tmp_path / "store")
    path = topic.paths()[0]
    data, last = path.read_bytes(), frame_positions(path)[-1]
    end = topic.log.bytes_stored()
    topic.kill()
    root = topic.root
    content = len(data[:end].rstrip(b"\0"))
    for cut in range(last, content):
        topic.root = root.with_name(f"torn-{cut}")
        root.rename(topic.root)
        topic.paths()[0].write_bytes(data[:cut].ljust(len(data), b"\0"))
        for index in topic.paths("index"):
            index.unlink()
        assert values_in(topic.open()) == numbers(7)
        assert topic.log.damage == []
        topic.close()
        root = topic.root


def test_what_is_written_after_a_file_was_mapped_is_read_from_a_newer_map(tmp_path: Path) -> None:
    class Copies(FileSystem):
        """A system whose maps do not show what is written after them."""

        def map(self, path: Path) -> memoryview:
            return memoryview(bytes(super().map(path)))

    topic = filled(tmp_path / "store", files=Copies(), count=20)
    assert room_of(topic) > 0
    assert values_in(topic.log) == numbers(20)
    for number in range(20, 40):
        topic.publish(small(number))
    assert values_in(topic.log) == numbers(40)
    topic.close()


@pytest.mark.parametrize("second", [None, BROKEN])
def test_no_commit_fails_for_want_of_room(tmp_path: Path, second: int | None) -> None:
    files = FailingFiles()
    topic = filled(tmp_path / "store", files=files, count=2)
    # The frame is written, the room is not, and perhaps cannot even be cut.
    files.fail("write", None, NO_SPACE)
    files.fail("truncate", second)
    files.calls.clear()
    topic.publish(small(2))
    assert files.calls == ["write", "write", "truncate", "sync"]
    files.calls.clear()
    topic.publish(small(3))
    assert files.calls == ["write", "sync"], "it is not tried again at once"
    assert values_in(topic.log) == numbers(4)
    assert values_in(topic.reopen()) == numbers(4)
    topic.close()


def test_a_commit_that_fails_costs_the_room_and_the_next_makes_it_again(tmp_path: Path) -> None:
    files = FailingFiles()
    topic = filled(tmp_path / "store", files=files)
    files.fail("write", NO_SPACE)
    with pytest.raises(DiskFull):
        topic.publish(small(8))
    assert room_of(topic) == 0
    topic.publish(small(8))
    assert room_of(topic) > 0
    assert values_in(topic.reopen()) == numbers(9)
    topic.close()


@pytest.mark.parametrize("call", ["truncate", "sync"])
def test_a_segment_that_cannot_be_cut_is_not_left_behind(tmp_path: Path, call: str) -> None:
    files = FailingFiles()
    options = DiskOptions(segment_bytes=64 << 10, segment_frames=8, room_bytes=ROOM_BYTES)
    topic = filled(tmp_path / "store", options, files)
    assert room_of(topic) > 0
    files.fail(call, BROKEN)
    with pytest.raises(OutcomeUnknown):
        topic.publish(small(8))
    assert len(topic.paths()) == 1
    topic.close()
    assert values_in(topic.open()) == numbers(8)
    assert topic.log.damage == []
    topic.close()
