"""Clients of Apache Kafka as they come from PyPI: confluent-kafka (librdkafka), aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka as confluent
import kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.protocols.kafka.conftest import Site

PATIENCE_SECONDS = 120.0
COUNT = 200


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, "it did not happen"


def produce(site: Site, topic: str, count: int = COUNT, **more: Any) -> list[Any]:
    """Produce messages, all at once; what was delivered."""
    delivered: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": site.bootstrap, **more})
    for number in range(count):
        producer.produce(
            topic,
            b"value %d" % number,
            key=b"key %d" % (number % 7),
            on_delivery=lambda error, message: delivered.append((error, message.partition(), message.offset())),
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    return delivered


class Member:
    """A consumer of confluent-kafka in a group, polled in a thread until it is closed."""

    def __init__(self, site: Site | str, group: str, topics: list[str], **more: Any) -> None:
        self.values: list[bytes] = []
        self.assigned: set[int] = set()
        self._is_over = threading.Event()
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": site if isinstance(site, str) else site.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 30_000,
                **more,
            }
        )
        self._consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None
                self.values.append(message.value())
            self.assigned = {each.partition for each in self._consumer.assignment()}
        self._consumer.close()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_confluent_produces_and_consumes_in_a_group(site: Site) -> None:
    site.broker.create_topic("confluent", 4)
    delivered = produce(site, "confluent")
    assert len(delivered) == COUNT and all(error is None for error, _, _ in delivered)
    ends = {partition: end for partition, (_, end) in site.broker.offsets("confluent").items()}
    assert sum(ends.values()) == COUNT
    member = Member(site, "billing", ["confluent"])
    until(lambda: len(member.values) >= COUNT)
    member.close()
    assert sorted(member.values) == sorted(b"value %d" % number for number in range(COUNT))
    assert site.broker.committed("confluent", "billing") == {part: end for part, end in ends.items() if end}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go(site: Site, strategy: str) -> None:
    topic = f"rebalance-{strategy}"
    site.broker.create_topic(topic, 4)
    more = {"partition.assignment.strategy": strategy}
    first = Member(site, topic, [topic], **more)
    until(lambda: len(first.assigned) == 4)
    second = Member(site, topic, [topic], **more)
    until(lambda: len(first.assigned) == 2 and len(second.assigned) == 2 and not first.assigned & second.assigned)
    produce(site, topic)
    until(lambda: len(first.values) + len(second.values) >= COUNT)
    first.close()
    until(lambda: len(second.assigned) == 4)
    produce(site, topic)
    until(lambda: len(first.values) + len(second.values) >= 2 * COUNT)
    second.close()
    assert len(first.values) + len(second.values) == 2 * COUNT


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_by_librdkafka(site: Site, codec: str) -> None:
    topic = f"compressed-{codec}"
    site.broker.create_topic(topic)
    more: dict[str, Any] = {"compression.type": codec, "linger.ms": 50}
    produce(site, topic, **more)
    values = site.broker.fetch(topic, 0, 0).column("value").to_pylist()
    assert values == [b"value %d" % number for number in range(COUNT)]


def test_acknowledgements_of_all_kinds(site: Site) -> None:
    site.broker.create_topic("acks")
    for place, acks in enumerate(("all", "1", "0")):
        produce(site, "acks", 10, acks=acks)
        until(lambda place=place: site.broker.offsets("acks")[0][1] == 10 * (place + 1))  # type: ignore[misc]


def test_idempotent_producers_write_in_order(site: Site) -> None:
    site.broker.create_topic("idempotent", 2)
    more: dict[str, Any] = {"enable.idempotence": True, "batch.num.messages": 20}
    delivered = produce(site, "idempotent", 500, **more)
    assert len(delivered) == 500 and all(error is None for error, _, _ in delivered)
    for partition in range(2):
        batch = site.broker.fetch("idempotent", partition, 0)
        assert batch.column("seqno").to_pylist() == list(range(batch.num_rows))
        numbers = [int(value.split()[1]) for value in batch.column("value").to_pylist()]
        assert numbers == sorted(numbers)


def test_administration(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    made = NewTopic("managed", 2, config={"retention.ms": "60000", "cleanup.policy": "delete"})
    admin.create_topics([made])["managed"].result(PATIENCE_SECONDS)
    assert site.broker.describe_topic("managed").settings.retention_seconds == 60
    for wrong, code in (
        (made, "TOPIC_ALREADY_EXISTS"),
        (NewTopic("other", 1, replication_factor=3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("other", 1, config={"cleanup.policy": "compact"}), "INVALID_CONFIG"),
        (NewTopic("other", 1, config={"segment.ms": "0"}), "INVALID_CONFIG"),
        (NewTopic("other", 0), "INVALID_PARTITIONS"),
        (NewTopic("a\nb", 1), "TOPIC_EXCEPTION"),
    ):
        with pytest.raises(confluent.KafkaException) as caught:
            admin.create_topics([wrong])[wrong.topic].result(PATIENCE_SECONDS)
        assert code in caught.value.args[0].name()
    admin.create_partitions([NewPartitions("managed", 5)])["managed"].result(PATIENCE_SECONDS)
    assert len(admin.list_topics("managed").topics["managed"].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, "managed")
    (configs,) = admin.describe_configs([resource]).values()
    assert configs.result(PATIENCE_SECONDS)["retention.ms"].value == "60000"
    admin.delete_topics(["managed"])["managed"].result(PATIENCE_SECONDS)
    assert "managed" not in site.broker.list_topics()


def test_groups_are_listed_described_and_deleted(site: Site) -> None:
    site.broker.create_topic("grouped")
    produce(site, "grouped", 3)
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    member = Member(site, "watched", ["grouped"])
    until(lambda: len(member.values) == 3)
    (described,) = admin.describe_consumer_groups(["watched"]).values()
    found = described.result(PATIENCE_SECONDS)
    assert found.state.name == "STABLE" and len(found.members) == 1
    assert [each.partition for each in found.members[0].assignment.topic_partitions] == [0]
    with pytest.raises(confluent.KafkaException):
        admin.delete_consumer_groups(["watched"])["watched"].result(PATIENCE_SECONDS)
    member.close()
    listed = admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
    assert "watched" in [group.group_id for group in listed]
    admin.delete_consumer_groups(["watched"])["watched"].result(PATIENCE_SECONDS)
    assert site.broker.list_groups("grouped") == []


def test_records_are_deleted(site: Site) -> None:
    site.broker.create_topic("shortened", 2)
    for partition, count in ((0, 5), (1, 3)):
        rows = {"value": [b"%d" % number for number in range(count)], "partition": [partition] * count}
        site.broker.publish("shortened", pa.record_batch(rows))
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    first, second, end = (
        confluent.TopicPartition("shortened", *place) for place in ((0, 2), (1, 9), (1, confluent.OFFSET_END))
    )
    deleted = admin.delete_records([first, second])
    assert deleted[first].result(PATIENCE_SECONDS).low_watermark == 2
    with pytest.raises(confluent.KafkaException) as caught:
        deleted[second].result(PATIENCE_SECONDS)
    assert caught.value.args[0].code() == confluent.KafkaError.OFFSET_OUT_OF_RANGE
    assert admin.delete_records([end])[end].result(PATIENCE_SECONDS).low_watermark == 3
    assert site.broker.offsets("shortened") == {0: (2, 5), 1: (3, 3)}
    consumer = confluent.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "x", "auto.offset.reset": "error"})
    assert consumer.get_watermark_offsets(confluent.TopicPartition("shortened", 0), PATIENCE_SECONDS) == (2, 5)
    consumer.close()
    python = kafka.KafkaAdminClient(bootstrap_servers=site.bootstrap)
    place = kafka.TopicPartition("shortened", 0)
    assert python.delete_records({place: 4})[place]["low_watermark"] == 4
    python.close()
    assert site.broker.fetch("shortened", 0, 4).column("value").to_pylist() == [b"4"]


def test_aiokafka(site: Site) -> None:
    asyncio.run(_aiokafka(site))


async def _aiokafka(site: Site) -> None:
    site.broker.create_topic("aiokafka", 2)
    place = aiokafka.TopicPartition("aiokafka", 1)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=site.bootstrap, acks="all") as producer:
        headers = [("kind", b"sale"), ("kind", b"again")]
        sent = await producer.send_and_wait("aiokafka", b"first", key=b"k", partition=1, headers=headers)
        assert (sent.partition, sent.offset) == (1, 0)
        await producer.send_and_wait("aiokafka", b"second", partition=1)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=site.bootstrap, group_id="aio", enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([place])
        message = await consumer.getone()
        assert (message.key, message.value, list(message.headers)) == (b"k", b"first", headers)
        await consumer.commit({place: 1})
        assert await consumer.committed(place) == 1
        assert await consumer.end_offsets([place]) == {place: 2}
        later_ms = (await consumer.getone()).timestamp
        found = await consumer.offsets_for_times({place: later_ms - 60_000})
        assert found[place].offset == 0
        assert await consumer.offsets_for_times({place: later_ms + 3_600_000}) == {place: None}
        # Kafka lets a commit move back.
        await consumer.commit({place: 0})
    finally:
        await consumer.stop()
    assert site.broker.committed("aiokafka", "aio") == {1: 0}


def test_kafka_python(site: Site) -> None:
    site.broker.create_topic("python")
    producer = kafka.KafkaProducer(bootstrap_servers=site.bootstrap, enable_idempotence=True)
    sent = [producer.send("python", b"%d" % number).get(PATIENCE_SECONDS).offset for number in range(5)]
    producer.close()
    assert sent == [0, 1, 2, 3, 4]
    consumer = kafka.KafkaConsumer(
        "python", bootstrap_servers=site.bootstrap, group_id="python", auto_offset_reset="earliest"
    )
    values = [next(consumer).value for _ in range(5)]
    consumer.commit()
    consumer.close()
    assert values == [b"0", b"1", b"2", b"3", b"4"]
    assert site.broker.committed("python", "python") == {0: 5}


def test_one_topic_through_all_doors(site: Site) -> None:
    """What native producers write, compressed or not, Kafka's consumers read, and the other way round."""
    site.broker.create_topic("doors")
    packed = pa.Codec("gzip").compress(b"packed", asbytes=True)
    columns = {
        "value": pa.array([b"plain", packed, b"broken"], pa.binary()),
        "codec": pa.array([None, "gzip", "zstd"]),
        "key": pa.array([b"", None, b"k"], pa.binary()),
    }
    site.broker.publish("doors", pa.RecordBatch.from_pydict(columns))
    consumer = confluent.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "doors"})
    consumer.assign([confluent.TopicPartition("doors", 0, 0)])
    read: list[Any] = []
    until(lambda: read.extend(consumer.consume(10, 0.1)) or len(read) >= 3)  # type: ignore[func-returns-value]
    assert [(each.key(), each.value()) for each in read] == [(b"", b"plain"), (None, b"packed"), (b"k", b"broken")]
    consumer.seek(confluent.TopicPartition("doors", 0, 2))
    last: list[Any] = []
    until(lambda: last.extend(consumer.consume(1, 0.1)) or bool(last))  # type: ignore[func-returns-value]
    assert last[0].offset() == 2
    consumer.close()


def test_native_producers_place_keys_as_clients_do(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.create_topics([NewTopic("keyed", 5)])["keyed"].result(PATIENCE_SECONDS)
    produce(site, "keyed", 30, partitioner="murmur2_random")
    keys = [b"key %d" % number for number in range(7)]
    columns = {"value": pa.array([b"native"] * 7), "key": pa.array(keys)}
    site.broker.publish("keyed", pa.RecordBatch.from_pydict(columns))
    places: dict[bytes, set[int]] = {}
    for partition in range(5):
        for key in site.broker.fetch("keyed", partition, 0).column("key").to_pylist():
            places.setdefault(key, set()).add(partition)
    assert {key: len(found) for key, found in places.items()} == dict.fromkeys(keys, 1)


def test_topics_that_clients_ask_for_are_created(site: Site) -> None:
    produce(site, "asked-for", 1)
    assert site.broker.offsets("asked-for")[0] == (0, 1)


def test_a_group_moves_to_the_native_client_and_back(site: Site) -> None:
    """Committed offsets are the same: nothing is lost, and nothing that was committed comes again."""
    site.broker.create_topic("moved")
    produce(site, "moved", 10)
    member = Member(site, "movers", ["moved"])
    until(lambda: len(member.values) == 10)
    member.close()
    produce(site, "moved", 10)
    joined = site.broker.join_group("moved", "movers", "native")
    read = site.broker.reader("moved").read_as_member("movers", "native", joined.generation, {}, 100, 1 << 20)
    assert [batch.num_rows for batch in read.batches] == [10]
    site.broker.commit_offsets("moved", "movers", {0: 20}, "native", joined.generation)
    site.broker.leave_group("moved", "movers", "native")
    produce(site, "moved", 5)
    member = Member(site, "movers", ["moved"])
    until(lambda: len(member.values) == 5)
    member.close()
    assert site.broker.committed("moved", "movers") == {0: 25}


def test_a_group_with_native_members_is_not_joined(site: Site) -> None:
    site.broker.create_topic("native")
    site.broker.join_group("native", "taken", "a native member")
    consumer = confluent.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "taken"})
    consumer.subscribe(["native"])
    errors: list[Any] = []
    until(lambda: errors.extend(consumer.consume(1, 0.1)) or bool(errors))  # type: ignore[func-returns-value]
    consumer.close()
    assert errors[0].error().name() == "INCONSISTENT_GROUP_PROTOCOL"
    site.broker.leave_group("native", "taken", "a native member")
