"""Leases and the manifest of a shared store: what a server wrote counts only while it has the lease it began with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.core.groups.group import Group
from headrace.storage.archive.manifest import TopicManifest
from headrace.storage.archive.tiered_log import TieredLog
from tests.group_writes import put_group, put_offsets
from tests.postgres_server import PostgresServer
from tests.storage.archive.builders import ArchivedTopic, doctor, file_names
from tests.storage.builders import NOW_US, Place, PostgresPlace, values

SECOND_US = 1_000_000


@pytest.fixture
def shared(postgres: PostgresServer) -> Iterator[Place]:
    place = PostgresPlace(postgres.fresh_url("segment_commits=1"))
    yield place
    place.close()


def test_one_server_at_a_time_has_the_lease(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path)
    claim = shared.store.catalog.manifest.claim
    assert claim(topic.record.id, "one", 60) == 1
    assert claim(topic.record.id, "two", 60) is None
    assert claim(topic.record.id, "one", 0) == 1, "renewed, and over at once"
    assert claim(topic.record.id, "two", 60) == 2
    assert claim(topic.record.id, "one", 60) is None


def test_what_a_server_wrote_that_lost_the_lease_does_not_count(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path)
    topic.publish(values(b"a", b"b"))
    stalled = topic.epoch("one", 0)
    # Another server archives, merges and sweeps; then the first has the lease again, and continues with its old file.
    takes_over = topic.epoch("two", 0)
    assert topic.archiver().archive(topic.record, topic.tiered(), takes_over, NOW_US) is not None
    again = topic.epoch("one", 0)
    assert (stalled, takes_over, again) == (1, 2, 3)
    topic.publish(values(b"c"))
    assert topic.archiver().archive(topic.record, topic.tiered(), stalled, NOW_US) is None
    assert topic.archiver().archive(topic.record, topic.tiered(), again, NOW_US) is not None
    assert [row["value"] for row in topic.table()] == [b"a", b"b", b"c"]
    for _ in range(3):
        topic.publish(values(b"d"))
        topic.archiver().archive(topic.record, topic.tiered(), again, NOW_US)
    assert topic.archiver().merge(topic.record, topic.tiered(), stalled, lambda: NOW_US) is None
    assert topic.archiver().merge(topic.record, topic.tiered(), again, lambda: NOW_US) is not None
    assert len(topic.table()) == 6 and doctor(topic) == []


def test_a_file_counts_once_and_only_where_the_archive_ends(memory: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(memory, tmp_path, partitions=1)
    topic.publish(values(b"a", b"b"))
    [file] = topic.archive()
    manifest = memory.store.catalog.manifest
    zero = np.zeros(1, np.int64)
    # The answer to COMMIT was lost, and it is repeated.
    assert manifest.append(topic.record.id, 0, file, zero, NOW_US)
    assert len(topic.table()) == 2
    other = type(file)(**{name: getattr(file, name) for name in file.__slots__} | {"path": "x"})
    assert not manifest.append(topic.record.id, 0, other, zero, NOW_US)
    assert not manifest.replace(topic.record.id, 0, [other], file, NOW_US) or len(topic.table()) == 2
    assert not manifest.replace(topic.record.id, 0, [other], type(file)("y", 0, 0, "", 0, 0, []), NOW_US)
    assert not manifest.replace(99, 0, [file], other, NOW_US)
    assert not manifest.append(99, 0, other, zero, NOW_US)


def is_known(log: TieredLog) -> bool:
    return log.view is not None


def test_servers_see_what_others_archived(shared: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ArchivedTopic(shared, tmp_path, partitions=1)
    topic.publish(values(b"a", b"b"))
    other, reader, seeker = topic.tiered(), topic.tiered(), topic.tiered()
    topic.archive()
    topic.drop_local()
    topic.publish(values(b"c"))
    assert not is_known(other) and not is_known(reader)
    assert reader.read(0, 0, 10, 100)["value"].to_pylist() == [b"a", b"b"], "whoever asks first"
    assert seeker.first_at(0, 0) == 0
    assert other.offsets().by_partition() == {0: (0, 3)}
    assert is_known(other)
    assert other.read(0, 0, 10, 100)["value"].to_pylist() == [b"a", b"b"]
    assert other.newest_view() is not None
    # Nothing more was archived: the manifest is not loaded again and again.
    settings = topic.record.settings.change(archive="off", retention_seconds=1)
    topic.tiered().drop_outlived(settings, None, NOW_US + 10**15)
    view, manifest, loads = other.view, shared.store.catalog.manifest, [0]
    load = manifest.load

    def counting(topic_id: int, known: TopicManifest | None) -> TopicManifest | None:
        loads[0] += 1
        return load(topic_id, known)

    monkeypatch.setattr(manifest, "load", counting)
    for _ in range(2):
        assert other.offsets().gaps
    assert loads == [1] and other.view is view, "the manifest did not change"


def test_important_groups_of_a_shared_store_hold_files(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path, partitions=1, archive_retention_seconds=1)
    topic.publish(values(b"a", b"b"))
    topic.archive()
    catalog = shared.store.catalog
    put_group(catalog, topic.record.id, Group("audit", important=True), {0: 1})
    put_group(catalog, topic.record.id, Group("loose"), {0: 0})
    later_us = NOW_US + 100 * SECOND_US
    topic.drop_local()
    topic.tiered().drop_outlived(topic.record.settings, None, later_us)
    assert len(topic.table()) == 2
    put_offsets(catalog, topic.record.id, "audit", {0: 2, 7: 1})
    topic.tiered().drop_outlived(topic.record.settings, None, later_us)
    assert topic.table() == []
    topic.archiver().sweep(topic.record, catalog.manifest.database_us() + 1)
    assert file_names(tmp_path) == []


def test_a_server_whose_clock_is_ahead_of_the_database_expires_no_file_early(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path, partitions=1, archive_retention_seconds=3600)
    now_us = shared.store.catalog.manifest.database_us()
    topic.publish(values(b"a", b"b"), now_us=now_us)
    topic.archive(now_us=now_us)
    topic.drop_local(now_us)
    assert topic.inner.offsets().start.tolist() == [2]
    topic.tiered().drop_outlived(topic.record.settings, None, now_us + 7200 * SECOND_US)
    assert len(topic.table()) == 2


def test_files_that_a_server_replaced_whose_clock_is_behind_stay_readable(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path, partitions=1, archive_retention_seconds=3600)
    manifest = shared.store.catalog.manifest
    epoch, now_us = topic.epoch("behind"), manifest.database_us()
    behind_us = now_us - 86400 * SECOND_US
    for _ in range(4):
        topic.publish(values(b"a"), now_us=behind_us)
        topic.archiver().archive(topic.record, topic.tiered(), epoch, behind_us)
    assert topic.archiver().merge(topic.record, topic.tiered(), epoch, lambda: behind_us) is not None
    topic.drop_local(behind_us)
    topic.tiered().drop_outlived(topic.record.settings, None, behind_us + 7200 * SECOND_US)
    removed = [each for each in manifest.listed(topic.record.id).values() if each is not None]
    assert len(removed) == 5 and min(removed) >= now_us, "a snapshot from before has them for archive.stray_seconds"


def test_the_doctor_deletes_nothing_of_a_topic_that_a_server_archives(shared: Place, tmp_path: Path) -> None:
    topic = ArchivedTopic(shared, tmp_path)
    topic.publish(values(b"a"))
    manifest = shared.store.catalog.manifest
    path = f"{manifest.store_id()}/topic-{topic.record.id}/x.parquet"
    with topic.files.writing(path) as sink:
        sink.write(b"about to be listed")
    elsewhere = tmp_path / manifest.store_id() / "notes" / "x"
    elsewhere.parent.mkdir()
    elsewhere.write_text("not ours")
    epoch = manifest.claim(topic.record.id, "server", 3600)
    assert len(doctor(topic, repair=True)) == 1
    assert (tmp_path / path).exists() and elsewhere.exists()
    manifest.claim(topic.record.id, "server", 0)
    doctor(topic, repair=True)
    assert not (tmp_path / path).exists() and elsewhere.exists()
    # What that server was about to list cannot be listed any more.
    assert epoch is not None
    assert topic.archiver().archive(topic.record, topic.tiered(), epoch, NOW_US) is None
