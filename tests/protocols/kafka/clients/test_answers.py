"""What clients are told beside offsets: times, where a log begins, and errors that nobody waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiokafka
import confluent_kafka as confluent
import kafka
import pyarrow as pa
import pytest

from headrace.broker.read.topic_reader import TopicReader
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import built
from tests.protocols.kafka.test_clients import PATIENCE_SECONDS, produce

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
NONE, OFFSET_OUT_OF_RANGE = 0, 1
# Longer than a test may take: an answer that waited for it would fail the test.
LONG_MS = 600_000


async def sent(site: Site, topic: str) -> Any:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=site.bootstrap) as producer:
        return await producer.send_and_wait(topic, b"x", timestamp_ms=1_000)


def test_a_producer_is_told_the_time_that_counts_and_where_the_log_begins(site: Site) -> None:
    site.broker.create_topic("told")
    produce(site, "told", 3)
    site.broker.delete_messages("told", {0: 2})
    told = asyncio.run(sent(site, "told"))
    assert (told.offset, told.timestamp, told.timestamp_type, told.log_start_offset) == (3, 1_000, 0, 2)
    site.broker.alter_topic("told", timestamp_type="broker")
    before_ms = time.time_ns() // 1_000_000
    told = asyncio.run(sent(site, "told"))
    stored = site.broker.fetch("told", 0, 4).column("timestamp").cast("int64")[0].as_py()
    assert (told.offset, told.timestamp, told.timestamp_type) == (4, stored // 1_000, 1)
    assert before_ms <= told.timestamp


def test_times_of_many_partitions_are_looked_up_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.broker.create_topic("many-times", 50, timestamp_type="broker")
    calls: list[int] = []
    times_of = TopicReader.times_of

    def counted(self: TopicReader, positions: Mapping[int, int]) -> dict[int, int]:
        calls.append(len(positions))
        return times_of(self, positions)

    monkeypatch.setattr(TopicReader, "times_of", counted)
    data = [{"index": number, "records": built([(1_000, None, b"x", [])])} for number in range(50)]
    with RawClient(site.port) as client:
        topics = [{"name": "many-times", "partition_data": data}]
        answer = client.call(PRODUCE, 9, acks=-1, timeout=1000, topic_data=topics)
    parts = answer.responses[0].partition_responses
    assert {each.error_code for each in parts} == {NONE} and {each.log_start_offset for each in parts} == {0}
    stored = site.broker.fetch("many-times", 7, 0).column("timestamp").cast("int64")[0].as_py()
    assert {each.log_append_time for each in parts} == {stored // 1_000}
    assert calls == [50]


def fetched(client: RawClient, topic: str, offset: int, session_epoch: int, **more: Any) -> tuple[list[int], bool]:
    """The errors of a fetch, and whether it brought records."""
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    fields = {"max_wait": LONG_MS, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": session_epoch, **more}
    answer = client.call(FETCH, 11, topics=[{"topic": topic, "partitions": partitions}], **fields)
    parts = [part for each in answer.responses for part in each.partitions]
    return [part.error_code for part in parts], any(part.records for part in parts)


def test_a_fetch_that_wants_nothing_waits_for_nothing(site: Site) -> None:
    site.broker.create_topic("at-once")
    produce(site, "at-once", 3)
    with RawClient(site.port) as client:
        for epoch in (-1, 0):
            assert fetched(client, "at-once", 3, epoch, min_bytes=0) == ([NONE], False)
            assert fetched(client, "at-once", 0, epoch, min_bytes=0) == ([NONE], True)


def test_a_fetch_above_the_end_waits_for_nothing(site: Site) -> None:
    site.broker.create_topic("above", 20)
    with RawClient(site.port) as client:
        for epoch in (-1, 0):
            assert fetched(client, "above", 4, epoch, min_bytes=1) == ([OFFSET_OUT_OF_RANGE], False)
        # Of many partitions one is enough.
        partitions = [
            {"partition": number, "fetch_offset": 4 if number == 7 else 0, "partition_max_bytes": 1}
            for number in range(20)
        ]
        fields = {"max_wait": LONG_MS, "min_bytes": 1, "max_bytes": 1, "session_epoch": -1}
        (topic,) = client.call(FETCH, 11, topics=[{"topic": "above", "partitions": partitions}], **fields).responses
        assert [each.partition_index for each in topic.partitions if each.error_code == OFFSET_OUT_OF_RANGE] == [7]


def found_at(client: RawClient, topic: str, *times_ms: int) -> list[tuple[int, int]]:
    """The offset and the time at each of these times, in partition 0."""
    found = []
    for time_ms in times_ms:
        partitions = [{"partition_index": 0, "timestamp": time_ms, "current_leader_epoch": -1}]
        topics = [{"name": topic, "partitions": partitions}]
        (answer,) = client.call(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics).topics
        found.append((answer.partitions[0].offset, answer.partitions[0].timestamp))
    return found


def test_a_time_is_looked_for_among_those_of_producers(site: Site) -> None:
    site.broker.create_topic("times", 2)
    producer = confluent.Producer({"bootstrap.servers": site.bootstrap})
    for number in range(3_000):
        producer.produce("times", b"x", partition=0, timestamp=1_000_000 + number)
        producer.produce("times", b"x", partition=1, timestamp=5_000)
    assert producer.flush(PATIENCE_SECONDS) == 0
    with RawClient(site.port) as client:
        times = 0, 1_000_000, 1_002_500, 1_002_999, 1_003_000
        expected = [(0, 1_000_000), (0, 1_000_000), (2_500, 1_002_500), (2_999, 1_002_999), (-1, -1)]
        assert found_at(client, "times", *times) == expected
    reader = kafka.KafkaConsumer(bootstrap_servers=site.bootstrap)
    try:
        places = [kafka.TopicPartition("times", number) for number in range(2)]
        found = reader.offsets_for_times({places[0]: 1_000_777, places[1]: 5_001})
        assert (found[places[0]].offset, found[places[0]].timestamp, found[places[1]]) == (777, 1_000_777, None)
    finally:
        reader.close()
    site.broker.alter_topic("times", timestamp_type="broker")
    with RawClient(site.port) as client:
        assert found_at(client, "times", 1_002_500)[0][0] == 0


def test_a_time_is_not_looked_for_for_ever(site: Site) -> None:
    """Messages that were created before it and are stored after it are read for a while; none is passed over."""
    site.broker.create_topic("old")
    rows = 60_000
    batch = {"value": [bytes(300)] * rows, "created_at": pa.array([1_000_000] * rows, pa.timestamp("us", "UTC"))}
    site.broker.publish("old", pa.record_batch(batch))
    last = {"value": [b"x"], "created_at": pa.array([9_000_000], pa.timestamp("us", "UTC"))}
    site.broker.publish("old", pa.record_batch(last))
    with RawClient(site.port) as client:
        ((offset, _),) = found_at(client, "old", 2_000)
        assert 10_000 < offset <= rows
        assert found_at(client, "old", 1_000) == [(0, 1_000)]
