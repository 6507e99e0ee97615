"""Producers of one source: the newest writes, those before are fenced off."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.publish import producers as producers_module
from headrace.broker.publish.producers import Producers
from headrace.core.errors import InvalidInput, Overloaded, ProducerFenced

SOURCE = (1, "p", "")


def test_opening_tells_what_the_topic_takes_and_where_the_source_is() -> None:
    with Broker.open("memory:") as broker:
        broker.create_topic("orders", partitions=3, message_bytes_max=99, deduplication="off")
        opening = broker.open_producer("orders")
        assert (opening.epoch, opening.last_seqno, opening.partitions) == (0, None, 3)
        assert (opening.message_bytes_max, opening.drops_duplicates) == (99, False)
        rows = pa.record_batch({"value": [b"v"], "producer_id": ["p"], "seqno": [7]})
        epoch = broker.open_producer("orders", "p").epoch
        assert broker.publish_as("orders", rows, "p", "", epoch).written == 1
        assert broker.open_producer("orders", "p").last_seqno == 7
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


def test_epochs_grow_even_if_the_clock_stands_still() -> None:
    producers = Producers()
    first = producers.open("t", SOURCE, None, 1000, 1.0)
    second = producers.open("t", SOURCE, None, 1000, 1.0)
    assert second > first
    assert producers.open("t", SOURCE, second, 1000, 1.0) == second
    with pytest.raises(ProducerFenced) as fenced:
        producers.open("t", SOURCE, first, 1000, 1.0)
    assert (fenced.value.epoch, fenced.value.current) == (first, second)


def test_after_a_restart_the_newest_that_comes_is_the_producer() -> None:
    producers = Producers()
    assert producers.open("t", SOURCE, 500, 1000, 1.0) == 500
    with producers.writing("t", SOURCE, 700):
        pass
    with pytest.raises(ProducerFenced), producers.writing("t", SOURCE, 500):
        pass


def test_opening_waits_for_what_is_being_written() -> None:
    producers = Producers()
    first = producers.open("t", SOURCE, None, 1000, 1.0)
    opened: list[float] = []
    with producers.writing("t", SOURCE, first):
        with pytest.raises(Overloaded):
            producers.open("t", SOURCE, None, 1000, 0.05)
        thread = threading.Thread(
            target=lambda: opened.append(producers.open("t", SOURCE, None, 1000, 60.0) and time.monotonic())
        )
        thread.start()
        time.sleep(0.1)
        ended = time.monotonic()
    thread.join(60)
    assert opened[0] >= ended


def test_the_one_opened_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_MAX", 2)
    producers = Producers()
    epochs = [producers.open("t", (1, name, ""), None, 1000, 1.0) for name in "abc"]
    assert producers.open("t", (1, "a", ""), epochs[0] - 5, 1000, 1.0) == epochs[0] - 5
