"""Archiving as the broker runs it: tasks, leases of two servers, failures that are remembered, stops in the middle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.broker import Broker
from headrace.broker.settings import ArchiveSettings
from headrace.core.errors import Closed, InvalidInput, StoreUnavailable
from headrace.storage.archive import parquet
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.catalog import Catalog
from headrace.storage.open import open_store
from headrace.tables.snapshot import table_snapshot
from tests.broker.clock import SettableClock
from tests.broker.sites import POSTGRES, Site
from tests.tables.test_snapshot import rows_of


class Archived:
    """Brokers on one store with one archive, whose tasks run when the test says so."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.clock = SettableClock()
        self._open: list[Broker] = []

    def open(self, **settings: Any) -> Broker:
        given: dict[str, Any] = {"url": str(self.directory), "stray_seconds": 0}
        archive = ArchiveSettings(**given | settings)
        broker = Broker(open_store(self.url), clock=self.clock, archive=archive)
        self._open.append(broker)
        return broker

    def reopened(self, broker: Broker) -> Broker:
        broker.close()
        self._open.remove(broker)
        return self.open()

    def close(self) -> None:
        for broker in self._open:
            broker.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Archived]:
    place = Archived(f"file:{tmp_path / 'store'}?segment_frames=3&durability=os", tmp_path / "archive")
    yield place
    place.close()


def publish(broker: Broker, *given: bytes) -> None:
    broker.publish("orders", pa.record_batch({"value": pa.array(given, pa.binary())}))


def read(broker: Broker) -> list[bytes]:
    start, end = broker.offsets("orders")[0]
    found: list[bytes] = []
    while start + len(found) < end:
        found += broker.fetch("orders", 0, start + len(found))["value"].to_pylist()
    return found


def log_of(broker: Broker, topic: str = "orders") -> TieredLog:
    log = broker.topics.find(topic).topic.log
    assert isinstance(log, TieredLog)
    return log


ARCHIVED: dict[str, Any] = {"archive": "on", "archive_after_seconds": 0, "local_retention_seconds": 1}


def test_what_left_the_log_is_read_from_the_archive(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    for number in range(10):
        publish(broker, b"%d" % number)
        if number % 2:
            broker.archiving.archive()
    place.clock.step(1000)
    broker.maintenance.run_all()
    broker.archiving.sweep()
    assert log_of(broker).inner.offsets().start[0] == 10
    assert read(broker) == [b"%d" % number for number in range(10)]
    snapshot = broker.archive("orders")
    assert snapshot.complete == {0: 10} and snapshot.offsets == {0: (0, 10)}
    assert sum(file.rows for file in snapshot.files) == 10 and snapshot.url == place.directory.as_uri()
    assert broker.trim_topic("orders", place.clock.now_us()) == 10
    assert broker.archive("orders").files == []


def test_bytes_reach_into_the_archive_without_reading_it(place: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    for _ in range(10):
        publish(broker, *[random.randbytes(1_000) for _ in range(10)])
    assert 5 <= broker.offsets_within("orders", {0: (0, 100, 10_000)})[0] <= 10
    broker.archiving.archive()
    place.clock.step(1000)
    broker.maintenance.run_all()
    publish(broker, *[b"x" * 1_000] * 20)
    assert log_of(broker).inner.offsets().start[0] == 100
    monkeypatch.setattr(log_of(broker), "read", None)
    assert 25 <= broker.offsets_within("orders", {0: (20, 120, 30_000)})[0] <= 50
    assert broker.offsets_within("orders", {0: (90, 120, 1 << 30)}) == {0: 120}


def test_a_server_without_an_archive_refuses_to_begin_and_keeps_what_is_not_archived(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    publish(broker, b"a")
    broker.close()
    broker = place.open(url="")
    with pytest.raises(InvalidInput, match=r"set archive\.url"):
        broker.create_topic("other", archive="on")
    with pytest.raises(InvalidInput, match=r"set archive\.url"):
        broker.create_topic("other")
        broker.alter_topic("other", archive="on")
    broker.archiving.archive()
    broker.archiving.sweep()
    assert "set archive.url" in str(log_of(broker).archive_failure)
    place.clock.step(1000)
    broker.maintenance.run_all()
    assert read(broker) == [b"a"]
    assert broker.archive("orders").url is None
    broker.alter_topic("orders", archive="off")


def test_an_unexpected_failure_of_a_topic_does_not_stop_the_others(
    place: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = place.open()
    for name in ("bad", "orders"):
        broker.create_topic(name, **ARCHIVED)
        broker.publish(name, pa.record_batch({"value": pa.array([b"a"], pa.binary())}))
    write_file, bad = parquet.write, f"topic-{broker.archive('bad').topic_id}/"

    def write(files: ArchiveFiles, path: str, *others: Any) -> Any:
        if bad in path:
            raise MemoryError
        return write_file(files, path, *others)

    monkeypatch.setattr("headrace.storage.archive.archiver.write", write)
    broker.archiving.archive()
    assert [log_of(broker, name).archive_failure for name in ("bad", "orders")] == ["MemoryError()", None]
    assert broker.archive("orders").complete == {0: 1}


def test_a_failure_is_remembered_until_it_is_over(place: Archived, caplog: pytest.LogCaptureFixture) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    publish(broker, b"a")
    place.directory.write_text("in the way")
    for _ in range(2):
        broker.archiving.archive()
    assert log_of(broker).archive_failure is not None
    assert caplog.text.count("cannot be archived now") == 1
    assert broker.counters["archive_failures"] == 2
    (metrics,) = broker.topic_metrics()
    assert metrics.archive is not None and metrics.archive.is_failing == 1 and metrics.archive.lag_messages == 1
    broker.archiving.sweep()
    place.directory.unlink()
    broker.archiving.archive()
    assert log_of(broker).archive_failure is None
    (metrics,) = broker.topic_metrics()
    assert metrics.archive is not None and (metrics.archive.is_failing, metrics.archive.files) == (0, 1)


def test_a_broker_that_closes_breaks_off(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    publish(broker, b"a")
    broker.archiving.stop()
    broker.archiving.archive()
    assert broker.archive("orders").files == []
    with pytest.raises(Closed):
        broker.archiving._rest()


def test_files_are_merged_and_those_of_deleted_topics_are_swept(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    for number in range(4):
        publish(broker, b"%d" % number)
        broker.archiving.archive()
    assert len(broker.archive("orders").files) == 1 and broker.counters["archive_merges"] == 1
    place.clock.step(10)
    broker.delete_topic("orders")
    broker.create_topic("orders", **ARCHIVED)
    broker.archiving.sweep()
    assert [path for path in place.directory.rglob("*") if path.is_file()] == []


def test_a_sweep_asks_the_catalog_only_about_unknown_topics(place: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    publish(broker, b"a")
    broker.archiving.archive()
    place.clock.step(10)
    asked: list[int] = []

    def was_deleted(topic_id: int) -> bool:
        asked.append(topic_id)
        return True

    monkeypatch.setattr(Catalog, "was_deleted", lambda _, topic_id: was_deleted(topic_id))
    broker.archiving.sweep()
    assert asked == [] and read(broker) == [b"a"]
    broker.delete_topic("orders")
    broker.archiving.sweep()
    assert asked == [1]
    assert [path for path in place.directory.rglob("*") if path.is_file()] == []


def test_a_purge_deletes_everything_archived_or_not(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    for number in range(6):
        publish(broker, b"%d" % number)
        if number == 3:
            broker.archiving.archive()
    place.clock.step(10)
    assert broker.trim_topic("orders", place.clock.now_us()) == 6
    broker.archiving.archive()
    publish(broker, b"new")
    broker.archiving.archive()
    place.clock.step(10)
    broker.archiving.sweep()
    assert read(broker) == [b"new"]
    assert sum(file.rows for file in broker.archive("orders").files) == 1
    [file] = [path for path in place.directory.rglob("*.parquet") if pq.read_metadata(path).num_rows]
    assert pq.read_table(file)["value"].to_pylist() == [b"new"]


def test_a_trim_deletes_from_the_oldest_on_also_if_it_is_interrupted(
    place: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    for number in range(9):
        publish(broker, b"%d" % number)
        place.clock.step(10)
        if number == 2:
            broker.archiving.archive()
    log = log_of(broker)

    def interrupted(*_: Any) -> int:
        raise StoreUnavailable("catalog", "interrupted between the log and the archive")

    monkeypatch.setattr(log._manifest, "expire", interrupted)
    with pytest.raises(StoreUnavailable):
        broker.trim_topic("orders", place.clock.now_us() - 25 * 1_000_000)
    start = log.inner.offsets().start[0]
    assert 3 < start < 9, "the log has dropped messages that the archive does not have"
    for is_reopened in (False, True):
        broker = place.reopened(broker) if is_reopened else broker
        rows = rows_of(table_snapshot(broker.archive("orders")))
        assert sorted(rows.elements()) == [(0, offset) for offset in range(start, 9)], "nothing before a hole"
        assert len(read(broker)) == 9 - start


def test_a_purge_deletes_what_is_dated_in_the_future(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED)
    place.clock.step(1000)
    publish(broker, b"a", b"b")
    broker.archiving.archive()
    place.clock.step(-1000)
    publish(broker, b"c")
    assert broker.trim_topic("orders", place.clock.now_us() - 1) == 0
    assert broker.trim_topic("orders", place.clock.now_us()) == 3
    assert broker.archive("orders").files == [] and broker.offsets("orders") == {0: (3, 3)}


def test_a_file_stays_while_the_log_has_its_messages(place: Archived) -> None:
    broker = place.open()
    broker.create_topic("orders", **ARCHIVED | {"local_retention_seconds": 1000, "archive_retention_seconds": 5})
    for number in range(4):
        publish(broker, b"%d" % number)
    broker.archiving.archive()
    place.clock.step(100)
    broker.maintenance.run_all()
    assert rows_of(table_snapshot(broker.archive("orders"))).total() == len(read(broker)) == 4
    place.clock.step(1000)
    broker.maintenance.run_all()
    assert rows_of(table_snapshot(broker.archive("orders"))).total() == len(read(broker)) == 0


def test_one_of_two_servers_archives_a_topic(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site = Site.make(POSTGRES, tmp_path / "unused", request.getfixturevalue)
    place = Archived(site.url, tmp_path / "archive")
    one, two = place.open(lease_seconds=3600), place.open(lease_seconds=3600)
    one.create_topic("orders", **ARCHIVED)
    publish(one, b"a", b"b")
    one.archiving.archive()
    publish(two, b"c")
    # The first has the lease, so the second does nothing; readers of both see the same.
    two.archiving.archive()
    assert two.archive("orders").complete == {0: 2}
    one.archiving.archive()
    place.clock.step(1000)
    one.maintenance.run_all()
    for broker in (one, two):
        assert broker.archive("orders").complete == {0: 3}
        assert read(broker) == [b"a", b"b", b"c"]
        assert broker.archive("orders").offsets == {0: (0, 3)}
    # What one of them deletes, the other no longer shows.
    assert one.trim_topic("orders", place.clock.now_us()) == 3
    two.archiving.archive()
    assert two.offsets("orders") == {0: (3, 3)}
    place.close()


def test_a_server_that_lost_its_lease_breaks_off(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site = Site.make(POSTGRES, tmp_path / "unused", request.getfixturevalue)
    place = Archived(site.url, tmp_path / "archive")
    one, two = place.open(lease_seconds=1e-6), place.open(lease_seconds=3600)
    one.create_topic("orders", **ARCHIVED)
    publish(one, b"a")
    assert two.offsets("orders") == {0: (0, 1)}, "it knows the topic, whether it was notified or not"
    rest = one.archiving._rest

    def stalled() -> None:
        # Meanwhile the other server takes over.
        two.archiving.archive()
        rest()

    object.__setattr__(one.archiving._archiver, "rest", stalled)
    one.archiving.archive()
    assert one.archive("orders").complete == {0: 1}
    assert len(one.archive("orders").files) == 1 and one.counters["archive_files_written"] == 0
    assert log_of(one).archive_failure is None
    place.close()
