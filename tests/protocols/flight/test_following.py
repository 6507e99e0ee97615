"""Following many partitions over one stream: each in batches of its own, or a few messages of all in one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.broker import Broker
from headrace.wire.tickets import Follow, encode

_FEW = 4
_MANY = 1_000


def followed(
    plain: flight.FlightClient, topic: str, rows: int, mixed: bool, max_messages: int = 10_000
) -> list[pa.RecordBatch]:
    """The batches in which so many messages come."""
    follow = Follow(topic, {0: 0, 1: 0, 2: 0}, max_messages, mixed=mixed)
    reader = plain.do_get(flight.Ticket(encode(follow)))
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < rows:
        batches.append(reader.read_chunk().data)
    reader.cancel()
    return batches


def publish(broker: Broker, topic: str, rows: int) -> None:
    broker.create_topic(topic, partitions=3)
    partitions = pa.array([row % 3 for row in range(rows)], pa.int32())
    broker.publish(topic, pa.record_batch({"value": [b"%d" % row for row in range(rows)], "partition": partitions}))


@pytest.mark.parametrize(("mixed", "rows", "count"), [(False, _FEW, 3), (True, _FEW, 1), (True, 12 * _MANY, 3)])
def test_a_few_messages_share_a_batch_where_that_is_asked_for(
    broker: Broker, plain: flight.FlightClient, mixed: bool, rows: int, count: int
) -> None:
    topic = f"followed-{mixed}-{rows}"
    publish(broker, topic, rows)
    batches = followed(plain, topic, rows, mixed)
    assert len(batches) == count
    found = pa.Table.from_batches(batches).select(["partition", "offset", "value"]).to_pylist()
    expected = [{"partition": row % 3, "offset": row // 3, "value": b"%d" % row} for row in range(rows)]
    assert sorted(found, key=lambda row: (row["offset"], row["partition"])) == expected


def test_what_comes_later_comes_once(broker: Broker, plain: flight.FlightClient) -> None:
    publish(broker, "growing", _FEW)
    reader = plain.do_get(flight.Ticket(encode(Follow("growing", {0: 0, 1: 0, 2: 0}, mixed=True))))
    assert reader.read_chunk().data.num_rows == _FEW
    broker.publish("growing", pa.record_batch({"value": [b"new"], "partition": pa.array([1], pa.int32())}))
    batch = reader.read_chunk().data
    assert batch.select(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 1, "offset": 1, "value": b"new"}
    ]
    reader.cancel()


@pytest.mark.parametrize("mixed", [False, True])
def test_each_partition_fills_batches_up_to_what_is_asked_for(
    broker: Broker, plain: flight.FlightClient, mixed: bool
) -> None:
    topic = f"filled-{mixed}"
    publish(broker, topic, 3 * _MANY)
    batches = followed(plain, topic, 3 * _MANY, mixed, max_messages=400)
    assert sorted(batch.num_rows for batch in batches) == [200] * 3 + [400] * 6


@pytest.mark.parametrize("max_messages", [0, -1, (1 << 20) + 1])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_wrong_number_of_messages_is_refused(
    broker: Broker, plain: flight.FlightClient, mixed: bool, max_messages: int
) -> None:
    broker.create_topic("refused", partitions=3)
    with pytest.raises(flight.FlightServerError, match="max_messages"):
        followed(plain, "refused", 1, mixed, max_messages)
