"""A client that reads several topics gets messages of each of them, whatever else is in its fetch session."""

from __future__ import annotations

import kafka
import pyarrow as pa

from tests.protocols.kafka.conftest import Site

MESSAGES = 2_000
VALUE = bytes(1_000)


def test_no_topic_waits_for_another_one(site: Site) -> None:
    """kafka-python leaves partitions out of its session while it has messages of them, and adds them again."""
    site.broker.create_topic("fair-a", 2)
    site.broker.create_topic("fair-b")
    rows = {"value": [VALUE] * MESSAGES}
    # Partition 0 of the first topic stays idle.
    site.broker.publish("fair-a", pa.record_batch({**rows, "partition": pa.array([1] * MESSAGES, pa.int32())}))
    site.broker.publish("fair-b", pa.record_batch(rows))
    reader = kafka.KafkaConsumer(
        bootstrap_servers=site.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=20_000,
        max_partition_fetch_bytes=20_000,
    )
    counts = {"fair-a": 0, "fair-b": 0}
    try:
        reader.assign(
            [kafka.TopicPartition("fair-a", number) for number in (0, 1)] + [kafka.TopicPartition("fair-b", 0)]
        )
        while sum(counts.values()) < MESSAGES:
            for place, messages in reader.poll(1000).items():
                counts[place.topic] += len(messages)
    finally:
        reader.close()
    # Each about half: rotation gives them the same but for a few fetches.
    assert min(counts.values()) > MESSAGES // 3, counts
