"""Which run may use a checkpoint on an object store. The store is a directory here, S3 in `tests/object_store`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.pipeline.run.checkpoint_files import HadoopFiles, LocalFiles
from headrace.spark.pipeline.run.claim import Claim, Claimed


class DirectoryFiles(HadoopFiles):
    """A directory with the promises of an object store."""

    def __init__(self, directory: Path) -> None:
        self.place, self._root = str(directory), directory
        self.copied: list[str] = []

    def read(self, name: str) -> bytes | None:
        return LocalFiles(self.place).read(name)

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def replace(self, name: str, content: bytes) -> None:
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        LocalFiles(self.place).replace(name, content)

    def create(self, name: str, content: bytes) -> bool:
        if not self.exists(name):
            self.replace(name, content)
        return self.read(name) == content

    def list(self, name: str) -> list[str]:
        return sorted(file.name for file in (self._root / name).iterdir()) if self.exists(name) else []

    def copy(self, name: str, other: str) -> None:
        self.copied.append(name)
        shutil.copytree(self._root / name, self._root / other)

    def delete(self, name: str) -> None:
        file = self._root / name
        shutil.rmtree(file) if file.is_dir() else file.unlink()


class ForgetfulFiles(DirectoryFiles):
    """A store that ignores the condition."""

    def create(self, name: str, content: bytes) -> bool:
        self.replace(name, content)
        return True


def at_once(seconds: float) -> bool:
    return False


def taken(files: HadoopFiles, wait: Callable[[float], bool] = at_once) -> Claim:
    claim = Claim(files)
    claim.take(wait)
    return claim


@pytest.fixture
def files(tmp_path: Path) -> DirectoryFiles:
    return DirectoryFiles(tmp_path)


def test_a_run_that_has_ended_is_continued_at_once(files: DirectoryFiles) -> None:
    for _ in range(15):
        claim = taken(files, lambda seconds: pytest.fail("nobody is there to wait for"))
        assert claim.directory == "spark"
        claim.release()
    assert len(files.list("headrace-runs")) == 10, "older ones are deleted"


def test_a_silent_run_is_taken_over_in_a_copy(files: DirectoryFiles) -> None:
    old = taken(files)
    for name in ("sources", "commits", "metadata", "offsets"):
        files.replace(f"spark/{name}/0", b"0")
    new = taken(files)
    assert new.directory == "spark-00000002" and files.read("spark-00000002/offsets/0") == b"0"
    assert files.copied[:2] == ["spark/commits", "spark/offsets"], "before what Spark writes earlier"
    new.check()
    with pytest.raises(StoreUnavailable, match="a newer run has taken over"):
        old.check()
    old.release()
    new.release()
    third = taken(files)
    assert third.directory == "spark-00000002" and files.list("") == ["headrace-runs", "spark-00000002"]
    third.release()


def test_a_copy_that_was_not_completed_is_not_used(files: DirectoryFiles) -> None:
    files.replace("spark/offsets/0", b"0")
    files.replace("spark-00000002/commits/0", b"0")
    files.replace("headrace-runs/00000002", msgspec.json.encode(Claimed("killed", "spark")))
    claim = taken(files)
    assert claim.directory == "spark-00000003" and files.list("spark-00000003") == ["offsets"]
    claim.release()


def test_a_run_that_may_still_write_is_waited_for(files: DirectoryFiles) -> None:
    claim = taken(files)
    claim.is_in_use = True
    claim.release()
    assert taken(files).directory == "spark-00000002"


def test_a_run_that_lives_is_left_alone(files: DirectoryFiles) -> None:
    def live(seconds: float) -> bool:
        files.replace("headrace-runs/00000001", msgspec.json.encode(Claimed("lives", "spark", beat=1)))
        return False

    files.replace("headrace-runs/00000001", msgspec.json.encode(Claimed("lives", "spark")))
    with pytest.raises(StoreUnavailable, match="another run uses this checkpoint"):
        taken(files, live)
    with pytest.raises(StoreUnavailable, match="stopped while waiting"):
        taken(files, lambda seconds: True)
    assert files.list("headrace-runs") == ["00000001"]


def test_a_run_ends_while_the_next_one_waits(files: DirectoryFiles) -> None:
    first = taken(files)

    def end(seconds: float) -> bool:
        first.release()
        return False

    second = taken(files, end)
    assert second.directory == "spark"
    second.release()


def test_two_runs_that_start_at_the_same_time(files: DirectoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Claim(files)
    create = files.create
    other: list[Claim] = []

    def create_late(name: str, content: bytes) -> bool:
        monkeypatch.setattr(files, "create", create)
        other.append(taken(files))
        return create(name, content)

    monkeypatch.setattr(files, "create", create_late)
    with pytest.raises(StoreUnavailable, match="has just started"):
        late.take(at_once)
    other[0].check()
    other[0].release()


def test_a_store_without_conditional_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="If-None-Match"):
        taken(ForgetfulFiles(tmp_path))


def test_a_claim_that_cannot_be_read(files: DirectoryFiles) -> None:
    files.replace("headrace-runs/00000001", b"{")
    with pytest.raises(InvalidInput, match="headrace-runs/00000001 cannot be read"):
        Claim(files)


def test_spark_connect_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Spark Connect") as refused:
        HadoopFiles(object(), "s3a://bucket/x")  # type: ignore[arg-type]
    assert refused.value.field == "run.checkpoint"
