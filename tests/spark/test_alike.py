"""Live and bulk alike: the same messages, published to the broker or loaded by Spark, fill the partitions alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.client import Client
from tests.spark.topics import contents_of

CASES = 24
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("producer_id", pa.string()),
        ("message_group_id", pa.string()),
        ("seqno", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Case:
    """Some messages for a topic of so many partitions."""

    partitions: int
    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, seed: int) -> Case:
        """Messages of every kind: keyed, with an empty key or none, placed by hand, of sources, repeated."""
        random = np.random.default_rng(seed)
        partitions = int(random.integers(1, 9))
        count = int(random.integers(0, 40))
        return cls(partitions, [_row(random, number, partitions) for number in range(count)])


def _row(random: np.random.Generator, number: int, partitions: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row["value"] = b"value-%d" % number
    kind = int(random.integers(0, 5))
    if kind <= 1:
        row["key"] = random.bytes(int(random.integers(0, 40)))
    elif kind == 2:
        row["partition"] = int(random.integers(0, partitions))
    elif kind == 3:
        source = int(random.integers(0, 4))
        row |= {"producer_id": f"producer-{source}", "message_group_id": "g" if source % 2 else None}
        # Some numbers come again: those messages are dropped, by the broker in both cases.
        row["seqno"] = int(random.integers(0, 2 * number + 1))
    return row


def test_live_and_bulk_fill_the_partitions_alike(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    cases = [Case.of(seed) for seed in range(CASES)]
    loaded: list[dict[str, Any]] = []
    for number, case in enumerate(cases):
        for way in ("live", "bulk"):
            client.create_topic(f"{topic}-{number}-{way}", partitions=case.partitions)
        with client.producer(f"{topic}-{number}-live") as producer:
            producer.send_batch(pa.RecordBatch.from_pylist(case.rows, schema=SCHEMA))
        loaded += [{**row, "topic": f"{topic}-{number}-bulk"} for row in case.rows]
    table = pa.Table.from_pylist(loaded, schema=SCHEMA.append(pa.field("topic", pa.string())))
    spark.createDataFrame(table).coalesce(1).write.format("headrace").options(url=url).mode("append").save()
    assert len(loaded) > 100
    for number in range(CASES):
        assert contents_of(client, f"{topic}-{number}-bulk") == contents_of(client, f"{topic}-{number}-live")
