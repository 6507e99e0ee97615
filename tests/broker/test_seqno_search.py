"""A message is found by its source and seqno, near the end of its partition."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.read import seqno_search
from tests.broker.sites import Site

SOURCE = ("till-7", "a")


def publish(broker: Broker, *rows: tuple[str | None, str | None, int | None], partition: int = 0) -> None:
    """Messages of these producers and groups with these seqnos."""
    producers, groups, seqnos = zip(*rows, strict=True)
    columns = {
        "value": pa.array([b"x" * 100] * len(rows)),
        "producer_id": pa.array(producers, pa.string()),
        "message_group_id": pa.array(groups, pa.string()),
        "seqno": pa.array(seqnos, pa.int64()),
        "partition": pa.array([partition] * len(rows), pa.int32()),
    }
    broker.publish("t", pa.record_batch(columns))


def test_messages_of_a_source_among_those_of_others(site: Site) -> None:
    broker = site.open()
    broker.create_topic("t", 2)
    publish(broker, *[(*SOURCE, seqno) for seqno in range(10, 15)])
    for number in range(40):
        publish(broker, ("till-7", "b", 10 + number), (None, None, None), ("till-8", "a", 10 + number))
    publish(broker, *[(*SOURCE, seqno) for seqno in (20, 30)])
    publish(broker, ("till-7", None, 12))
    publish(broker, (*SOURCE, 40), partition=1)
    reader = broker.reader("t")
    offsets = {10: 0, 12: 2, 14: 4, 20: 125, 30: 126}
    assert {seqno: reader.offset_of(0, SOURCE, seqno) for seqno in offsets} == offsets
    assert [reader.offset_of(0, SOURCE, seqno) for seqno in (9, 15, 25, 31, 40)] == [None] * 5
    assert reader.offset_of(1, SOURCE, 40) == 0
    assert reader.offset_of(0, ("till-7", ""), 12) == 127
    assert reader.offset_of(0, ("never", ""), 12) is None


def test_what_was_deleted_is_not_found(site: Site) -> None:
    broker = site.open()
    broker.create_topic("t")
    assert broker.reader("t").offset_of(0, SOURCE, 1) is None
    publish(broker, *[(*SOURCE, seqno) for seqno in range(10)])
    broker.delete_messages("t", {0: 5})
    assert [broker.reader("t").offset_of(0, SOURCE, seqno) for seqno in (4, 5, 9)] == [None, 5, 9]


def test_the_search_has_limits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = site.open()
    broker.create_topic("t")
    for number in range(10):
        publish(broker, *[(*SOURCE, number * 100 + seqno) for seqno in range(100)])
    reader = broker.reader("t")
    assert reader.offset_of(0, SOURCE, 0) == 0
    monkeypatch.setattr(seqno_search, "SEQNO_SEARCH_MESSAGES", 500)
    assert [reader.offset_of(0, SOURCE, seqno) for seqno in (500, 499)] == [500, None]
    # The first two looks take 16 and 64 messages of 100 bytes.
    monkeypatch.setattr(seqno_search, "SEQNO_SEARCH_BYTES", 10_000)
    assert [reader.offset_of(0, SOURCE, seqno) for seqno in (999, 984, 920, 800)] == [999, 984, 920, None]
