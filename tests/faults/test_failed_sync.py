"""The device refuses a sync: whether the commit survives is unknown, and nothing more is acknowledged on top of it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, LogFailed, OutcomeUnknown
from headrace.core.publish.state import CommitKey
from headrace.storage.disk.engine import DiskStore
from tests.faults.crashes import DAY_US, Death, ManualClock, verify_in
from tests.faults.filesystems import FailingFileSystem, PowerCut, SimulatedDisk, SimulatedFileSystem
from tests.faults.invariants import TINY, Ledger, Message, batch_of, check, opened, read_all, settle, verify

SYNC = frozenset({"sync"})


def source(name: str, *seqnos: int) -> list[Message]:
    return [Message(b"%s-%d" % (name.encode(), seqno), None, name, None, seqno) for seqno in seqnos]


class Site:
    """A store with two topics on a file system that can fail, and the book of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = FailingFileSystem()
        self.ledger = Ledger()
        self.broker = Broker(DiskStore(directory, TINY, self.files))
        for topic in ("t", "other"):
            self.ledger.create_topic(self.broker, topic, 2)
            self.ledger.publish(self.broker, topic, source("a", 1, 2))
        self.broker.register_group("t", "readers")

    def fail(self, messages: list[Message], key: CommitKey | None = None, skip: int = 0) -> OutcomeUnknown:
        """Publish with a sync that fails."""
        with self.files.failing(errno.EIO, SYNC, ".log", skip), pytest.raises(OutcomeUnknown) as caught:
            self.ledger.publish(self.broker, "t", messages, key)
        assert self.files.hits
        return caught.value


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    site = Site(place / "store")
    yield site
    site.broker.close()


def test_the_outcome_is_unknown_and_the_topic_takes_no_more(site: Site) -> None:
    error = site.fail(source("a", 3))
    assert (error.topic, error.retry) == ("t", True)
    for _ in range(2):
        with pytest.raises(LogFailed) as caught:
            site.broker.publish("t", batch_of(source("b", 1)))
        assert (caught.value.topic, caught.value.retry) == ("t", True)


def test_reading_and_other_topics_continue(site: Site) -> None:
    site.fail(source("a", 3))
    check(site.broker, site.ledger, failed=["t"])
    assert site.broker.fetch("t", 0, 0).num_rows == 2
    # What may or may not be there is not shown.
    assert site.broker.fetch("t", 0, 2, wait_seconds=0.01).num_rows == 0
    site.ledger.commit(site.broker, "t", "readers", {0: 1})
    site.ledger.publish(site.broker, "other", source("a", 3, 4))
    site.broker.maintenance.run_all()
    check(site.broker, site.ledger, failed=["t"])


@pytest.mark.parametrize("key", [None, CommitKey("w", 1)], ids=["by seqno", "by commit key"])
def test_a_retry_after_reopening_ends_with_one_of_each(site: Site, key: CommitKey | None) -> None:
    messages = source("a", 3, 4) if key is None else [Message(b"x"), Message(b"y")]
    site.fail(messages, key)
    site.broker.close()
    with opened(site.directory) as broker:
        settle(broker, site.ledger)
        settle(broker, site.ledger)
        again = broker.publish("t", batch_of(messages), key)
        assert again.written == 0
    verify(site.directory, site.ledger)


def test_publishers_that_wait_together_all_learn_of_it(site: Site) -> None:
    """Each is told that its outcome is unknown or that nothing was written, and repeats it after reopening."""
    names = [f"p{number}" for number in range(8)]
    started = threading.Barrier(len(names))
    outcomes: dict[str, HeadraceError] = {}

    def publish(name: str) -> None:
        started.wait()
        try:
            site.broker.publish("t", batch_of(source(name, 1, 2)))
        except HeadraceError as error:
            outcomes[name] = error

    with site.files.failing(errno.EIO, SYNC, ".log"):
        threads = [threading.Thread(target=publish, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == names
    assert {type(error) for error in outcomes.values()} <= {OutcomeUnknown, LogFailed}
    assert any(isinstance(error, OutcomeUnknown) for error in outcomes.values())
    site.broker.close()
    unknown = {name for name, error in outcomes.items() if isinstance(error, OutcomeUnknown)}
    with opened(site.directory) as broker:
        for name in names:
            written = broker.publish("t", batch_of(source(name, 1, 2))).written
            assert written in ({0, 2} if name in unknown else {2})
            assert broker.last_seqno("t", name) == 2
    with opened(site.directory) as broker:
        values = [message.value for message in read_all(broker, "t").values()]
        assert sorted(values) == sorted(m.value for name in ["a", *names] for m in source(name, 1, 2))


def test_retention_leaves_a_failed_topic_alone(place: Path) -> None:
    files, clock, ledger = FailingFileSystem(), ManualClock(), Ledger()
    broker = Broker(DiskStore(place / "store", TINY, files), clock=clock)
    ledger.create_topic(broker, "t", 1, retention_seconds=60)
    for seqno in range(6):
        ledger.publish(broker, "t", source("a", seqno))
    with files.failing(errno.EIO, SYNC, ".log"), pytest.raises(OutcomeUnknown):
        ledger.publish(broker, "t", source("a", 6))
    clock.time_us += DAY_US
    names = {path.name for path in (place / "store" / "topics").glob("*/*")}
    broker.maintenance.run_all()
    assert {path.name for path in (place / "store" / "topics").glob("*/*")} == names
    broker.close()
    verify(place / "store", ledger, clock=clock)


def test_what_the_system_wrongly_takes_for_written_is_written_again(place: Path) -> None:
    """After a failed sync the bytes are in the page cache and taken for clean: the next sync does not write them."""
    (place / "home" / "store").mkdir(parents=True)
    files = SimulatedFileSystem(SimulatedDisk(place / "home"))
    death = Death(place / "home", files, Ledger(), ManualClock(), crashed=True)
    store = DiskStore(place / "home" / "store", TINY, files)
    broker = Broker(store, clock=death.clock)
    death.ledger.create_topic(broker, "t", 2)
    death.ledger.publish(broker, "t", source("a", 1))
    files.fails_sync = lambda file: True
    with pytest.raises(OutcomeUnknown):
        death.ledger.publish(broker, "t", source("a", 2, 3))
    store.catalog.close()
    store = DiskStore(place / "home" / "store", TINY, SimulatedFileSystem(death.disk))
    broker = Broker(store, clock=death.clock)
    check(broker, death.ledger)
    assert broker.publish("t", batch_of(source("a", 2, 3))).written == 0
    settle(broker, death.ledger)
    death.ledger.publish(broker, "t", source("a", 4))
    store.catalog.close()
    verify_in(PowerCut(), death, place / "world")
