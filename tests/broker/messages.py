"""Batches to publish, and what was read, in the plainest form a test can compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.messages import PUBLISH_SCHEMA
from headrace.core.publish.receipts import Receipts


def batch(*values: bytes, **columns: Any) -> pa.RecordBatch:
    """A batch of these values; other columns as lists, or as one thing that every row has."""
    arrays = {"value": pa.array(values, pa.binary())}
    for name, column in columns.items():
        rows = column if isinstance(column, list) else [column] * len(values)
        arrays[name] = pa.array(rows, PUBLISH_SCHEMA.field(name).type)
    return pa.record_batch(arrays)


def numbered(*values: bytes, producer: str = "p", first: int = 1) -> pa.RecordBatch:
    """A batch of a producer that numbers its messages."""
    return batch(*values, producer_id=producer, seqno=list(range(first, first + len(values))))


def values_of(read: pa.RecordBatch) -> list[bytes]:
    values: list[bytes] = read.column("value").to_pylist()
    return values


def content(broker: Broker, topic: str) -> dict[int, list[bytes]]:
    """All messages of a topic by partition."""
    return {
        partition: values_of(broker.fetch(topic, partition, start, max_messages=1_000_000))
        for partition, (start, _) in broker.offsets(topic).items()
    }


def everything(broker: Broker, topic: str) -> list[bytes]:
    """All messages of a topic, sorted."""
    return sorted(value for values in content(broker, topic).values() for value in values)


def read_as_member(broker: Broker, topic: str, group: str, member: str = "member") -> Iterator[bytes]:
    """What a member of a group gets and commits, until it has all that is there; then it leaves."""
    broker.join_group(topic, group, member)
    reader = broker.reader(topic)
    while (read := reader.read_as_member(group, member, None, {}, 1_000, 1 << 20)).batches:
        for batch in read.batches:
            yield from values_of(batch)
        broker.commit_offsets(topic, group, read.positions, member, read.generation, True)
    broker.leave_group(topic, group, member)


def statuses(receipts: Receipts) -> list[str]:
    names: list[str] = receipts.to_arrow().column("status").to_pylist()
    return names


def places(receipts: Receipts) -> Sequence[tuple[int, int]]:
    """Partition and offset of each message."""
    return list(zip(receipts.partition.tolist(), receipts.offset.tolist(), strict=True))
