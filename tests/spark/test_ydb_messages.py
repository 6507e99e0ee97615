"""What YDB's SDK writes is the same for Kafka's client, for a native group, and for what Spark's tasks read with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import confluent_kafka as confluent
import ydb

import headrace
from headrace.spark.options import read_options
from headrace.spark.reader.batch_reader import plan_batch, row_reader
from tests.ports import ReservedPort
from tests.protocols.ydb.site import PATIENCE_SECONDS, YdbSite

COUNT = 40
# Value, and attributes in the order of their names.
Message = tuple[bytes, list[tuple[str, bytes]]]
WRITTEN: list[Message] = [
    (bytes([number % 256]) * number, [("kind", b"\xff\x00"), ("number", b"%d" % number)]) for number in range(COUNT)
]


def test_every_reader_finds_the_same(tmp_path: Path) -> None:
    with (
        ReservedPort() as kafka,
        closing(YdbSite(f"file:{tmp_path}/store", "--kafka", f"127.0.0.1:{kafka.number}")) as site,
        site.driver() as driver,
    ):
        topics = driver.topic_client
        topics.create_topic("/local/mixed", min_active_partitions=2, consumers=["ydb"])
        for producer in ("one", "two"):
            with topics.writer("/local/mixed", producer_id=producer, codec=ydb.TopicCodec.RAW) as writer:
                writer.write([ydb.TopicWriterMessage(value, metadata_items=dict(items)) for value, items in WRITTEN])
                writer.flush()
        by_kafka = _by_kafka(f"127.0.0.1:{kafka.number}")
        in_group = _in_group(site.server.url)
        in_spark = _in_spark(site.server.url)
    partitions = {partition for partition, _ in by_kafka}
    assert by_kafka == in_group == in_spark
    assert partitions == {0, 1} and len(by_kafka) == 2 * COUNT
    for partition in partitions:
        assert [by_kafka[partition, offset] for offset in range(COUNT)] == WRITTEN


def _by_kafka(address: str) -> dict[tuple[int, int], Message]:
    consumer = confluent.Consumer({"bootstrap.servers": address, "group.id": "kafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mixed"])
    found: dict[tuple[int, int], Message] = {}
    while len(found) < 2 * COUNT:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None and message.error() is None, message
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        found[partition, offset] = message.value() or b"", sorted(message.headers() or [])
    consumer.close()
    return found


def _in_group(url: str) -> dict[tuple[int, int], Message]:
    found: dict[tuple[int, int], Message] = {}
    with headrace.connect(url) as client, client.consumer("mixed", group="native") as consumer:
        while len(found) < 2 * COUNT:
            for row in consumer.poll(timeout=PATIENCE_SECONDS).to_pylist():
                found[row["partition"], row["offset"]] = row["value"], sorted(row["attributes"])
        consumer.commit()
    return found


def _in_spark(url: str) -> dict[tuple[int, int], Message]:
    options = read_options({"url": url, "topic": "mixed"})
    reader, _ = row_reader(options)
    rows = [row for split in plan_batch(options) for batch in reader.read(split) for row in batch.to_pylist()]
    return {(row["partition"], row["offset"]): (row["value"], sorted(row["attributes"])) for row in rows}
