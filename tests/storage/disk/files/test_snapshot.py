"""Snapshots: what planning knew comes back, and one that is damaged is passed over."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from crc32c import crc32c

from headrace.core.errors import UnknownFormat
from headrace.core.publish import sources
from headrace.core.publish.state import CommitKey, TopicState
from headrace.core.publish.writers import one_time_writer
from headrace.storage.disk.files import snapshot
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import file_name
from tests.storage.builders import NOW_US, batch_of, commit_of
from tests.storage.contract import settings_of
from tests.storage.disk.builders import BROKEN, FailingFiles, flip

FILES = FileSystem()
PAYLOAD = settings_of(deduplication="payload")


def state_after(commits: int) -> TopicState:
    state = TopicState(np.zeros(3, np.int64))
    for number in range(commits):
        rows: list[dict[str, Any]] = [
            {"value": b"%d" % number},
            {"value": b"x%d" % number, "producer_id": f"ä{number}", "seqno": number},
        ]
        writer = f"writer {number % 2}" if number % 3 else one_time_writer("w", f"{number:032d}")
        key = CommitKey(writer, number)
        (commit,), _ = commit_of([batch_of(rows)], state, NOW_US + number, PAYLOAD, (key,))
        state.apply(commit)
    return state


def known(state: TopicState) -> list[object]:
    """All that a snapshot keeps; the end offsets come from the log."""
    return [
        state.next_number,
        state.last_time_us,
        state.round_robin,
        list(state.writers.items()),
        list(state.one_time_writers.items()),
        state.sources.snapshot().to_pylist(),
        state.window.snapshot().to_pylist(),
    ]


def restored(directory: Path) -> tuple[TopicState, list[str]]:
    return snapshot.restore_newest(FILES, directory, TopicState(np.zeros(3, np.int64)))


@pytest.mark.parametrize("commits", [0, 1, 20])
def test_a_state_comes_back_as_it_was(tmp_path: Path, commits: int) -> None:
    state = state_after(commits)
    snapshot.write(FILES, tmp_path, state)
    found, damaged = restored(tmp_path)
    assert (known(found), damaged) == (known(state), [])
    # The order of writers is that of their last use, by which they are forgotten.
    assert list(found.writers) == list(state.writers)


def test_a_snapshot_of_the_first_version_has_no_digests(tmp_path: Path) -> None:
    state = state_after(3)
    digests = state.sources.digests([("ä1", "")])
    table = state.sources.snapshot().drop_columns(["digest"])
    parts = [
        msgspec.msgpack.encode([state.next_number, state.last_time_us, state.round_robin, list(state.writers.items())]),
        bytes(table.serialize()),
        bytes(state.window.snapshot().serialize()),
    ]
    checked = struct.pack("<IIQQ", 1, *map(len, parts)) + b"".join(parts)
    path = tmp_path / file_name(3, "state")
    path.write_bytes(b"HRst" + struct.pack("<I", crc32c(checked)) + checked)
    found, damaged = restored(tmp_path)
    assert damaged == []
    assert found.sources.snapshot().drop_columns(["digest"]).equals(table)
    assert found.sources.digests([("ä1", "")]).tolist() == [sources.NO_DIGEST] != digests.tolist()


def test_without_a_snapshot_nothing_is_known(tmp_path: Path) -> None:
    found, damaged = restored(tmp_path)
    assert (known(found), damaged) == (known(TopicState(np.zeros(3, np.int64))), [])


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.state").touch()
    for commits in (1, 2, 5, 3):
        snapshot.write(FILES, tmp_path, state_after(commits))
    assert snapshot.names(FILES, tmp_path) == [file_name(3, "state"), file_name(5, "state")]
    assert restored(tmp_path)[0].next_number == 5
    assert (tmp_path / "notes.state").exists()


@pytest.mark.parametrize("place", [0, 4, 8, 12, 16, 24, 40, -1])
def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path, place: int) -> None:
    for commits in (3, 5):
        snapshot.write(FILES, tmp_path, state_after(commits))
    newest = tmp_path / file_name(5, "state")
    flip(newest, place % newest.stat().st_size)
    found, damaged = restored(tmp_path)
    assert known(found) == known(state_after(3))
    assert damaged == [newest.name]


@pytest.mark.parametrize("length", [0, 31, 32, 100])
def test_one_that_is_cut_short_is_passed_over(tmp_path: Path, length: int) -> None:
    snapshot.write(FILES, tmp_path, state_after(5))
    path = tmp_path / file_name(5, "state")
    path.write_bytes(path.read_bytes()[:length])
    found, damaged = restored(tmp_path)
    assert (found.next_number, damaged) == (0, [path.name])


def test_one_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    snapshot.write(FILES, tmp_path, state_after(5))
    path = tmp_path / file_name(5, "state")
    data = bytearray(path.read_bytes())
    assert struct.unpack_from("<4sII", data)[::2] == (b"HRst", 2)
    struct.pack_into("<I", data, 8, 3)
    struct.pack_into("<I", data, 4, crc32c(bytes(data[8:])))
    path.write_bytes(data)
    with pytest.raises(UnknownFormat) as caught:
        restored(tmp_path)
    assert (caught.value.file, caught.value.version) == (str(path), 3)


def test_it_is_on_the_device_before_older_ones_go(tmp_path: Path) -> None:
    files = FailingFiles()
    for commits in (1, 2, 3):
        snapshot.write(files, tmp_path, state_after(commits))
    calls = [call for call in files.calls if call in ("sync", "replace", "sync_directory", "remove")]
    assert calls == ["sync", "replace", "sync_directory"] * 3 + ["remove"]
    files.fail("sync", BROKEN)
    with pytest.raises(OSError, match="sync"):
        snapshot.write(files, tmp_path, state_after(4))
    assert snapshot.names(FILES, tmp_path) == [file_name(2, "state"), file_name(3, "state")]
