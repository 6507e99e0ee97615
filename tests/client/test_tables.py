"""Tables: a topic as one Arrow table, and DataFrames as batches to send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headrace.aio import AsyncClient
from headrace.client import Client
from headrace.core.codecs import columns as codecs
from headrace.core.errors import InvalidInput, OffsetOutOfRange, PartitionNotFound, Undecodable
from tests import poison


def fill(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    with client.producer("orders") as producer:
        producer.send_batch(pa.table({"value": [b"a", b"b", b"c", b"d"], "partition": [1, 0, 1, 0]}))


def test_a_topic_and_parts_of_it_as_a_table(client: Client) -> None:
    fill(client)
    table = client.table("orders")
    assert table.select(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 0, "offset": 0, "value": b"b"},
        {"partition": 0, "offset": 1, "value": b"d"},
        {"partition": 1, "offset": 0, "value": b"a"},
        {"partition": 1, "offset": 1, "value": b"c"},
    ]
    moment = table["timestamp"][0].as_py()
    assert client.to_arrow("orders", 1)["value"].to_pylist() == [b"d", b"c"]
    assert client.to_arrow("orders", end={0: 1, 1: 0})["value"].to_pylist() == [b"b"]
    assert client.to_arrow("orders", end=moment).num_rows == 0
    only = client.to_arrow("orders", moment, partitions=[1], columns=["value"])
    assert (only.column_names, only["value"].to_pylist()) == (["value"], [b"a", b"c"])
    assert client.to_arrow("orders", columns=["offset"])["offset"].to_pylist() == [0, 1, 0, 1]
    assert asyncio.run(AsyncClient(client).table("orders")).equals(table)


def test_nothing_is_a_table_too(client: Client) -> None:
    client.create_topic("empty")
    assert client.table("empty").schema.equals(client.read("empty").schema)
    with pytest.raises(InvalidInput, match="columns is 'price': known columns are partition, offset"):
        client.to_arrow("empty", columns=["price"])
    with pytest.raises(PartitionNotFound):
        client.to_arrow("empty", partitions=[3])


def test_values_are_decoded_and_faults_are_handled_as_asked(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        producer.send_batch(poison.batch())
    with pytest.raises(Undecodable):
        client.table("orders")
    assert client.to_arrow("orders", on_undecodable="skip", columns=["value"])["value"].to_pylist() == poison.VALUES
    stored = client.to_arrow("orders", decode=False)
    assert stored["value"].to_pylist() == [row.value for row in poison.ROWS]


def test_read_says_why_it_stopped_early(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        packed = [codecs.compress(b"%d" % number, "gzip") for number in range(2)]
        producer.send_batch(pa.table({"value": [*packed, b"not gzip"], "codec": ["gzip"] * 3}))
    batch = client.read("orders")
    assert batch.num_rows == 2
    assert b"offset 2 of partition 0" in batch.schema.metadata[b"stopped_early"]
    assert client.read("orders", max_messages=2).schema.metadata is None
    with pytest.raises(OffsetOutOfRange):
        client.read("orders", offset=9)


ROWS = {"value": ["one", "two"], "key": ["ann", None]}


def _reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(pa.table(ROWS).schema, pa.table(ROWS).to_batches())


@pytest.mark.parametrize(
    "made",
    [
        lambda: pa.table(ROWS),
        lambda: pa.concat_tables([pa.table(ROWS).slice(0, 1), pa.table(ROWS).slice(1)]),
        lambda: pa.record_batch(ROWS),
        _reader,
        lambda: pl.DataFrame(ROWS),
        lambda: pd.DataFrame(ROWS),
    ],
    ids=["table", "chunks", "batch", "reader", "polars", "pandas"],
)
@pytest.mark.parametrize("way", ["flight"])
def test_whatever_speaks_arrow_is_a_batch(client: Client, made: Callable[[], pa.Table]) -> None:
    client.create_topic("orders")
    with client.producer("orders", producer_id="till-7") as producer:
        assert producer.send_batch(made()).column("status").to_pylist() == ["written"] * 2
    found = client.table("orders")
    assert (found["value"].to_pylist(), found["key"].to_pylist()) == ([b"one", b"two"], [b"ann", None])


def test_an_empty_table_is_no_message(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        assert producer.send_batch(pa.table({"value": pa.array([], pa.binary())})).num_rows == 0


def test_what_is_no_table_is_refused(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        with pytest.raises(InvalidInput, match="batch is a list: it must be a pyarrow RecordBatch or Table"):
            producer.send_batch([b"one"])
        with pytest.raises(InvalidInput, match="value"):
            producer.send_batch(pl.DataFrame({"price": [1]}))


def test_times_without_a_zone_are_refused(client: Client) -> None:
    client.create_topic("orders")
    naive = datetime(2026, 1, 2)
    with client.producer("orders") as producer:
        with pytest.raises(InvalidInput, match=r"created_at .* it has no time zone: write datetime.now"):
            producer.send(b"x", created_at=naive)
        with pytest.raises(InvalidInput, match=r"created_at is of type timestamp\[us\]: it must be .*tz=UTC"):
            producer.send_batch(pa.table({"value": [b"x"], "created_at": [naive]}))
        producer.send_batch(pa.table({"value": [b"x"], "created_at": [naive.replace(tzinfo=UTC)]}))
    for refused in (
        lambda: client.offset_at("orders", 0, naive),
        lambda: client.offsets_at("orders", naive),
        lambda: client.consumer("orders", start=naive),
        lambda: client.seek("orders", "billing", naive),
        lambda: client.register_group("orders", "billing", read_from=naive),
        lambda: client.to_arrow("orders", start=naive),
        lambda: client.follow("orders", start=naive),
    ):
        with pytest.raises(InvalidInput, match="no time zone"):
            refused()
