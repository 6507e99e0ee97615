"""How a broker says it is doing: every topic at one moment, whatever happens to it meanwhile."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from headrace.broker import Broker
from headrace.core.errors import OutcomeUnknown, StoreUnavailable
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions
from tests.broker.messages import batch, content
from tests.broker.sites import Site


def test_every_topic_tells_its_sizes_counters_and_groups(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2, deduplication="payload")
    broker.create_topic("empty")
    broker.publish("orders", batch(b"a", b"b", b"c", producer_id=["p", "q", None]))
    broker.fetch("orders", 0, 0)
    broker.register_group("orders", "readers", consumers=1)
    with broker.reader("orders").watching(lambda: None):
        orders, empty = broker.topic_metrics()
    assert (orders.name, empty.name) == ("orders", "empty")
    assert (orders.sources, orders.window_payloads, orders.waiting_readers, orders.queued_messages) == (2, 3, 1, 0)
    assert sum(end for _, end in orders.offsets.values()) == 3
    assert [group.lag_messages for group in orders.groups] == [3]
    assert orders.counters["messages_written"] == 3
    assert orders.bytes_stored > 0
    assert (empty.offsets, empty.groups) == ({0: (0, 0)}, [])


def test_a_topic_or_group_that_ends_meanwhile_is_passed_over(broker: Broker) -> None:
    for name in ("orders", "fine"):
        broker.create_topic(name)
        broker.register_group(name, "readers")
    ending, fine = broker.topics.find("orders"), broker.topics.find("fine")
    known = fine.groups.all()
    broker.delete_topic("orders")
    broker.delete_group("fine", "readers")
    # As one finds them who began before.
    broker._topics._topics = {"orders": ending, **broker._topics._topics}
    fine.groups.all = lambda: known  # type: ignore[method-assign]
    assert [(topic_metrics.name, topic_metrics.groups) for topic_metrics in broker.topic_metrics()] == [("fine", [])]
    # Where servers share the store, notifications of the deletion may have taken it out already.
    broker._topics._topics.pop("orders", None)


class TiredFiles(FileSystem):
    """An operating system that can be told not to sync."""

    def __init__(self) -> None:
        self.is_tired = False

    def sync(self, handle: int) -> None:
        if self.is_tired:
            raise OSError(errno.EIO, "sync")
        super().sync(handle)


def test_a_topic_whose_log_failed_says_why_and_can_be_read(durable_site: Site) -> None:
    files = TiredFiles()
    broker = durable_site.open(store=DiskStore(durable_site.directory, DiskOptions(), files))
    broker.create_topic("orders")
    broker.create_topic("fine")
    broker.publish("orders", batch(b"a"))
    assert broker.failing_topics() == {}
    files.is_tired = True
    with pytest.raises(OutcomeUnknown):
        broker.publish("orders", batch(b"b"))
    files.is_tired = False
    assert list(broker.failing_topics()) == ["orders"]
    assert "sync" in broker.failing_topics()["orders"]
    assert content(broker, "orders") == {0: [b"a"]}
    broker.publish("fine", batch(b"c"))
    assert [topic_metrics.name for topic_metrics in broker.topic_metrics()] == ["orders", "fine"]


def test_a_file_that_cannot_be_asked_for_is_an_error_of_the_store(disk_site: Site) -> None:
    broker = disk_site.open()
    broker.create_topic("orders")
    for _ in range(8):
        broker.publish("orders", batch(b"a"))
    next(disk_site.directory.rglob("00000000000000000000.log")).unlink()
    for ask in (partial(broker.describe_topic, "orders"), broker.topic_metrics):
        with pytest.raises(StoreUnavailable, match="'orders'"):
            ask()
