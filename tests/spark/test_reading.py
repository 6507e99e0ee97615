"""Splits read while servers go and come back, and topics are deleted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.client import Client, connect
from headrace.core.errors import MessagesLost
from headrace.spark.connection import Connection
from headrace.spark.reader import split_reader as reading
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.splits import PartitionKey, Range, Split
from headrace.spark.schema import read_schema
from tests.server_process import ServerProcess

ROWS = 64
# Larger than what is read ahead and what connections buffer, so that a server is still sending when it goes.
VALUE = b"x" * 400_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(f"file:{tmp_path / 'store'}")
    yield process
    process.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with connect(server.url, timeout_seconds=60.0) as made:
        yield made


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_server_that_goes_in_the_middle_loses_nothing(
    server: ServerProcess, client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        for _ in range(ROWS):
            producer.send_batch(pa.record_batch({"value": [VALUE]}))
    monkeypatch.setattr(reading, "_BATCH_BYTES", len(VALUE))
    schema = to_arrow_schema(read_schema(["offset", "value"]), timezone="UTC")
    reader = SplitReader(Connection(server.url), schema, decode=True, fail_on_data_loss=True)
    batches = reader.read(Split((Range(PartitionKey(client.describe_topic("orders").id, "orders", 0), 0, ROWS),)))
    offsets = next(batches).column("offset").to_pylist()
    (server.kill if way == "killed" else server.stop)()
    server.start()
    offsets += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(ROWS))


@pytest.mark.parametrize("is_recreated", [False, True])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_is_deleted_before_it_is_read_is_lost(
    server: ServerProcess, client: Client, partitions: int, is_recreated: bool
) -> None:
    client.create_topic("orders", partitions=2)
    with client.producer("orders") as producer:
        producer.send_batch(pa.record_batch({"value": [b"0", b"1"], "partition": pa.array([0, 1], pa.int32())}))
    topic_id = client.describe_topic("orders").id
    split = Split(tuple(Range(PartitionKey(topic_id, "orders", number), 0, 1) for number in range(partitions)))
    schema = to_arrow_schema(read_schema(["offset", "value"]), timezone="UTC")
    client.delete_topic("orders")
    if is_recreated:
        client.create_topic("orders", partitions=2)
    with pytest.raises(MessagesLost, match="1 messages, offsets 0 to 0"):
        list(SplitReader(Connection(server.url), schema, decode=True, fail_on_data_loss=True).read(split))
    assert list(SplitReader(Connection(server.url), schema, decode=True, fail_on_data_loss=False).read(split)) == []


def test_names_of_topics_that_were_read_take_no_memory() -> None:
    schema = to_arrow_schema(read_schema(["topic", "partition"]), timezone="UTC")
    reader = SplitReader(Connection("headrace://127.0.0.1:1"), schema, decode=True, fail_on_data_loss=True)
    # Larger than a batch of the broker's, as those of an archive may be.
    rows = pa.record_batch({"partition": pa.array([0] * 100_000, pa.int32())})
    tracemalloc.start()
    try:
        for number in range(50):
            topic = f"tenant-{number:05}-events"
            (batch,) = reader.decoded(topic, [rows])
            assert batch.column("topic").unique().to_pylist() == [topic]
            del batch
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 2 * rows.num_rows * len(topic)
