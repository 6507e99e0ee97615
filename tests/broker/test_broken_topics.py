"""Topics whose files are gone or unreadable: listed, each use says what is wrong, and the others work."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

import pytest

from headrace.broker import Broker
from headrace.core.errors import Damaged, HeadraceError, StorageError, StoreUnavailable
from tests.broker.messages import batch, content
from tests.broker.sites import Site


def broken(site: Site, break_it: Callable[[Site, int], None]) -> Broker:
    """A store with a topic that works and one that does not."""
    broker = site.open()
    for name in ("Broken", "fine"):
        broker.create_topic(name, partitions=2)
        broker.publish(name, batch(b"a", b"b"))
    topic_id = broker.describe_topic("broken").id
    broker.close()
    break_it(site, topic_id)
    return site.open()


def remove_files(site: Site, topic_id: int) -> None:
    shutil.rmtree(site.directory / "topics" / f"{topic_id:09d}")


def spoil_files(site: Site, topic_id: int) -> None:
    for path in (site.directory / "topics" / f"{topic_id:09d}").iterdir():
        path.write_bytes(b"rubbish")


def put_a_directory_in_place(site: Site, topic_id: int) -> None:
    path = next((site.directory / "topics" / f"{topic_id:09d}").glob("*.log"))
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("break_it", [remove_files, spoil_files, put_a_directory_in_place])
def test_it_is_listed_and_every_use_says_what_is_wrong(disk_site: Site, break_it: Callable[[Site, int], None]) -> None:
    broker = broken(disk_site, break_it)
    assert broker.list_topics() == ["Broken", "fine"]
    assert list(broker.failing_topics()) == ["Broken"]
    for use in (
        partial(broker.describe_topic, "broken"),
        partial(broker.publish, "broken", batch(b"a")),
        partial(broker.fetch, "broken", 0, 0),
        partial(broker.create_topic, "broken"),
        partial(broker.alter_topic, "broken", partitions=3),
        partial(broker.register_group, "broken", "g"),
        partial(broker.join_group, "broken", "g", "ann"),
    ):
        with pytest.raises(StorageError) as caught:
            use()
        assert isinstance(caught.value, Damaged | StoreUnavailable)
        assert str(caught.value)


@pytest.mark.parametrize("break_it", [remove_files, spoil_files])
def test_the_other_topics_work(disk_site: Site, break_it: Callable[[Site, int], None]) -> None:
    broker = broken(disk_site, break_it)
    assert content(broker, "fine") == {0: [b"a"], 1: [b"b"]}
    broker.publish("fine", batch(b"c"))
    broker.maintenance.run_all()
    broker.create_topic("new")
    broker = disk_site.reopen(broker)
    assert broker.list_topics() == ["Broken", "fine", "new"]
    assert content(broker, "fine") == {0: [b"a", b"c"], 1: [b"b"]}


@pytest.mark.parametrize("break_it", [remove_files, spoil_files])
def test_it_can_be_deleted_and_recreated(disk_site: Site, break_it: Callable[[Site, int], None]) -> None:
    broker = broken(disk_site, break_it)
    broker.delete_topic("BROKEN")
    assert broker.list_topics() == ["fine"]
    broker.create_topic("broken")
    broker.publish("broken", batch(b"new"))
    assert content(disk_site.reopen(broker), "broken") == {0: [b"new"]}


def test_the_error_does_not_grow_with_its_uses(disk_site: Site) -> None:
    """An error that is kept and raised again would keep the frames of all who met it."""
    broker = broken(disk_site, remove_files)

    def depth() -> int:
        with pytest.raises(HeadraceError) as caught:
            broker.describe_topic("broken")
        return len(caught.traceback)

    assert len({depth() for _ in range(5)}) == 1
