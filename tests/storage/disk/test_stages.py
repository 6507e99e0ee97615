"""Stages on disk: what another process, a crash or a full disk leaves of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from headrace.core.errors import DiskFull, InvalidInput, StoreUnavailable
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.stages import DiskStage, DiskStages
from tests.storage.builders import NOW_US, values
from tests.storage.disk.builders import BROKEN, NO_SPACE, FailingFiles, flip, frame_positions


def staged(directory: Path, *given: bytes, files: FileSystem | None = None) -> DiskStages:
    """A stage `s` of topic 1 with a piece for each value."""
    stages = DiskStages(files or FileSystem(), directory)
    for number, value in enumerate(given):
        stages.write(1, "s", values(value), NOW_US + number)
    return stages


def found(stages: DiskStages, stage: str = "s") -> list[bytes] | None:
    pieces = stages.read(1, stage)
    if pieces is None:
        return None
    values = [value for piece in pieces for value in piece.rows["value"].to_pylist()]
    pieces.release()
    return values


def test_one_that_a_process_left_is_found_with_its_age(tmp_path: Path) -> None:
    staged(tmp_path, b"a", b"b")
    stages = staged(tmp_path)
    assert (found(stages), stages.topics()) == ([b"a", b"b"], {1})
    assert stages.expire(NOW_US) == 0
    assert stages.expire(NOW_US + 1) == 1
    assert (list(tmp_path.iterdir()), stages.topics()) == ([], set())


def test_a_torn_piece_is_cut_and_overwritten(tmp_path: Path) -> None:
    staged(tmp_path, b"a", b"b" * 500)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-64])
    stages = staged(tmp_path)
    assert found(stages) == [b"a"]
    assert stages.write(1, "s", values(b"c"), NOW_US) == 2
    assert found(stages) == found(staged(tmp_path)) == [b"a", b"c"]


@pytest.mark.parametrize("left", ["nothing", "rubbish", "a hole"])
def test_one_that_cannot_be_whole_is_removed(tmp_path: Path, left: str) -> None:
    staged(tmp_path, b"a", b"b")
    (path,) = tmp_path.iterdir()
    if left == "a hole":
        flip(path, 70)
    else:
        path.write_bytes(b"" if left == "nothing" else b"rubbish" * 100)
    stages = staged(tmp_path)
    assert found(stages) is None
    assert list(tmp_path.iterdir()) == []
    assert stages.write(1, "s", values(b"c"), NOW_US) == 1


def test_a_piece_that_was_damaged_since_is_missing(tmp_path: Path) -> None:
    stages = staged(tmp_path, b"a", b"b", b"c")
    (path,) = tmp_path.iterdir()
    flip(path, frame_positions(path)[0] + 70)
    # The frames after the first begin behind the alignment, so this is the second piece.
    assert found(stages) == [b"a", b"c"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in (".DS_Store", "lost+found", "1-abc", "x-" + "0" * 40):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "directory").mkdir()
    stages = staged(tmp_path, b"a")
    assert found(stages) == found(staged(tmp_path)) == [b"a"]
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("call", ["open", "write", "close"])
def test_a_piece_that_cannot_be_written_changes_nothing(tmp_path: Path, call: str) -> None:
    files = FailingFiles()
    stages = staged(tmp_path, b"a", files=files)
    files.fail(call, NO_SPACE)
    with pytest.raises(DiskFull, match=call):
        stages.write(1, "s", values(b"b" * 300), NOW_US)
    assert found(stages) == [b"a"]
    assert stages.write(1, "s", values(b"c"), NOW_US) == 2
    assert found(stages) == found(staged(tmp_path)) == [b"a", b"c"]


def test_a_stage_that_cannot_be_begun_leaves_no_file(tmp_path: Path) -> None:
    files = FailingFiles()
    stages = staged(tmp_path, files=files)
    files.fail("write", NO_SPACE)
    with pytest.raises(DiskFull, match="write"):
        stages.write(1, "s", values(b"a"), NOW_US)
    assert found(stages) is None
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_removed_expires_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FailingFiles()
    stages = staged(tmp_path, b"a", files=files)
    files.fail("remove", BROKEN)
    with caplog.at_level(logging.WARNING):
        assert stages.drop(1, "s")
    (path,) = tmp_path.iterdir()
    assert f"{path}, it stays until it expires" in caplog.text
    assert found(stages) is None
    again = staged(tmp_path)
    assert again.expire(NOW_US) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_piece_that_cannot_be_read_any_more(tmp_path: Path) -> None:
    files = FailingFiles()
    stages = staged(tmp_path, b"a", b"b", files=files)
    stage = stages.read(1, "s")
    assert stage is not None
    files.fail("map", None, BROKEN)
    with pytest.raises(StoreUnavailable, match="map"):
        list(stage)
    files.fail("map", NO_SPACE)
    with pytest.raises(DiskFull, match="map"):
        list(stage)
    (path,) = tmp_path.iterdir()
    path.unlink()
    assert (list(stage), stage.rows) == ([], 2)


def test_a_dropped_stage_has_its_file_and_its_name_until_its_last_reader_is_done(tmp_path: Path) -> None:
    stages = staged(tmp_path, b"a", b"b")
    first, second = stages.read(1, "s"), stages.read(1, "s")
    assert first is not None
    assert second is not None
    assert stages.drop(1, "s")
    first.release()
    with pytest.raises(InvalidInput, match="another name"):
        stages.write(1, "s", values(b"c"), NOW_US)
    assert [piece.rows["value"].to_pylist() for piece in second] == [[b"a"], [b"b"]]
    second.release()
    assert list(tmp_path.iterdir()) == []
    assert stages.write(1, "s", values(b"c"), NOW_US) == 1
    assert found(stages) == [b"c"]


def test_a_stage_that_is_read_while_its_first_piece_fails_is_dropped_once(tmp_path: Path) -> None:
    files = FileSystem()
    stages = DiskStages(files, tmp_path)
    read: list[DiskStage | None] = []

    def fail(handle: int, position: int, parts: Sequence[Any]) -> None:
        # A reader that was there before the first piece: it has the lock of the stage in this thread's place.
        stages._stages[1, "s"].lock.release()
        read.append(stages.read(1, "s"))
        stages._stages[1, "s"].lock.acquire()
        raise OSError(NO_SPACE, "write")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "write", fail)
        with pytest.raises(DiskFull, match="write"):
            stages.write(1, "s", values(b"a"), NOW_US)
    (empty,) = read
    assert empty is not None
    assert (empty.rows, list(empty)) == (0, [])
    empty.release()
    assert (found(stages), list(tmp_path.iterdir())) == (None, [])


class SlowFiles(FileSystem):
    """The first write waits until it is let go on."""

    def __init__(self) -> None:
        self.began, self.gate = Event(), Event()

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        if not self.began.is_set():
            self.began.set()
            assert self.gate.wait(60)
        super().write(handle, position, parts)


def test_stages_are_written_beside_one_another(tmp_path: Path) -> None:
    files = SlowFiles()
    stages = DiskStages(files, tmp_path)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(stages.write, 1, "slow", values(b"a"), NOW_US)
        assert files.began.wait(60)
        assert stages.write(1, "s", values(b"b"), NOW_US) == 1
        files.gate.set()
        assert writing.result() == 1


class DroppedBefore:
    """The lock of a stage; when somebody wants it, another thread drops the stage first."""

    def __init__(self, stages: DiskStages, stage: Any) -> None:
        self._stages, self._stage, self._lock = stages, stage, stage.lock
        stage.lock = self

    def __enter__(self) -> None:
        self._stage.lock = self._lock
        self._stages.drop(1, "s")
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_what_waits_while_a_stage_is_dropped_finds_none(tmp_path: Path) -> None:
    stages = staged(tmp_path, b"a")
    DroppedBefore(stages, stages._stages[1, "s"])
    assert found(stages) is None
    staged_again(stages, b"b")
    DroppedBefore(stages, stages._stages[1, "s"])
    assert not stages.drop(1, "s")
    staged_again(stages, b"c")
    DroppedBefore(stages, stages._stages[1, "s"])
    assert stages.write(1, "s", values(b"d"), NOW_US) == 1
    assert found(stages) == found(staged(tmp_path)) == [b"d"]


def staged_again(stages: DiskStages, value: bytes) -> None:
    assert stages.write(1, "s", values(value), NOW_US) == 1
