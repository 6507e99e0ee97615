"""Files of a table: each batch once, whatever is killed in between. Plain text here: names are the matter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import StoreUnavailable
from headrace.spark.pipeline.sinks import file_commit as module
from headrace.spark.pipeline.sinks.file_commit import CommitManifest, FileCommit

_open: dict[tuple[Path, str], list[FileCommit]] = {}


class Killed(BaseException):
    """As a SIGKILL would: nothing catches it."""


def opened(table: Path, finishes: bool = True, writer: str = "w") -> FileCommit:
    """Open as after a kill, which frees the lock of whoever was there."""
    for before in _open.pop((table, writer), []):
        before.close()
    landing = FileCommit(table, writer)
    _open[table, writer] = [landing]
    landing.open(nothing, lambda manifest: finishes)
    return landing


def nothing(manifest: CommitManifest) -> None:
    pass


def stage_of(landing: FileCommit, **files: str) -> Path:
    stage = landing.new_stage()
    for name, content in files.items():
        file = stage / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return stage


def content(table: Path) -> list[str]:
    files = [file for file in table.rglob("*") if file.is_file() and module.STATE_DIRECTORY not in file.parts]
    return sorted(file.read_text() for file in files)


def test_a_batch_lands_in_named_files(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    assert landing.last == -1
    stage = stage_of(landing, day__part_dot_c000_dot_parquet="a", part_dot_snappy_dot_parquet="b", _SUCCESS="")
    files = landing.land(stage, 3, nothing)
    names = [str(file.relative_to(tmp_path)) for file in files]
    assert names == ["day/part-w-0000000003-00000.parquet", "part-w-0000000003-00001.snappy.parquet"]
    assert content(tmp_path) == ["a", "b"]
    assert landing.last == 3 and opened(tmp_path).last == 3 and not stage.exists()


def test_killed_before_the_manifest_the_stage_is_dropped(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    stage = stage_of(landing, part="a")
    again = opened(tmp_path)
    assert not stage.exists() and again.last == -1 and content(tmp_path) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_killed_while_files_are_moved_the_batch_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    landing = opened(tmp_path)
    stage = stage_of(landing, one="a", two="b")
    kill_at_move(monkeypatch, moved)
    with pytest.raises(Killed):
        landing.land(stage, 0, kill if moved == 2 else nothing)
    monkeypatch.undo()
    assert opened(tmp_path).last == 0
    assert content(tmp_path) == ["a", "b"]
    assert opened(tmp_path).last == 0, "nothing is left to be finished"


@pytest.mark.parametrize("moved", [0, 1])
def test_a_batch_that_is_run_again_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    landing = opened(tmp_path)
    landing.land(stage_of(landing, old="old"), 0, nothing)
    stage = stage_of(landing, one="a", two="b")
    kill_at_move(monkeypatch, moved)
    with pytest.raises(Killed):
        landing.land(stage, 1, nothing)
    monkeypatch.undo()
    assert opened(tmp_path, finishes=False).last == 0
    assert content(tmp_path) == ["old"]


def test_killed_before_the_old_files_are_gone_the_merge_is_finished(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    files = landing.land(stage_of(landing, one="a", two="b"), 0, nothing)
    merged = stage_of(landing, merged="ab") / "merged"
    removals = [str(file.relative_to(tmp_path)) for file in files]
    with pytest.raises(Killed):
        landing.replace(CommitManifest(0, [(landing.relative(merged), "merged")], removals), kill)
    assert content(tmp_path) == ["a", "ab", "b"]
    assert opened(tmp_path).last == 0
    assert content(tmp_path) == ["ab"]


def test_one_run_at_a_time_writes_as_a_writer(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    stage = stage_of(landing, part="a")
    other = FileCommit(tmp_path, "w")
    with pytest.raises(StoreUnavailable, match="another run writes this table as w") as refused:
        other.open(nothing, lambda manifest: True)
    assert refused.value.retry
    landing.land(stage, 0, nothing)
    assert content(tmp_path) == ["a"], "the other one did no harm"
    landing.close()
    other.open(nothing, lambda manifest: True)
    assert other.last == 0
    other.close()


def test_files_that_are_gone_are_not_counted_as_written(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    with pytest.raises(StoreUnavailable, match="deleted by someone else"):
        landing.land(landing.new_stage(), 0, nothing)
    stage = stage_of(landing, one="a", two="b")
    moves = [(landing.relative(stage / name), name) for name in ("one", "missing", "two")]
    with pytest.raises(StoreUnavailable, match="deleted by someone else"):
        landing.replace(CommitManifest(0, moves, []), nothing)
    assert landing.last == -1


def test_writers_do_not_know_each_other(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path, writer="v")
    one.land(stage_of(one, part="a"), 5, nothing)
    other.land(stage_of(other, part="b"), 0, nothing)
    assert (one.last, other.last) == (5, 0) and content(tmp_path) == ["a", "b"]


def kill(manifest: CommitManifest) -> None:
    raise Killed


def kill_at_move(monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    """Be killed when so many files are in the table."""
    real, count = os.replace, 0

    def replace(source: Any, target: Any) -> None:
        nonlocal count
        if Path(source).parent.name.startswith("stage-"):
            if count == moved:
                raise Killed
            count += 1
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
