"""There is no room on the disk: nothing is half accepted, and with room work goes on without reopening."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import DiskFull
from headrace.storage.disk.engine import DiskStore
from tests.faults.crashes import Death, ManualClock, verify_in
from tests.faults.filesystems import NEEDS_ROOM, FailingFileSystem, PowerCut, SimulatedDisk, SimulatedFileSystem
from tests.faults.invariants import TINY, Ledger, Message, batch_of, check, extend, opened, settle, verify

FULL = [errno.ENOSPC, errno.EDQUOT]


class Site:
    """A store whose newest segment is full but for one commit, and the book of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = FailingFileSystem()
        self.ledger = Ledger()
        self.broker = Broker(DiskStore(directory, TINY, self.files))
        self.ledger.create_topic(self.broker, "t", 2)
        for number in range(3):
            self.publish(number)

    def publish(self, number: int) -> None:
        messages = [Message(b"v%d-%d" % (number, row), None, "a", None, 10 * number + row) for row in range(5)]
        self.ledger.publish(self.broker, "t", messages)

    def logs(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in (self.directory / "topics").glob("*/*.log")}

    def names(self) -> set[str]:
        return {path.name for path in (self.directory / "topics").glob("*/*")}


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    site = Site(place / "store")
    yield site
    site.broker.close()


@pytest.mark.parametrize("error", FULL)
@pytest.mark.parametrize("written", [0.0, 0.1, 0.5, 0.99])
def test_a_write_that_ends_half_way_leaves_nothing(site: Site, error: int, written: float) -> None:
    before = site.logs()
    offsets = site.broker.offsets("t")
    for number in (3, 4, 5):
        with site.files.failing(error, NEEDS_ROOM, written=written), pytest.raises(DiskFull) as caught:
            site.publish(number)
        assert (caught.value.topic, caught.value.retry) == ("t", True)
        assert site.logs() == before
        assert site.broker.offsets("t") == offsets
        check(site.broker, site.ledger)
    settle(site.broker, site.ledger)
    extend(site.broker, site.ledger, "room")
    check(site.broker, site.ledger)
    site.broker.close()
    verify(site.directory, site.ledger)


@pytest.mark.parametrize("call", ["open", "write"])
def test_full_while_a_segment_is_begun(site: Site, call: str) -> None:
    site.publish(3)
    before = site.logs()
    for _ in range(2):
        with (
            site.files.failing(errno.ENOSPC, frozenset({call}), ".log", written=0.5),
            pytest.raises(DiskFull),
        ):
            site.publish(4)
        site.ledger.attempts.pop()
        assert site.logs() == before
    site.publish(4)
    assert len(site.logs()) == len(before) + 1
    check(site.broker, site.ledger)
    site.broker.close()
    verify(site.directory, site.ledger)


@pytest.mark.parametrize("ending", [".index.tmp", ".state.tmp"])
@pytest.mark.parametrize("call", ["open", "write", "replace"])
def test_full_while_an_index_or_a_snapshot_is_written(site: Site, call: str, ending: str) -> None:
    """Both can be made up for: publishing goes on, reading too, and nothing is left behind."""
    ending = ending.removesuffix(".tmp") if call == "replace" else ending
    with site.files.failing(errno.ENOSPC, frozenset({call}), ending, written=0.5):
        for number in range(3, 12):
            site.publish(number)
        check(site.broker, site.ledger)
    assert site.files.hits
    assert not [name for name in site.names() if name.endswith(".tmp")]
    site.broker.maintenance.run_all()
    check(site.broker, site.ledger)
    logs = sorted(site.logs())[:-1]
    assert {name.replace(".log", ".index") for name in logs} <= site.names()
    site.broker.close()
    verify(site.directory, site.ledger)


def test_full_while_the_store_is_closed(site: Site) -> None:
    with site.files.failing(errno.ENOSPC, NEEDS_ROOM, written=0.5):
        site.broker.close()
    assert not [name for name in site.names() if name.endswith(".tmp")]
    verify(site.directory, site.ledger)


def test_full_while_a_topic_is_made(site: Site) -> None:
    for call in ("make_directory", "open", "write"):
        with (
            site.files.failing(errno.ENOSPC, frozenset({call}), written=0.5),
            pytest.raises(DiskFull, match="No space left") as caught,
        ):
            site.broker.create_topic("made", 3)
        assert caught.value.retry
        assert site.broker.list_topics() == ["t"]
    site.ledger.create_topic(site.broker, "made", 3)
    extend(site.broker, site.ledger, "room")
    site.broker.close()
    verify(site.directory, site.ledger)


def test_full_while_rows_are_staged(site: Site) -> None:
    rows = [Message(b"staged-%d" % row) for row in range(4)]
    with site.files.failing(errno.ENOSPC, NEEDS_ROOM, written=0.5), pytest.raises(DiskFull) as caught:
        site.broker.stage("t", batch_of(rows), "s")
    assert caught.value.retry
    assert list((site.directory / "stages").iterdir()) == []
    site.ledger.stage(site.broker, "t", rows[:2], "s")
    with site.files.failing(errno.ENOSPC, NEEDS_ROOM, written=0.9), pytest.raises(DiskFull):
        site.broker.stage("t", batch_of(rows), "s")
    site.ledger.stage(site.broker, "t", rows[2:], "s")
    site.ledger.publish_staged(site.broker, "t", None)
    check(site.broker, site.ledger)
    site.broker.close()
    verify(site.directory, site.ledger)


@contextmanager
def catalog_without_room(broker: Broker) -> Iterator[None]:
    """The catalog may not grow, which SQLite reports as it reports a full disk."""

    def limit(pages: str) -> None:
        with broker.store.catalog._transactions._engine.connect() as connection:
            # The pool has one connection, since the catalog uses one at a time.
            count = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages or count}")

    limit("")
    yield
    limit("1000000")


def test_full_while_groups_commit(site: Site) -> None:
    """The catalog says so as the logs do, and nothing of the commit is stored."""
    broker = site.broker
    groups = [f"g{number}" for number in range(300)]
    for group in groups:
        broker.register_group("t", group)
    committed = 0
    with catalog_without_room(broker), pytest.raises(DiskFull, match="disk is full") as caught:
        for group in groups:
            broker.commit_offsets("t", group, {0: 2})
            committed += 1
    assert "the store could not be written" in str(caught.value)
    assert caught.value.retry and caught.value.nothing_done
    assert [broker.committed("t", group) for group in groups].count({0: 2}) == committed
    for group in groups:
        broker.commit_offsets("t", group, {0: 2})
    assert all(broker.committed("t", group) == {0: 2} for group in groups)


def test_a_full_disk_can_be_opened_and_read(site: Site) -> None:
    site.broker.close()
    full = frozenset({"write", "replace"})
    with site.files.failing(errno.ENOSPC, full), opened(site.directory, files=site.files) as broker:
        check(broker, site.ledger)
        with pytest.raises(DiskFull):
            broker.publish("t", batch_of([Message(b"refused")]))
    verify(site.directory, site.ledger)


def test_what_was_cut_off_stays_cut_off_after_a_power_cut(place: Path) -> None:
    """The first frames of a large commit were synced when the last did not fit; then the log rolled."""
    (place / "home" / "store").mkdir(parents=True)
    files = SimulatedFileSystem(SimulatedDisk(place / "home"))
    death = Death(place / "home", files, Ledger(), ManualClock(), crashed=True)
    store = DiskStore(place / "home" / "store", TINY, files)
    broker = Broker(store, BrokerSettings(frame_rows=2), clock=death.clock)
    death.ledger.create_topic(broker, "t", 2)
    for number in range(3):
        death.ledger.publish(broker, "t", [Message(b"v%d" % number, None, "a", None, number)])
    writes = iter([None, 0.5])
    files.fails_write = lambda file: next(writes)
    large = [Message(b"large-%d" % row, None, "b", None, row) for row in range(6)]
    with pytest.raises(DiskFull):
        broker.publish("t", batch_of(large))
    (log,) = (path for path in death.disk.folder(files_of(death)).names if path.endswith(".log"))
    content = death.disk.file(files_of(death) / log)
    assert content.durable == bytes(content.content)
    files.fails_write = lambda file: None
    for number in range(3, 8):
        death.ledger.publish(broker, "t", [Message(b"v%d" % number, None, "a", None, number)])
    store.catalog.close()
    verify_in(PowerCut(), death, place / "world")


def files_of(death: Death) -> Path:
    return death.home / "store" / "topics" / "000000001"
