"""Backups of stores at rest, while they change in every way that copying can meet, and under load."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from headrace.core.errors import DiskFull, InvalidInput, StoreUnavailable
from headrace.core.groups.group import Group
from headrace.core.topics.settings import TopicSettings
from headrace.storage.disk.backup import ATTEMPTS_MAX, back_up
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.engine import CATALOG
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.log import DiskLog
from headrace.storage.open import open_store
from tests.group_writes import put_group, put_offsets
from tests.storage.builders import NOW_US, DiskPlace, Topic, batch_of, state_of, values, values_in

OPTIONS = "segment_frames=3"
FEW = TopicSettings.make(retention_bytes=1)


class Meanwhile(FileSystem):
    """The real file system; before a file with one of these endings is copied, something happens, once."""

    def __init__(self, **happenings: Callable[[], object]) -> None:
        self._happenings = happenings
        self.copied: list[str] = []

    def copy(self, source: Path, target: Path) -> None:
        ending = source.suffix.removeprefix(".")
        if ending in self._happenings:
            self._happenings.pop(ending)()
        self.copied.append(source.name)
        super().copy(source, target)


class Store:
    """A store that a process has open, with one topic."""

    def __init__(self, directory: Path, commits: int, settings: TopicSettings | None = None) -> None:
        self.place = DiskPlace(directory / "store", OPTIONS)
        self.topic = Topic(self.place, partitions=2, settings=settings or TopicSettings())
        self.directory = directory / "store"
        self.target = directory / "backups" / "monday"
        self.log_directory = self.directory / "topics" / f"{self.topic.record.id:09d}"
        self.published = 0
        for _ in range(commits):
            self.publish()

    def publish(self) -> None:
        rows = [{"value": b"%d" % self.published, "partition": 0, "producer_id": "till", "seqno": self.published}]
        self.topic.publish(batch_of(rows), now_us=NOW_US + self.published)
        self.published += 1

    def drop(self) -> None:
        """Retention drops all but the newest segment."""
        log = self.topic.log
        assert isinstance(log, DiskLog)
        assert log.drop_outlived(FEW, None, NOW_US + self.published)

    def back_up(self, files: FileSystem | None = None) -> None:
        back_up(self.directory, self.target, files)

    @property
    def has_copied_catalog(self) -> bool:
        return (self.target.with_name("monday.partial") / "catalog.sqlite").exists()

    def logs(self) -> list[Path]:
        return sorted(self.log_directory.glob("*.log"))

    def restored(self) -> DiskPlace:
        """The copy, found without damage and opened."""
        assert examine(self.target).findings == []
        return opened(self.target)


def opened(directory: Path) -> DiskPlace:
    place = DiskPlace(directory, OPTIONS)
    place.reopen()
    return place


def restored_values(store: Store) -> list[int]:
    place = store.restored()
    try:
        return [int(value) for value in values_in(place.log(store.topic.record.id))]
    finally:
        place.close()


@pytest.fixture(params=[True, False], ids=["open", "closed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    store = Store(tmp_path, commits=8)
    if not request.param:
        store.place.close()
    return store


def test_a_copy_is_the_store(store: Store) -> None:
    store.back_up()
    assert restored_values(store) == list(range(8))
    assert not store.target.with_name("monday.partial").exists()


def test_planning_continues_from_the_copy_as_from_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)
    store.back_up()
    copy = store.restored()
    assert state_of(copy.log(store.topic.record.id)) == state_of(store.topic.log)
    copy.close()


def test_an_empty_store(tmp_path: Path) -> None:
    DiskPlace(tmp_path / "store").close()
    copied = back_up(tmp_path / "store", tmp_path / "copy")
    assert (copied.topics, copied.segments, copied.bytes) == (0, 0, 0)
    assert examine(tmp_path / "copy").findings == []


def test_what_is_copied_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)
    copied = back_up(store.directory, store.target)
    assert (copied.topics, copied.segments) == (1, 3)
    assert copied.bytes == sum(path.stat().st_size for path in store.target.rglob("*.log"))


def test_only_a_store_and_only_to_a_new_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is not a store"):
        back_up(tmp_path / "nothing", tmp_path / "copy")
    store = Store(tmp_path, commits=1)
    store.target.mkdir(parents=True)
    with pytest.raises(InvalidInput, match="it exists"):
        store.back_up()


def test_the_rest_of_a_backup_that_was_killed_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=4)
    partial = store.target.with_name("monday.partial")
    (partial / "topics" / "000000099").mkdir(parents=True)
    (partial / "topics" / "000000099" / "rest").write_bytes(b"rest")
    store.back_up()
    assert restored_values(store) == list(range(4))
    assert not partial.exists()


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=4)

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFull, match="No space"):
        store.back_up(Meanwhile(log=full))
    assert list(store.target.parent.iterdir()) == []


def test_a_catalog_that_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=1)
    store.place.close()
    (store.directory / "catalog.sqlite").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StoreUnavailable, match=r"catalog\.sqlite"):
        store.back_up()


def test_stages_and_strays_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=4)
    store.place.store.stages.write(store.topic.record.id, "s", values(b"x"), NOW_US)
    stray = store.directory / "topics" / "000000077"
    shutil.copytree(store.log_directory, stray)
    store.back_up()
    assert not (store.target / "stages").exists()
    assert restored_values(store) == list(range(4))


# What happens while it copies


def test_what_is_published_meanwhile_does_no_harm(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)

    def publish() -> None:
        for _ in range(10):
            store.publish()

    store.back_up(Meanwhile(log=publish, state=publish))
    assert restored_values(store)[:8] == list(range(8))


def test_no_committed_offset_is_beyond_the_copy(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=2)
    catalog, topic_id = store.place.store.catalog, store.topic.record.id
    put_group(catalog, topic_id, Group("billing"))
    while store.published < 7:
        store.publish()

    def publish_and_commit() -> None:
        while store.published < 20:
            store.publish()
        put_offsets(catalog, topic_id, "billing", {0: 20})

    store.back_up(Meanwhile(log=publish_and_commit))
    assert restored_values(store) == list(range(20))
    copy = store.restored()
    assert copy.store.catalog.offsets(topic_id, "billing") == {0: 20}
    copy.close()


def test_retention_drops_what_was_to_be_copied(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)
    store.back_up(Meanwhile(log=store.drop))
    assert restored_values(store) == [6, 7]


def test_retention_drops_what_was_copied(tmp_path: Path) -> None:
    """What was copied before stays in the copy, as long as what follows is there."""
    store = Store(tmp_path, commits=8)
    store.back_up(Meanwhile(index=lambda: store.logs()[0].unlink()))
    assert restored_values(store) == list(range(8))


def test_retention_drops_everything_that_was_copied(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)
    # Until the catalog is copied the topic has more segments, and those that were copied are gone.
    files = Meanwhile(state=lambda: None)
    original = files.list_directory
    calls: list[Path] = []

    def list_directory(path: Path) -> list[str]:
        calls.append(path)
        if path == store.log_directory and calls.count(path) == 2:
            for _ in range(6):
                store.publish()
            store.drop()
        return original(path)

    files.list_directory = list_directory  # type: ignore[method-assign]
    store.back_up(files)
    found = restored_values(store)
    assert found == list(range(found[0], 14)) and found[0] > 5


def test_a_topic_is_deleted_meanwhile(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=4)
    other = Topic(store.place, "Other", partitions=1)
    other.publish(values(b"x"))
    done: list[Path] = []
    other_directory = store.directory / "topics" / f"{other.record.id:09d}"

    class Deleting(FileSystem):
        def list_directory(self, path: Path) -> list[str]:
            # After the catalog was copied.
            if path == other_directory and store.has_copied_catalog and not done:
                done.append(path)
                other.delete()
            return super().list_directory(path)

    store.back_up(Deleting())
    assert done
    assert restored_values(store) == list(range(4))
    assert not (store.target / "topics" / other_directory.name).exists()


def test_snapshots_are_replaced_while_they_are_copied(tmp_path: Path) -> None:
    """Without one the copy would not know the sources of the segments that retention dropped."""
    store = Store(tmp_path, commits=8)
    store.drop()
    kept = store.topic.log.offsets().start[0]

    def replace_snapshots() -> None:
        log = store.topic.log
        assert isinstance(log, DiskLog)
        for _ in range(2):
            store.publish()
            log._write_snapshot()

    store.back_up(Meanwhile(state=replace_snapshots))
    assert restored_values(store) == list(range(kept, 10))


@pytest.mark.parametrize(("before", "commits"), [(2, 1), (2, 4), (3, 1), (3, 4)])
def test_a_topic_grows_meanwhile(tmp_path: Path, before: int, commits: int) -> None:
    """In the newest segment, in the one that was the newest, or in segments that are new altogether."""
    store = Store(tmp_path, commits=before)
    done: list[int] = []

    class Growing(FileSystem):
        def list_directory(self, path: Path) -> list[str]:
            if path == store.log_directory and store.has_copied_catalog and not done:
                done.append(1)
                store.topic.grow(5)
                for number in range(commits):
                    store.topic.publish(values(b"%d" % number, partition=4))
            return super().list_directory(path)

    store.back_up(Growing())
    copy = store.restored()
    assert len(values_in(copy.log(store.topic.record.id), 4)) == commits
    copy.close()


def test_a_store_that_changes_faster_than_it_is_copied(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=2)
    grown: list[int] = []

    class Restless(FileSystem):
        def list_directory(self, path: Path) -> list[str]:
            if path == store.log_directory and store.has_copied_catalog:
                grown.append(store.topic.record.partitions)
                store.topic.grow(grown[-1] + 1)
                store.topic.publish(batch_of([{"value": b"x", "partition": grown[-1]}], partitions=100))
            return super().list_directory(path)

    with pytest.raises(StoreUnavailable, match="try again"):
        store.back_up(Restless())
    assert len(grown) >= ATTEMPTS_MAX
    assert list(store.target.parent.iterdir()) == []


def test_a_frame_that_was_being_written_is_no_damage(tmp_path: Path) -> None:
    """It was half there when it was read, and those behind it were whole: read again, it is whole too."""
    store = Store(tmp_path, commits=2)

    class Racing(FileSystem):
        copies = 0

        def copy(self, source: Path, target: Path) -> None:
            super().copy(source, target)
            self.copies += source.suffix == ".log"
            if source.suffix == ".log" and self.copies == 1:
                content = bytearray(target.read_bytes())
                start = content.index(b"HRfr")
                content[start + 64 : start + 80] = bytes(16)
                target.write_bytes(content)

    files = Racing()
    store.back_up(files)
    assert files.copies == 2
    assert restored_values(store) == [0, 1]


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=2)
    with store.logs()[-1].open("ab") as file:
        file.write(b"HRfr" + b"torn" * 40)
    store.back_up()
    assert restored_values(store) == [0, 1]


def test_damage_is_copied_as_it_is(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=2)
    content = bytearray(store.logs()[0].read_bytes())
    content[content.index(b"HRfr") + 70] ^= 0xFF
    store.logs()[0].write_bytes(content)
    store.back_up()
    assert examine(store.target).is_damaged


def test_a_segment_that_was_just_begun_is_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=2)
    (store.log_directory / f"{99:020d}.log").write_bytes(b"")
    store.back_up()
    assert restored_values(store) == [0, 1]


def test_wrong_headers_are_copied_as_they_are(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=5)
    done: list[int] = []

    def hurt() -> None:
        for path in store.logs():
            content = bytearray(path.read_bytes())
            content[0] ^= 0xFF
            path.write_bytes(content)

    class Hurting(FileSystem):
        def list_directory(self, path: Path) -> list[str]:
            if path == store.log_directory and store.has_copied_catalog and not done:
                done.append(1)
                store.publish()
                store.publish()
                hurt()
            return super().list_directory(path)

    store.back_up(Hurting())
    assert [path.read_bytes() for path in sorted(store.target.rglob("*.log"))][-1][:4] != b"HRsg"
    assert examine(store.target).is_damaged


def test_a_segment_that_goes_while_the_rest_is_copied(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=4)

    class Dropping(FileSystem):
        logs = 0

        def copy(self, source: Path, target: Path) -> None:
            self.logs += source.suffix == ".log"
            if source.suffix == ".log" and self.logs == 2:
                # The newest one, after the catalog.
                for _ in range(6):
                    store.publish()
                store.drop()
            super().copy(source, target)

    store.back_up(Dropping())
    found = restored_values(store)
    assert found == list(range(found[0], 10))


@pytest.mark.parametrize("published", [0, 8], ids=["a copied one", "one that is not copied yet"])
def test_a_complete_segment_goes_while_the_rest_is_copied(tmp_path: Path, published: int) -> None:
    store = Store(tmp_path, commits=8)
    looks: list[int] = []

    class Dropping(FileSystem):
        def list_directory(self, path: Path) -> list[str]:
            if path == store.log_directory and store.has_copied_catalog:
                looks.append(1)
            # The first look after the catalog was copied is for snapshots.
            if path != store.log_directory or len(looks) != 2:
                return super().list_directory(path)
            for _ in range(published):
                store.publish()
            names = super().list_directory(path)
            store.drop()
            return names

    store.back_up(Dropping())
    found = restored_values(store)
    assert found == list(range(found[0], store.published))
    # What was copied already stays.
    assert (found[0] == 0) == (not published)


def test_under_load(tmp_path: Path) -> None:
    """Copies made while a thread publishes, commits and drops: each is without damage, and has what it must have."""
    store = Store(tmp_path, commits=1)
    catalog, topic_id = store.place.store.catalog, store.topic.record.id
    put_group(catalog, topic_id, Group("billing", important=True))
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            store.publish()
            put_offsets(catalog, topic_id, "billing", {0: store.published})
            if store.published % 25 == 0:
                log = store.topic.log
                assert isinstance(log, DiskLog)
                held = np.array([store.published - 10, 0])
                log.drop_outlived(FEW, held, NOW_US + store.published)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(12):
            acknowledged = store.published
            target = tmp_path / "backups" / str(number)
            back_up(store.directory, target)
            assert examine(target).findings == []
            copy = opened(target)
            log = copy.log(topic_id)
            offsets, committed = log.offsets(), copy.store.catalog.offsets(topic_id, "billing").get(0, 0)
            assert acknowledged <= offsets.end[0]
            # Nothing that the important group has yet to read was left out.
            assert offsets.start[0] <= committed <= offsets.end[0]
            assert [int(value) for value in values_in(log)] == list(range(offsets.start[0], offsets.end[0]))
            copy.close()
    finally:
        stop.set()
        thread.join()


def test_the_catalog_of_a_copy_stands_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=1)
    store.back_up()
    assert sorted(path.name for path in store.target.iterdir()) == ["catalog.sqlite", "topics"]
    with closing(sqlite3.connect(store.target / "catalog.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM all_topics").fetchone() == (1,)


def test_an_index_that_is_missing_is_made_for_the_copy(tmp_path: Path) -> None:
    store = Store(tmp_path, commits=8)
    lost = min(store.directory.rglob("*.index"))
    lost.unlink()
    back_up(store.directory, store.target)
    assert (store.target / lost.relative_to(store.directory)).exists()
    assert not examine(store.target).is_damaged


def test_a_copy_has_an_id_of_its_own(tmp_path: Path) -> None:
    with closing(open_store(f"file:{tmp_path / 'store'}")) as store:
        first = store.catalog.manifest.store_id()
    back_up(tmp_path / "store", tmp_path / "copy")
    with closing(open_store(f"file:{tmp_path / 'copy'}")) as copy:
        assert copy.catalog.manifest.store_id() != first
    with closing(sqlite3.connect(tmp_path / "copy" / CATALOG)) as database:
        database.execute("ALTER TABLE headrace_catalog DROP COLUMN storeid")
        database.commit()
    back_up(tmp_path / "copy", tmp_path / "old")
