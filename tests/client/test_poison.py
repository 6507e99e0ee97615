"""Values that do not fit their codec, met by every reader of the Python client; tests/poison.py has the scenario."""

from __future__ import annotations

import asyncio
import logging
import pickle
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from headrace.aio import AsyncClient
from headrace.client import Client
from headrace.client.read.decode import Decoder, Packed, Passed
from headrace.core.codecs import columns as codecs
from headrace.core.errors import InvalidInput, Undecodable
from headrace.core.messages import READ_SCHEMA
from tests import poison
from tests.broker.background import eventually

PATIENCE_SECONDS = 60.0


def fill(client: Client, **settings: Any) -> None:
    client.create_topic("orders", **settings)
    with client.producer("orders") as producer:
        producer.send_batch(poison.batch())


def values_of(batch: pa.RecordBatch) -> list[bytes]:
    return list(batch.column("value").to_pylist())


def check_first(error: Undecodable) -> None:
    assert (error.topic, error.partition, error.offset, error.codec) == ("orders", 0, poison.BAD[0], "gzip")
    assert "offset 2 of partition 0 of topic 'orders'" in str(error)
    assert "does not decompress" in error.reason
    assert not error.retry
    assert pickle.loads(pickle.dumps(error)).details() == error.details()


def test_poll_gives_what_comes_before_then_raises_until_a_seek_leads_past_it(client: Client) -> None:
    fill(client)
    found = []
    with client.consumer("orders", group="billing") as consumer:
        assert values_of(consumer.poll(timeout=PATIENCE_SECONDS)) == poison.BEFORE
        for _ in range(2):
            with pytest.raises(Undecodable) as caught:
                consumer.poll(timeout=PATIENCE_SECONDS)
            check_first(caught.value)
        assert consumer.positions() == {0: poison.BAD[0]}
        consumer.commit()
        assert client.committed("orders", "billing") == {0: poison.BAD[0]}
        bad = []
        while consumer.positions()[0] < len(poison.ROWS):
            try:
                found += values_of(consumer.poll(timeout=PATIENCE_SECONDS))
            except Undecodable as error:
                bad.append(error.offset)
                consumer.seek({error.partition: error.offset + 1})
    assert (found, bad) == (poison.VALUES[len(poison.BEFORE) :], poison.BAD)


def test_poll_skips_what_it_may_and_the_group_has_no_lag_at_the_end(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client)
    found: list[bytes] = []
    with client.consumer("orders", group="billing", on_undecodable="skip") as consumer:
        while consumer.positions()[0] < len(poison.ROWS):
            found += values_of(consumer.poll(max_messages=3, timeout=1.0))
            consumer.commit()
            assert client.committed("orders", "billing") == consumer.positions()
        assert consumer.skipped == len(poison.BAD)
    assert found == poison.VALUES
    assert client.describe_group("orders", "billing").lag_messages == 0
    assert "skipped 9 messages that cannot be decoded; the first one: the message at offset 2" in caplog.text


def test_poll_gives_what_it_may_raw_with_its_codec(client: Client) -> None:
    fill(client)
    found: list[bytes] = []
    named: list[str | None] = []
    with client.consumer("orders", on_undecodable="raw") as consumer:
        while len(found) < len(poison.ROWS):
            batch = consumer.poll(max_messages=4, timeout=PATIENCE_SECONDS)
            found += values_of(batch)
            named += batch.column("codec").to_pylist()
    assert (found, named) == (poison.raw_values(), poison.raw_codecs())


def test_messages_one_by_one_come_up_to_the_bad_one(client: Client) -> None:
    fill(client)
    found = []
    with client.consumer("orders") as consumer:
        with pytest.raises(Undecodable) as caught:
            for message in consumer:
                found.append(message.value)  # noqa: PERF401  What came before the error counts.
        check_first(caught.value)
        assert found == poison.BEFORE
        consumer.seek({0: len(poison.ROWS) - 2})
        assert next(iter(consumer)).value == b""
    with client.consumer("orders", on_undecodable="skip") as consumer:
        assert [message.value for message in islice(consumer, len(poison.VALUES))] == poison.VALUES
        # The last one is bad too, and may come by itself.
        eventually(lambda: not values_of(consumer.poll(timeout=0.01)) and consumer.positions() == {0: len(poison.ROWS)})


def test_follow_gives_what_comes_before_then_raises(client: Client) -> None:
    fill(client)
    with client.follow("orders", start="earliest") as batches:
        assert values_of(next(batches)) == poison.BEFORE
        for _ in range(2):
            with pytest.raises(Undecodable) as caught:
                next(batches)
            check_first(caught.value)
    with client.follow("orders", start="earliest", on_undecodable="skip") as batches:
        assert values_of(next(batches)) == poison.VALUES
        assert batches.next(timeout=0.1) is None
        assert batches.skipped == len(poison.BAD)
    with client.follow("orders", start="earliest", on_undecodable="raw") as batches:
        batch = next(batches)
        assert values_of(batch) == poison.raw_values()
        assert batch.column("codec").to_pylist() == poison.raw_codecs()


def test_read_ends_before_the_bad_one_and_raises_where_it_begins_with_it(client: Client) -> None:
    fill(client)
    assert values_of(client.read("orders")) == poison.BEFORE
    with pytest.raises(Undecodable) as caught:
        client.read("orders", offset=poison.BAD[0])
    check_first(caught.value)
    assert values_of(client.read("orders", on_undecodable="skip")) == poison.VALUES
    # Two that are skipped, and one that is not.
    first = client.read("orders", offset=8, max_messages=2, on_undecodable="skip")
    assert values_of(first) == [b"raw"]
    assert not client.read("orders", offset=len(poison.ROWS) - 1, on_undecodable="skip").num_rows
    assert values_of(client.read("orders", on_undecodable="raw")) == poison.raw_values()
    assert values_of(client.read("orders", decode=False)) == [row.value for row in poison.ROWS]


def test_scan_gives_what_is_stored(client: Client) -> None:
    fill(client)
    (batch,) = client.scan("orders", 0, 0, len(poison.ROWS))
    assert values_of(batch) == [row.value for row in poison.ROWS]


def test_an_unknown_choice_is_refused(client: Client) -> None:
    fill(client)
    choices: dict[str, Any] = {"on_undecodable": "drop"}
    for read in (client.consumer, client.follow, client.read):
        with pytest.raises(InvalidInput, match="on_undecodable is 'drop': it must be 'raise', 'raw' or 'skip'"):
            read("orders", **choices)


def test_asyncio_meets_them_as_others_do(client: Client) -> None:
    fill(client)
    asyncio.run(_meet_by_asyncio(AsyncClient(client)))


async def _meet_by_asyncio(client: AsyncClient) -> None:
    async with await client.consumer("orders") as consumer:
        found = []
        with pytest.raises(Undecodable) as caught:
            async for message in consumer:
                found.append(message.value)  # noqa: PERF401  What came before the error counts.
        check_first(caught.value)
        assert found == poison.BEFORE
        with pytest.raises(Undecodable):
            await consumer.poll(timeout=PATIENCE_SECONDS)
        await consumer.seek({0: poison.BAD[0] + 1})
        assert values_of(await consumer.poll(timeout=PATIENCE_SECONDS)) == [b"by zstd"]
    async with await client.consumer("orders", on_undecodable="skip") as consumer:
        found = []
        async for message in consumer:
            found.append(message.value)
            if len(found) == len(poison.VALUES):
                break
        assert found == poison.VALUES
        # The last one is bad too, and may come by itself.
        while consumer.skipped < len(poison.BAD):
            assert not values_of(await consumer.poll(timeout=0.1))
        assert consumer.skipped == len(poison.BAD)
    async with await client.follow("orders", start="earliest", on_undecodable="skip") as batches:
        assert values_of(await anext(batches)) == poison.VALUES
        assert batches.skipped in (0, len(poison.BAD))
    assert values_of(await client.read("orders", on_undecodable="raw")) == poison.raw_values()


def stored(values: list[bytes], codec: str | None, partitions: list[int]) -> pa.RecordBatch:
    """A batch as it is read, of partitions whose offsets grow from 0."""
    offsets = [partitions[:row].count(partition) for row, partition in enumerate(partitions)]
    given = {
        "partition": pa.array(partitions, READ_SCHEMA.field("partition").type),
        "offset": pa.array(offsets, pa.int64()),
        "value": pa.array(values, pa.binary()),
        "codec": pa.array([codec] * len(values), pa.string()),
    }
    nulls = {field.name: pa.nulls(len(values), field.type) for field in READ_SCHEMA}
    columns = [(nulls | given)[field.name] for field in READ_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, names=READ_SCHEMA.names)


def test_positions_move_past_what_is_skipped_in_each_of_several_partitions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    good = codecs.compress(b"good", "gzip")
    batch = stored([good, b"bad", b"bad", good, b"bad", good], "gzip", [0, 0, 1, 1, 1, 2])
    pieces = Decoder("orders", "skip").pieces(batch)
    shown = [piece if isinstance(piece, Passed) else values_of(piece) for piece in pieces]
    assert shown == [[b"good"], Passed(1, {0: 2}), [b"good"], Passed(2, {1: 3}), [b"good"]]


def test_values_that_take_too_much_together_come_in_parts() -> None:
    batch = stored([codecs.compress(bytes([row]) * 1000, "zstd") for row in range(5)], "zstd", [0] * 5)
    decoder, found, sizes = Decoder("orders", batch_bytes_max=2500), [], []
    left: pa.RecordBatch | None = batch
    while left is not None:
        pieces = decoder.pieces(left)
        assert isinstance(pieces[0], pa.RecordBatch)
        found += values_of(pieces[0])
        sizes.append(pieces[0].num_rows)
        left = pieces[1].batch if len(pieces) > 1 and isinstance(pieces[1], Packed) else None
    assert found == [bytes([row]) * 1000 for row in range(5)]
    assert sizes == [2, 2, 1]
