"""An older catalog beside a newer log or archive is refused, and no file that only the newer one lists is deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import delete, insert, select, update

from headrace.core.archive.plan import Span
from headrace.core.errors import StoreUnavailable
from headrace.storage.archive import parquet
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.open import open_store
from headrace.storage.tables import all_archive_files, all_archives
from tests.storage.archive.builders import ArchivedTopic, doctor, file_names, values_of
from tests.storage.builders import EVERYTHING, NOW_US, DiskPlace, Place, batch_of

SECOND_US = 1_000_000
LATER_US = NOW_US + 2000 * SECOND_US
# Later than any clock, also that of a database.
SWEEP_US = 1 << 60


def fill(topic: ArchivedTopic, first: int, count: int = 6, now_us: int = NOW_US) -> None:
    """Messages one by one, over all partitions in turn."""
    for number in range(first, first + count):
        row = {"value": b"v%d" % number, "partition": number % topic.record.partitions}
        topic.publish(batch_of([row], topic.record.partitions), now_us=now_us + number)


class Restored:
    """A disk store whose topic is archived and dropped twice; `older` is its catalog from before the second time."""

    def __init__(self, directory: Path) -> None:
        self.place = DiskPlace(directory / "store")
        self.topic = ArchivedTopic(self.place, directory / "archive", partitions=2)
        self._copies = directory
        fill(self.topic, 0)
        self.topic.archive()
        self.topic.drop_local()
        self.place.close()
        self.save("older")
        self.open()
        fill(self.topic, 6, 12)
        self.topic.archive()
        self.topic.drop_local()
        fill(self.topic, 18, 1)
        self.rows = self.topic.rows()
        self.place.close()
        self.save("newer")

    @property
    def directory(self) -> Path:
        return self.place.directory

    def open(self, now_us: int = NOW_US) -> None:
        self.place.store = open_store(self.place.url)
        self.place.opened(self.place.store.catalog.topics()[0], now_us)

    def save(self, name: str) -> None:
        shutil.copy(self.directory / "catalog.sqlite", self._copies / name)

    def put(self, name: str) -> None:
        for path in self.directory.glob("catalog.sqlite*"):
            path.unlink()
        shutil.copy(self._copies / name, self.directory / "catalog.sqlite")


def test_a_catalog_older_than_its_log_is_refused_until_the_newer_one_is_restored(tmp_path: Path) -> None:
    restored = Restored(tmp_path)
    assert len(restored.rows) == 19
    restored.put("older")
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as refused:
            open_store(restored.place.url)
        told = str(refused.value)
        assert "topic 'Orders': the log dropped partition 0 up to offset 9 after it was archived" in told
        assert "ends at 3: the catalog is older than the log; restore the newer one" in told
        assert f"`headrace doctor {restored.directory} --repair`" in told
    restored.put("newer")
    restored.open()
    assert restored.topic.rows() == restored.rows and doctor(restored.topic) == []
    restored.place.close()


def test_the_doctor_says_so_without_looking_at_the_archive(tmp_path: Path) -> None:
    restored = Restored(tmp_path)
    assert examine(restored.directory).findings == []
    restored.put("older")
    [found] = examine(restored.directory).findings
    assert (Path(found.file).name, found.kind, found.repair) == (watermark.NAME, "damage", "possible")
    assert "the catalog is older than the log" in found.what
    with pytest.raises(StoreUnavailable):
        open_store(restored.place.url)


def test_a_repair_accepts_the_older_catalog_and_loses_nothing(tmp_path: Path) -> None:
    restored = Restored(tmp_path)
    restored.put("older")
    report = examine(restored.directory, repair=True)
    assert [found.repair for found in report.findings] == ["done"] and not report.is_damaged
    assert examine(restored.directory).findings == []
    restored.open(LATER_US)
    topic = restored.topic
    assert [(gap.first, gap.end) for gap in topic.tiered().offsets().gaps] == [(3, 9), (3, 9)]
    before = file_names(tmp_path / "archive")
    fill(topic, 19, 6, LATER_US)
    topic.archive(now_us=LATER_US)
    assert topic.archiver().sweep(topic.record, SWEEP_US) == 0
    assert set(before) < set(file_names(tmp_path / "archive"))
    assert [kind for kind, _ in doctor(topic, repair=True)] == ["leftover"], "it is kept, although it is a repair"
    topic.drop_local(LATER_US)
    restored.place.close()
    assert examine(restored.directory).findings == []
    # The newer catalog does not know what was archived meanwhile: now it is the one that is too old.
    restored.save("accepted")
    restored.put("newer")
    with pytest.raises(StoreUnavailable, match="the catalog is older than the log"):
        open_store(restored.place.url)
    examine(restored.directory, repair=True)
    restored.open(LATER_US)
    files = [topic.tiered().read(0, first, 9, EVERYTHING)["value"].to_pylist() for first in (0, 3)]
    assert [*files[0], *files[1]] == values_of(restored.rows)[:9]
    restored.place.close()


def test_what_a_log_drops_without_an_archive_is_no_reason_to_refuse(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path / "store")
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0)
    topic.archive()
    fill(topic, 6)
    # Retention while it is off, and then a trim while it is on, both of messages that are not archived.
    off = topic.record.settings.change(archive="off", retention_seconds=1)
    topic.tiered().drop_outlived(off, None, LATER_US)
    place.reopen(LATER_US)
    fill(topic, 12)
    topic.delete_before({0: 8, 1: 8})
    topic.drop_local(LATER_US)
    assert int(topic.inner.offsets().start[0]) == 8
    place.reopen(LATER_US)
    assert values_of(topic.rows())[-2:] == [b"v16", b"v17"]
    place.close()
    assert examine(tmp_path / "store").findings == []


def test_a_damaged_watermark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    restored = Restored(tmp_path)
    path = next((restored.directory / "topics").glob(f"*/{watermark.NAME}"))
    path.write_bytes(path.read_bytes()[:-1])
    restored.open()
    assert restored.topic.rows() == restored.rows
    restored.place.close()


def test_a_log_that_lost_messages_still_knows_what_it_left_to_the_archive(tmp_path: Path) -> None:
    restored = Restored(tmp_path)
    [newest] = sorted((restored.directory / "topics").glob("*/*.log"))[-1:]
    newest.write_bytes(newest.read_bytes()[:-64])
    restored.open()
    restored.place.close()
    found = watermark.read(FileSystem(), newest.parent)
    assert found is not None and found.archived == [9, 9] and found.skipped
    restored.put("older")
    with pytest.raises(StoreUnavailable, match="the catalog is older than the log"):
        open_store(restored.place.url)


# What no manifest lists


@contextmanager
def rolled_back(topic: ArchivedTopic, files: int) -> Iterator[None]:
    """The manifest as it was when it had the first `files` files."""
    manifest = topic.place.store.catalog.manifest
    columns = all_archive_files.c

    def run(statement: Any) -> Sequence[Any]:
        result = manifest._do(lambda connection: connection.execute(statement).mappings().all())
        return [dict(row) for row in result]

    def change(*statements: Any) -> None:
        manifest._do(lambda connection: [connection.execute(statement) for statement in statements])

    rows = run(select(all_archive_files).order_by(columns.place))
    [known] = run(select(all_archives))
    ends = topic.tiered().view
    assert ends is not None
    reached = [0] * topic.record.partitions
    for file in ends.manifest.files[:files]:
        for each in file.ranges:
            reached[each.partition] = each.end_offset
    gone = [row["path"] for row in rows[files:]]
    version = known["version"] + 100
    change(
        delete(all_archive_files).where(columns.path.in_(gone)),
        update(all_archives).values(ends=str(reached), version=version),
    )
    yield
    change(
        delete(all_archive_files),
        insert(all_archive_files).values(rows),
        update(all_archives).values(ends=known["ends"], version=version + 100),
    )


def test_files_of_a_newer_manifest_are_kept(place: Place, tmp_path: Path) -> None:
    """The whole store was restored, log and catalog; the archive was not."""
    topic = ArchivedTopic(place, tmp_path / "archive")
    for first in (0, 6, 12):
        fill(topic, first)
        topic.archive()
    topic.drop_local()
    before, names = topic.rows(), file_names(tmp_path / "archive")
    for files in (2, 1, 0):
        with rolled_back(topic, files):
            assert topic.archiver().sweep(topic.record, SWEEP_US) == 0
            assert [kind for kind, _ in doctor(topic, repair=True)] == ["leftover"] * (3 - files)
            assert "that no other file has; it is kept" in doctor(topic)[0][1]
            assert file_names(tmp_path / "archive") == names
    assert topic.rows() == before == topic.table() and doctor(topic) == []


def stray(topic: ArchivedTopic, *spans: Span, later_us: int = 0) -> Path:
    """A file with messages of the log that no manifest lists, as if they had been written later."""
    topic_directory = f"{topic.archiver().store_id}/topic-{topic.record.id}"
    path = f"{topic_directory}/{0:020d}-{0:016x}-{len(file_names(topic.directory)):012x}.parquet"
    batches = [
        topic.inner.read(span.partition, span.first_offset, len(range(*span[1:3])), EVERYTHING) for span in spans
    ]
    rows = pa.Table.from_batches(batches).combine_chunks()
    place = rows.schema.get_field_index("timestamp")
    times = pc.add(rows["timestamp"].cast(pa.int64()), later_us).cast(rows.schema.field(place).type)
    parquet.write(topic.files, path, rows.set_column(place, rows.schema.field(place), times).to_batches(), spans)
    return topic.directory / path


def sweep(topic: ArchivedTopic) -> int:
    return topic.archiver().sweep(topic.record, SWEEP_US)


def test_a_stray_is_deleted_if_its_messages_are_in_the_same_place_at_the_same_time(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0)
    topic.archive()
    fill(topic, 6)
    topic.archive()
    fill(topic, 12)
    # In the middle of one file and over two of them; then at another time, as after a restore; then not archived yet.
    same = [stray(topic, Span(0, 1, 2, True)), stray(topic, Span(0, 2, 5, True), Span(1, 0, 6, True))]
    kept = [stray(topic, Span(0, 0, 3, True), later_us=1), stray(topic, Span(0, 5, 7, True))]
    assert sweep(topic) == 2
    assert [path.exists() for path in (*same, *kept)] == [False, False, True, True]
    assert "2 files in the archive that the manifest does not list have messages that are not in others" in caplog.text
    topic.archive()
    assert sweep(topic) == 1 and kept[0].exists() and not kept[1].exists()
    assert "1 file in the archive that the manifest does not list has messages" in caplog.text
    assert topic.table() == topic.rows()


def test_a_stray_whose_messages_have_expired_is_deleted(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive", local_retention_seconds=1, archive_retention_seconds=1)
    fill(topic, 0)
    topic.archive()
    fill(topic, 6)
    strays = stray(topic, Span(0, 0, 4, True)), stray(topic, Span(1, 3, 6, True))
    topic.archive()
    for _ in range(2):
        topic.tiered().drop_outlived(topic.record.settings, None, LATER_US)
    assert topic.table() == topic.rows() == []
    sweep(topic)
    assert file_names(tmp_path / "archive") == [] and not any(path.exists() for path in strays)


def test_what_the_log_lost_may_be_in_a_stray(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1)
    fill(topic, 0)
    only_copy = stray(topic, Span(0, 2, 6, True))
    # The log loses all of it, and what follows is archived.
    topic.tiered().drop_outlived(topic.record.settings.change(archive="off", retention_seconds=1), None, LATER_US)
    fill(topic, 6, now_us=LATER_US)
    topic.archive(now_us=LATER_US)
    assert sweep(topic) == 0 and only_copy.exists()
    over_both = stray(topic, Span(0, 6, 8, True))
    assert sweep(topic) == 1 and not over_both.exists()
    topic.delete_before({0: 5})
    assert sweep(topic) == 0, "offset 5 is in no other file"
    topic.delete_before({0: 6})
    assert sweep(topic) == 1 and not only_copy.exists()


def test_what_cannot_be_read_is_kept_unless_it_was_never_whole(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive", partitions=1)
    fill(topic, 0)
    [file] = topic.archive()
    damaged, broken_off = stray(topic, Span(0, 0, 6, True)), stray(topic, Span(0, 0, 6, True))
    unfinished = stray(topic, Span(0, 0, 6, True))
    unfinished = unfinished.rename(unfinished.with_name(unfinished.name + ".tmp"))
    content = damaged.read_bytes()
    place = content.index(b"PAR1") + 4
    damaged.write_bytes(content[:place] + bytes(200) + content[place + 200 :])
    broken_off.write_bytes(content[: len(content) // 2])
    assert sweep(topic) == 2
    assert [path.exists() for path in (damaged, broken_off, unfinished)] == [True, False, False]
    same = stray(topic, Span(0, 0, 5, True))
    (tmp_path / "archive" / file.path).unlink()
    assert sweep(topic) == 0 and same.exists(), "the file that should have the same messages is missing"


def test_files_of_a_topic_that_the_catalog_never_had_are_kept(place: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(place, tmp_path / "archive")
    fill(topic, 0)
    topic.archive()
    catalog = place.store.catalog
    directory = tmp_path / "archive" / topic.archiver().store_id
    newer = directory / f"topic-{topic.record.id + 1}"
    shutil.copytree(directory / f"topic-{topic.record.id}", newer)
    assert catalog.last_topic_id() == topic.record.id and not catalog.was_deleted(topic.record.id + 1)
    assert topic.archiver().sweep_deleted(catalog.was_deleted, SWEEP_US) == 0
    assert [kind for kind, _ in doctor(topic, repair=True)] == ["leftover"]
    assert len(list(newer.iterdir())) == 1
    topic.delete()
    assert catalog.last_topic_id() == topic.record.id and catalog.was_deleted(topic.record.id)
    assert topic.archiver().sweep_deleted(catalog.was_deleted, SWEEP_US) == 1
    assert len(list(newer.iterdir())) == 1


def test_an_archive_of_a_topic_that_was_not_archived_then_is_kept(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path / "archive")
    fill(topic, 0)
    kept = stray(topic, Span(0, 0, 3, True))
    assert sweep(topic) == 0 and kept.exists()
    assert [kind for kind, _ in doctor(topic, repair=True)] == ["leftover"] and kept.exists()
