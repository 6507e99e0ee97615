"""The operating system, asked for real."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.open import open_store
from tests.storage.disk.builders import BROKEN, FailingFiles

FILES = FileSystem()


@contextmanager
def opened(path: Path) -> Iterator[int]:
    handle = FILES.open(path)
    try:
        yield handle
    finally:
        FILES.close(handle)


@contextmanager
def file_size_limit(length: int) -> Iterator[None]:
    """Files of this process cannot grow beyond this: the system writes up to it, then fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_directory_is_made_with_those_above_it_and_may_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    FILES.make_directory(path)
    FILES.make_directory(path)
    assert path.is_dir()


def test_every_directory_made_is_synced_into_the_one_above_it(tmp_path: Path) -> None:
    files = FailingFiles()
    files.make_directory(tmp_path / "a" / "b")
    assert files.calls == ["sync_directory", "sync_directory"]
    files.make_directory(tmp_path / "a" / "b")
    assert len(files.calls) == 2


def test_names_are_listed_in_order(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert FILES.list_directory(tmp_path) == ["a", "b", "c"]
    assert FILES.list_directory(tmp_path / "missing") == []


def test_removing_a_missing_file_is_fine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    for _ in range(2):
        FILES.remove(tmp_path / "file")
        FILES.remove_directory(tmp_path / "directory")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_empty_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="not empty"):
        FILES.remove_directory(tmp_path)


def test_buffers_of_all_kinds_are_written_one_after_another(tmp_path: Path) -> None:
    with opened(tmp_path / "file") as handle:
        FILES.write(handle, 3, [b"abc", b"", bytearray(b"de"), memoryview(b"xfgx")[1:3]])
        FILES.write(handle, 0, [])
        FILES.write(handle, 0, [b"", b""])
    assert (tmp_path / "file").read_bytes() == b"\0\0\0abcdefg"
    assert FILES.size(tmp_path / "file") == 10


def test_more_buffers_than_the_system_takes_at_once_are_written(tmp_path: Path) -> None:
    parts = [b"%d," % number for number in range(5_000)]
    with opened(tmp_path / "file") as handle:
        FILES.write(handle, 0, parts)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


def test_a_write_that_the_system_cuts_short_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def short(handle: int, buffers: Any, position: int) -> int:
        return whole(handle, [b"".join(buffers)[:3]], position)

    monkeypatch.setattr(os, "pwritev", short)
    with opened(tmp_path / "file") as handle:
        FILES.write(handle, 0, [b"ab", b"cdefgh", b"i"])
    assert (tmp_path / "file").read_bytes() == b"abcdefghi"


def test_a_write_that_does_not_fit_fails_after_a_part_of_it(tmp_path: Path) -> None:
    with opened(tmp_path / "file") as handle:
        with file_size_limit(1000), pytest.raises(OSError) as caught:
            FILES.write(handle, 0, [b"x" * 600, b"y" * 600])
        assert caught.value.errno == errno.EFBIG
        FILES.truncate(handle, 10)
    assert (tmp_path / "file").read_bytes() == b"x" * 10


def test_a_map_is_what_the_file_holds_now(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with opened(path) as handle:
        assert bytes(FILES.map(path)) == b""
        FILES.write(handle, 0, [b"first"])
        before = FILES.map(path)
        FILES.write(handle, 5, [b" second"])
        FILES.sync(handle)
    assert (bytes(before), bytes(FILES.map(path))) == (b"first", b"first second")
    assert FILES.read(path, 3) == b"fir"


def test_a_map_outlives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    view = FILES.map(path)
    FILES.remove(path)
    assert bytes(view) == b"content"


def test_a_missing_file_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.map(tmp_path / "missing")


def test_a_directory_can_be_synced_and_a_missing_one_cannot(tmp_path: Path) -> None:
    FILES.sync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        FILES.sync_directory(tmp_path / "missing")


def test_a_lock_is_held_by_one_and_names_its_process(tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    path.write_text("something longer than any process number")
    first = FILES.lock(path)
    assert first is not None
    assert FILES.lock(path) is None
    assert path.read_text() == f"{os.getpid()}\n"
    FILES.close(first)
    second = FILES.lock(path)
    assert second is not None
    FILES.close(second)


def test_a_lock_is_free_once_its_process_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print('locked'); input()"
    )
    command = [sys.executable, "-Suc", code, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert FILES.lock(path) is None
        holder.kill()
        holder.wait()
        handle = FILES.lock(path)
        assert handle is not None
        FILES.close(handle)


def test_a_lock_that_cannot_be_written_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    with file_size_limit(0), pytest.raises(OSError) as caught:
        FILES.lock(path)
    assert caught.value.errno == errno.EFBIG
    handle = FILES.lock(path)
    assert handle is not None
    FILES.close(handle)


@pytest.mark.parametrize("durable", [True, False])
def test_a_whole_file_appears_at_once_over_what_was_there(tmp_path: Path, durable: bool) -> None:
    files = FailingFiles()
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    (tmp_path / "file.tmp").write_bytes(b"left behind by a process that died in it")
    write_whole(files, path, [b"ne", b"w"], durable)
    assert path.read_bytes() == b"new"
    assert FILES.list_directory(tmp_path) == ["file"]
    syncs = [call for call in files.calls if call in ("sync", "replace", "sync_directory")]
    assert syncs == (["sync", "replace", "sync_directory"] if durable else ["replace"])


@pytest.mark.parametrize("call", ["open", "truncate", "write", "sync", "close", "replace"])
def test_a_whole_file_that_cannot_be_written_leaves_what_was_there(tmp_path: Path, call: str) -> None:
    files = FailingFiles()
    path = tmp_path / "file"
    path.write_bytes(b"old")
    files.fail(call, BROKEN)
    with pytest.raises(OSError, match=call):
        write_whole(files, path, [b"new"], durable=True)
    assert path.read_bytes() == b"old"
    assert FILES.list_directory(tmp_path) == ["file"]
    write_whole(files, path, [b"new"], durable=True)
    assert path.read_bytes() == b"new"


def test_what_is_made_is_for_its_owner_only(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}/a/store")
    topic = store.catalog.add_topic("t", "t", 1, DEFAULT_SETTINGS, 0, lambda record: store.create_log(record, 0))
    store.stages.write(topic.id, "s", pa.record_batch({"value": [b"a"]}), 0)
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert len(made) > 6 and any(path.name.endswith("-wal") for path in made)
    modes = {path: path.stat().st_mode & 0o777 for path in made}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in made}
    store.close()
