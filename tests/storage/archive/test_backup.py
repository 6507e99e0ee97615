"""Backups of archived topics: what leaves the log while it is copied is in the copied manifest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headrace.storage.archive.archives import Archives
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
