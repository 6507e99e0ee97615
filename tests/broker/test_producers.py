"""Producers of one source: the newest writes, those before are fenced off."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import InvalidInput, ProducerFenced
from tests.broker.background import Background, open_gated, until_queued
from tests.broker.messages import batch, content, numbered
from tests.broker.sites import Site


def test_opening_tells_what_the_topic_takes_and_where_the_source_is() -> None:
    with Broker.open("memory:") as broker:
        broker.create_topic("orders", partitions=3, message_bytes_max=99, deduplication="off")
        opening = broker.open_producer("orders")
        assert (opening.epoch, opening.last_seqno, opening.partitions) == (0, None, 3)
        assert (opening.message_bytes_max, opening.drops_duplicates) == (99, False)
        rows = pa.record_batch({"value": [b"v"], "producer_id": ["p"], "seqno": [7]})
        epoch = broker.open_producer("orders", "p").epoch
        assert broker.publish_as("orders", rows, "p", "", epoch).written == 1
        again = broker.open_producer("orders", "p")
        assert (opening.partition, again.last_seqno, again.partition) == (None, 7, 0)
        with pytest.raises(ProducerFenced):
            broker.publish_as("orders", rows, "p", "", epoch)


@pytest.mark.parametrize("epoch", [-1, 1 << 63, "7", 1.5])
def test_an_epoch_that_is_none_is_refused_before_it_meets_others(broker: Broker, epoch: Any) -> None:
    broker.create_topic("orders")
    rows = pa.record_batch({"value": [b"v"]})
    with pytest.raises(InvalidInput, match="epoch"):
        broker.publish_as("orders", rows, "p", "", epoch)
    with pytest.raises(InvalidInput, match="epoch"):
        broker.open_producer("orders", "p", epoch=epoch)


def test_epochs_grow_even_if_the_clock_stands_still(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    first = broker.open_producer("orders", "p").epoch
    second = broker.open_producer("orders", "p").epoch
    assert second > first
    assert broker.open_producer("orders", "p", epoch=second).epoch == second
    with pytest.raises(ProducerFenced) as fenced:
        broker.open_producer("orders", "p", epoch=first)
    assert (fenced.value.epoch, fenced.value.current) == (first, second)


def test_a_producer_that_is_not_known_is_taken_at_its_word(broker: Broker) -> None:
    """As after a restart of a store that one server owns, which keeps no epochs."""
    broker.create_topic("orders")
    assert broker.open_producer("orders", "p", epoch=500).epoch == 500
    broker.publish_as("orders", batch(b"newer"), "p", "", 700)
    with pytest.raises(ProducerFenced):
        broker.publish_as("orders", batch(b"older"), "p", "", 500)
    assert broker.publish_as("orders", batch(b"other group"), "p", "g", 500).written == 1


def test_opening_waits_for_what_is_being_written_and_what_comes_later_is_refused(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", partitions=1)
    epoch = broker.open_producer("orders", "p").epoch
    store.gate.clear()
    writing = Background(partial(broker.publish_as, "orders", numbered(b"1"), "p", "", epoch))
    until_queued(broker, "orders", 1)
    opening = Background(partial(broker.open_producer, "orders", "p"))
    store.gate.set()
    opened = opening.result()
    # One of them came first: either the new producer knows what the old one wrote, or that was refused.
    try:
        assert writing.result().written == 1
        written = 1
    except ProducerFenced:
        written = 0
    assert opened.last_seqno == (1 if written else None)
    with pytest.raises(ProducerFenced):
        broker.publish_as("orders", numbered(b"2", first=2), "p", "", epoch)
    assert broker.publish_as("orders", numbered(b"2", first=2), "p", "", opened.epoch).written == 1


def test_a_fenced_producer_in_a_group_commit_fails_alone(site: Site) -> None:
    broker, store = open_gated(site)
    broker.create_topic("orders", partitions=1)
    epochs = {name: broker.open_producer("orders", name).epoch for name in "abc"}
    broker.open_producer("orders", "b")
    store.gate.clear()
    first = Background(partial(broker.publish, "orders", batch(b"first")))
    until_queued(broker, "orders", 1)
    publishers = []
    for place, (name, epoch) in enumerate(epochs.items()):
        publishers.append(Background(partial(broker.publish_as, "orders", batch(name.encode()), name, "", epoch)))
        until_queued(broker, "orders", place + 2)
    store.gate.set()
    assert first.result().written == 1
    with pytest.raises(ProducerFenced):
        publishers[1].result()
    assert [publishers[place].result().offset.tolist() for place in (0, 2)] == [[1], [2]]
    assert content(broker, "orders") == {0: [b"first", b"a", b"c"]}
