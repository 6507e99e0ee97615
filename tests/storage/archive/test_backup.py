"""Backups of archived topics: what leaves the log while it is copied is in the copied manifest, or in copied files."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from headrace.core.errors import Damaged, StoreUnavailable
from headrace.core.reports.store_check import StoreReport
from headrace.storage.archive.archives import Archives
from headrace.storage.archive.check import check_archive
from headrace.storage.archive.files import DirectoryFiles
from headrace.storage.disk.backup import back_up
from headrace.storage.open import open_store
from tests.storage.archive.builders import MANY_BYTES, ArchivedTopic
from tests.storage.builders import NOW_US, DiskPlace, read_all, values
from tests.storage.disk.test_backup import Meanwhile


def test_what_is_archived_and_dropped_after_the_catalog_was_copied_is_in_the_copy(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path / "store", "segment_frames=3")
    topic = ArchivedTopic(place, tmp_path / "archive", partitions=1)
    topic.publish(values(b"a"))
    target = tmp_path / "copy"

    def archive_and_drop() -> None:
        assert (tmp_path / "copy.partial" / "catalog.sqlite").exists()
        topic.publish(values(b"b", b"c"))
        topic.archive()
        topic.drop_local()
        topic.publish(values(b"d"), now_us=NOW_US + 1)

    # The only segment is copied last. Before that it is archived and dropped.
    files = Meanwhile()
    listings = [lambda: None, archive_and_drop]
    original = files.list_directory

    def list_directory(path: Path) -> list[str]:
        if path == tmp_path / "store" / "topics" / f"{topic.record.id:09d}" and listings:
            listings.pop(0)()
        return original(path)

    files.list_directory = list_directory  # type: ignore[method-assign]
    back_up(tmp_path / "store", target, files)
    place.close()
    with closing(open_store(f"file:{target}")) as store:
        [record] = store.catalog.topics()
        log = Archives(store.catalog, False, topic.files, MANY_BYTES).tier(record, store.open_log(record, NOW_US))
        assert not log.offsets().gaps
        assert read_all(log, 0)["value"].to_pylist() == [b"a", b"b", b"c", b"d"]


def archived_topic(directory: Path) -> ArchivedTopic:
    """Messages in the archive, in the log, and in a file that was merged away."""
    topic = ArchivedTopic(DiskPlace(directory / "store", "segment_frames=3"), directory / "archive", partitions=1)
    for number in range(5):
        topic.publish(values(b"%d" % number), now_us=NOW_US + number)
        topic.archive()
    assert topic.archiver().merge(topic.record, topic.tiered(), topic.epoch(), lambda: NOW_US) is not None
    topic.drop_local()
    topic.publish(values(b"5"), now_us=NOW_US + 5)
    return topic


def test_a_copy_with_its_archive_is_whole_by_itself(tmp_path: Path) -> None:
    topic, target = archived_topic(tmp_path), tmp_path / "copy"
    copied = back_up(tmp_path / "store", target, archive=topic.files)
    assert copied.archive_files == len(topic.tiered().newest_view().manifest.files)  # type: ignore[union-attr]
    topic.place.close()
    shutil.rmtree(tmp_path / "archive")
    files = DirectoryFiles(target / "archive")
    with closing(open_store(f"file:{target}")) as store:
        [record] = store.catalog.topics()
        log = Archives(store.catalog, False, files, MANY_BYTES).tier(record, store.open_log(record, NOW_US))
        assert read_all(log, 0)["value"].to_pylist() == [b"%d" % number for number in range(6)]
        report = StoreReport()
        check_archive(store.catalog, files, report)
        assert report.findings == [] and report.archive_files == copied.archive_files


def test_a_copy_with_a_damaged_or_missing_file_fails_and_leaves_nothing(tmp_path: Path) -> None:
    topic, target = archived_topic(tmp_path), tmp_path / "copy"
    view = topic.tiered().view
    assert view is not None
    path = tmp_path / "archive" / view.manifest.files[0].path
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(Damaged, match="in the manifest"):
        back_up(tmp_path / "store", target, archive=topic.files)
    path.unlink()
    with pytest.raises(StoreUnavailable, match="deleted since the backup began"):
        back_up(tmp_path / "store", target, archive=topic.files)
    assert not list(tmp_path.glob("copy*"))
    topic.place.close()
