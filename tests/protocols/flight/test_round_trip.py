"""Thousands of generated batches through Flight and back: equal in every column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.messages import PUBLISH_SCHEMA, READ_SCHEMA
from headrace.protocols.flight.server import FlightServer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TIMES = st.integers(-(1 << 40), 1 << 50)
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "key": st.none() | st.binary(max_size=20),
    "attributes": st.none() | st.dictionaries(TEXT, st.binary(max_size=10), max_size=3).map(lambda d: list(d.items())),
    "created_at": st.none() | TIMES,
    "partition": st.none() | st.integers(0, 2),
    "producer_id": st.none() | TEXT,
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 12))
    columns: dict[str, list[Any]] = {"value": draw(st.lists(st.binary(max_size=40), min_size=rows, max_size=rows))}
    for name, values in OPTIONAL.items():
        if draw(st.booleans()):
            columns[name] = draw(st.lists(values, min_size=rows, max_size=rows))
    arrays = [pa.array(values, PUBLISH_SCHEMA.field(name).type) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def check(client: Client, topic: str, sent: list[pa.RecordBatch]) -> None:
    with client.producer(topic) as producer:
        futures = [producer.submit_batch(batch) for batch in sent]
        receipts = [future.result(30) for future in futures]
    read = {partition: client.read(topic, partition, 0, 1_000_000) for partition in client.offsets(topic)}
    for batch, answered in zip(sent, receipts, strict=True):
        assert answered.num_rows == batch.num_rows
        places = answered.to_pylist()
        for name in batch.schema.names:
            if name != "partition":
                got = [read[place["partition"]].column(name)[place["offset"]].as_py() for place in places]
                assert got == batch.column(name).to_pylist()
            else:
                wanted = batch.column(name).to_pylist()
                assert all(want in (None, place["partition"]) for want, place in zip(wanted, places, strict=True))
    for partition, batch in read.items():
        assert batch.schema.equals(READ_SCHEMA)
        assert batch.column("partition").to_pylist() == [partition] * batch.num_rows
        assert batch.column("offset").to_pylist() == list(range(batch.num_rows))


_names = iter(range(1 << 30))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=st.lists(batches(), min_size=1, max_size=40))
def test_what_is_sent_is_what_is_read(broker: Broker, server: FlightServer, sent: list[pa.RecordBatch]) -> None:
    topic = f"round-trip-{next(_names)}"
    with connect(f"headrace://127.0.0.1:{server.port}") as client:
        client.create_topic(topic, partitions=3)
        check(client, topic, sent)
        client.delete_topic(topic)


def test_order_is_kept_with_many_batches_in_flight(broker: Broker, server: FlightServer) -> None:
    with connect(f"headrace://127.0.0.1:{server.port}") as client:
        client.create_topic("in-order")
        with client.producer("in-order", producer_id="p") as producer:
            futures = [
                producer.submit_batch(pa.record_batch({"value": pa.array([b"%d" % number] * (number % 7 + 1))}))
                for number in range(2_000)
            ]
            first = [future.result(30).column("offset")[0].as_py() for future in futures]
        assert first == sorted(first)
        values = [int(value) for value in client.read("in-order", 0, 0, 100_000).column("value").to_pylist()]
        assert values == [number for number in range(2_000) for _ in range(number % 7 + 1)]
