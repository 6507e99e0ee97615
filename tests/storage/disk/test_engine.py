"""The disk store: who may open it, what it removes, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from headrace.core.errors import DiskFull, StoreUnavailable, UnknownFormat
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import file_name, header_bytes
from headrace.storage.disk.options import DiskOptions
from tests.storage.builders import CREATED_US, NOW_US, publish, values, values_in
from tests.storage.disk.builders import BROKEN, NO_SPACE, TINY_OPTIONS, DiskTopic, FailingFiles

DIRECTORIES = ["plain", "with space", "a?b=c", "a%20b", "#hash", "ümläut 🛞", "semi;colon&and"]


def opened(directory: Path, files: FileSystem | None = None) -> DiskStore:
    return DiskStore(directory, TINY_OPTIONS, files)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def open_files(directory: Path) -> list[str]:
    """The files of a directory that this process has open."""
    handles = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    targets = [os.readlink(handle) for handle in handles if handle.is_symlink()]
    return sorted(target for target in targets if target.startswith(f"{directory}/"))


class TestOpening:
    @pytest.mark.parametrize("name", DIRECTORIES)
    def test_any_directory_may_hold_a_store(self, tmp_path: Path, name: str) -> None:
        topic = DiskTopic(tmp_path / "deep" / name)
        topic.publish(values(b"a"))
        assert names_in(tmp_path / "deep") == [name]
        assert {"LOCK", "catalog.sqlite", "stages", "topics"} <= set(names_in(tmp_path / "deep" / name))
        assert values_in(topic.reopen()) == [b"a"]
        topic.close()

    def test_a_store_is_opened_by_one_at_a_time(self, tmp_path: Path) -> None:
        first = opened(tmp_path)
        with pytest.raises(StoreUnavailable, match=f"process {os.getpid()} has it open") as caught:
            opened(tmp_path)
        assert caught.value.store == str(tmp_path)
        first.close()
        opened(tmp_path).close()

    def test_a_holder_that_has_not_said_who_it_is_is_unknown(self, tmp_path: Path) -> None:
        first = opened(tmp_path)
        (tmp_path / "LOCK").write_bytes(b"")
        with pytest.raises(StoreUnavailable, match="process unknown has it open"):
            opened(tmp_path)
        first.close()

    def test_another_process_is_named(self, tmp_path: Path) -> None:
        code = (
            "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print('4711'); input()"
        )
        lock = tmp_path / "LOCK"
        holder = subprocess.Popen(
            [sys.executable, "-Suc", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            lock.write_text(f"{holder.pid}\n")
            with pytest.raises(StoreUnavailable, match=f"process {holder.pid} has it open"):
                opened(tmp_path)
            holder.kill()
        opened(tmp_path).close()

    def test_a_file_in_the_place_of_the_directory_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="file"):
            opened(tmp_path / "file")

    def test_a_catalog_that_is_no_database_is_reported_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "catalog.sqlite").write_bytes(b"something else" * 100)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="not a database"):
                opened(tmp_path)
        assert (tmp_path / "catalog.sqlite").read_bytes() == b"something else" * 100

    def test_a_catalog_of_a_newer_version_is_refused(self, tmp_path: Path) -> None:
        opened(tmp_path).close()
        with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
            connection.execute("UPDATE headrace_catalog SET version = 99")
        connection.close()
        for _ in range(2):
            with pytest.raises(UnknownFormat) as caught:
                opened(tmp_path)
            assert (caught.value.file, caught.value.version) == (str(tmp_path), 99)
            assert open_files(tmp_path) == []

    @pytest.mark.parametrize("call", ["sync_directory", "map"])
    def test_a_store_that_could_not_be_opened_can_be_opened_later(self, tmp_path: Path, call: str) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"a"))
        topic.store.stages.write(topic.record.id, "stage", values(b"b"), NOW_US)
        topic.close()
        files.fail(call, BROKEN)
        with pytest.raises(StoreUnavailable, match=call):
            opened(topic.root, files)
        assert values_in(topic.open()) == [b"a"]

    def test_its_directories_are_synced_at_every_opening(self, tmp_path: Path) -> None:
        class Noting(FileSystem):
            synced: ClassVar[set[Path]] = set()

            def sync_directory(self, path: Path) -> None:
                self.synced.add(path)
                super().sync_directory(path)

        root = tmp_path / "store"
        opened(root).close()
        opened(root, Noting()).close()
        assert Noting.synced >= {root, tmp_path}

    def test_the_catalog_survives_a_power_cut(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        with store.catalog._transactions._engine.connect() as connection:
            settings = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert settings == ["wal", 2, 1]
        store.close()


class TestLogs:
    @pytest.mark.parametrize("call", ["open", "write", "sync", "sync_directory", "close"])
    def test_a_topic_whose_log_cannot_be_made_is_not_there(self, tmp_path: Path, call: str) -> None:
        files = FailingFiles()
        store = opened(tmp_path, files)

        def add(name: str) -> int:
            record = store.catalog.add_topic(
                name, name, 1, DEFAULT_SETTINGS, CREATED_US, lambda topic: store.create_log(topic, CREATED_US)
            )
            return record.id

        files.fail(call, NO_SPACE)
        with pytest.raises(DiskFull, match=call):
            add("a")
        assert store.catalog.topics() == []
        second = add("b")
        store.close()
        store = opened(tmp_path)
        assert [topic.id for topic in store.catalog.topics()] == [second]
        assert values_in(store.open_log(store.catalog.topics()[0], NOW_US)) == []
        assert names_in(tmp_path / "topics") == [f"{second:09d}"]

    def test_a_log_that_can_be_neither_made_nor_removed_is_recreated_later(self, tmp_path: Path) -> None:
        files = FailingFiles()
        store = opened(tmp_path, files)

        def add() -> TopicRecord:
            return store.catalog.add_topic(
                "a", "a", 1, DEFAULT_SETTINGS, CREATED_US, lambda topic: store.create_log(topic, CREATED_US)
            )

        files.fail("sync", BROKEN)
        files.fail("remove", BROKEN)
        with pytest.raises(StoreUnavailable, match="could not be begun"):
            add()
        assert store.catalog.topics() == []
        log = store.open_log(add(), NOW_US)
        publish(log, values(b"a"))
        assert values_in(log) == [b"a"]
        log.close()
        store.close()

    def test_a_log_is_recreated_over_what_a_failed_one_left(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        left = tmp_path / "topics" / "000000001" / file_name(0, "log")
        left.parent.mkdir()
        left.write_bytes(b"rubbish" * 1000)
        topic = store.catalog.add_topic(
            "a", "a", 1, DEFAULT_SETTINGS, CREATED_US, lambda made: store.create_log(made, CREATED_US)
        )
        assert left.stat().st_size == header_bytes(1)
        log = store.open_log(topic, NOW_US)
        assert (values_in(log), log.damage) == ([], [])
        log.close()
        store.close()

    def test_a_log_that_cannot_be_opened_says_which(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"a"))
        topic.log.close()
        files.fail("map", BROKEN)
        with pytest.raises(StoreUnavailable, match="map") as caught:
            topic.store.open_log(topic.record, NOW_US)
        assert caught.value.store == str(topic.directory)
        assert values_in(topic.store.open_log(topic.record, NOW_US)) == [b"a"]

    @pytest.mark.parametrize(("call", "number"), [("open", NO_SPACE), ("write", NO_SPACE), ("write", BROKEN)])
    def test_a_disk_that_takes_nothing_is_noted_until_it_does(
        self, tmp_path: Path, call: str, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        files = FailingFiles()
        store, before = opened(tmp_path, files), names_in(tmp_path)
        assert store.can_write()
        files.fail(call, number, number)
        assert not store.can_write() and not store.can_write()
        assert caplog.text.count("not ready: ") == 1, "once, however often it is asked"
        assert store.can_write() and names_in(tmp_path) == before
        store.close()

    def test_a_deleted_log_gives_its_disk_back(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for _ in range(9):
            topic.publish(values(b"a" * 100))
        topic.store.stages.write(topic.record.id, "stage", values(b"b"), NOW_US)
        topic.store.catalog.remove_topic(topic.record.id)
        topic.log.close()
        topic.store.delete_log(topic.record.id)
        assert names_in(topic.root / "topics") == names_in(topic.root / "stages") == []
        topic.store.delete_log(topic.record.id)
        topic.store.close()

    def test_a_log_that_cannot_be_deleted_is_deleted_at_the_next_opening(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"a"))
        topic.store.catalog.remove_topic(topic.record.id)
        topic.log.close()
        files.fail("remove", BROKEN)
        with pytest.raises(StoreUnavailable, match="remove"):
            topic.store.delete_log(topic.record.id)
        topic.store.close()
        assert names_in(topic.root / "topics") == [topic.directory.name]
        opened(topic.root).close()
        assert names_in(topic.root / "topics") == []


class TestStrays:
    """Directories of logs that the catalog does not have."""

    @staticmethod
    def lose_catalog(directory: Path) -> None:
        for path in directory.glob("catalog.sqlite*"):
            path.unlink()

    def test_the_log_of_a_deleted_topic_goes(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"a"))
        topic.store.stages.write(topic.record.id, "stage", values(b"b"), NOW_US)
        topic.store.catalog.remove_topic(topic.record.id)
        topic.close()
        store = opened(topic.root)
        assert names_in(topic.root / "topics") == names_in(topic.root / "stages") == []
        store.close()

    def test_the_stages_of_a_deleted_topic_go(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.store.stages.write(topic.record.id, "kept", values(b"a"), NOW_US)
        topic.store.stages.write(topic.record.id + 1, "stray", values(b"b"), NOW_US)
        topic.reopen()
        assert topic.store.stages.read(topic.record.id, "kept") is not None
        assert topic.store.stages.read(topic.record.id + 1, "stray") is None

    @pytest.mark.parametrize("left", ["nothing", "an empty file", "half a header", "a header"])
    def test_the_log_of_a_topic_that_was_being_made_goes(self, tmp_path: Path, left: str) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.close()
        header = topic.paths()[0].read_bytes()
        stray = topic.directory.with_name("000000002")
        stray.mkdir()
        content = {"an empty file": b"", "half a header": header[:30], "a header": header}
        if left in content:
            (stray / file_name(0, "log")).write_bytes(content[left])
        opened(topic.root).close()
        assert names_in(topic.root / "topics") == [topic.directory.name]

    @pytest.mark.parametrize("damage", ["lost", "older"])
    def test_with_a_wrong_catalog_no_message_is_removed(self, tmp_path: Path, damage: str) -> None:
        root = tmp_path / "store"
        opened(root).close()
        backup = tmp_path / "backup.sqlite"
        shutil.copy(root / "catalog.sqlite", backup)
        topic = DiskTopic(root)
        topic.publish(values(b"a"))
        topic.close()
        shutil.copy(root / "catalog.sqlite", tmp_path / "right.sqlite")
        self.lose_catalog(root)
        if damage == "older":
            shutil.copy(backup, root / "catalog.sqlite")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="never in the catalog") as caught:
                opened(root)
            assert caught.value.store == str(topic.directory)
        self.lose_catalog(root)
        shutil.copy(tmp_path / "right.sqlite", root / "catalog.sqlite")
        assert values_in(topic.open()) == [b"a"]

    def test_messages_that_were_not_closed_cleanly_are_messages_too(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"a"))
        topic.kill()
        assert names_in(topic.directory) == [file_name(0, "log")]
        self.lose_catalog(topic.root)
        with pytest.raises(StoreUnavailable, match="never in the catalog"):
            opened(topic.root)

    def test_what_people_put_there_is_left_alone(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"a"))
        topic.close()
        directory = topic.root / "topics"
        shutil.copytree(topic.directory, directory / "1")
        shutil.copytree(topic.directory, directory / "000000001.bak")
        (directory / ".DS_Store").touch()
        (directory / "0000000001").mkdir()
        before = names_in(directory)
        assert values_in(topic.open()) == [b"a"]
        assert names_in(directory) == before


def test_by_default_what_is_answered_is_on_the_device() -> None:
    assert DiskOptions() == DiskOptions(durability="sync", segment_bytes=64 << 20, segment_frames=1 << 16)


def test_a_damaged_catalog_is_refused_with_a_cure(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", DiskOptions())
    for number in range(60):
        store.catalog.add_topic(f"t{number}", f"t{number}", 1, DEFAULT_SETTINGS, NOW_US, lambda made: None)
    store.close()
    path = tmp_path / "store" / "catalog.sqlite"
    whole = path.read_bytes()
    # A cell of a topic's page that points out of it; free pages that are none; files without their end or beginning;
    # then one without a table.
    pages = range(4096, len(whole), 4096)
    place = next(place for place in pages if whole[place] == 13 and b"t59" in whole[place : place + 4096])
    path.write_bytes(whole[: place + 8] + b"\xff\xff" + whole[place + 10 :])
    with pytest.raises(StoreUnavailable, match=r"the catalog is damaged .*: restore it from a backup"):
        DiskStore(tmp_path / "store", DiskOptions())
    miscounted = whole[:36] + b"\0\0\0\x07" + whole[40:]
    for left in (miscounted, whole[:5000], whole[:100], whole[4096:], b"another file".ljust(8192)):
        path.write_bytes(left)
        with pytest.raises(StoreUnavailable, match=r"the catalog is damaged .*: restore it from a backup"):
            DiskStore(tmp_path / "store", DiskOptions())
    path.write_bytes(whole)
    database = sqlite3.connect(path)
    database.execute("DROP TABLE all_consumers")
    database.close()
    with pytest.raises(StoreUnavailable, match="the catalog has no table all_consumers: restore it from a backup"):
        DiskStore(tmp_path / "store", DiskOptions())
