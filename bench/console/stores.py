"""The store that the console is measured on: many topics, many partitions, very many messages.

It is filled by a broker of this process before a server opens it, which is many times faster than calls.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.broker import Broker
from headrace.broker.settings import BrokerSettings
from headrace.core.limits import TOPICS_IN_STORE

PARTITIONS_MANY = 10_000
GROUPS_MANY = 100
# Rows of one publish.
_BATCH = 1 << 20
# A temporary file system in memory, where creating ten thousand logs does not wait for the disk.
_MEMORY = Path("/dev/shm")
# What a message of the huge topic takes on the disk, and what must stay free besides.
_HUGE_MESSAGE_BYTES = 20
_SPARE_BYTES = 5 << 30


@dataclass(frozen=True)
class Contents:
    """How many topics there are, and how many messages the topics `payments` and `huge` have."""

    topics: int
    messages: int
    huge: int


def fill(directory: Path, contents: Contents) -> None:
    """Make the store."""
    free = shutil.disk_usage(directory.parent).free
    if free < contents.huge * _HUGE_MESSAGE_BYTES + _SPARE_BYTES:
        raise SystemExit(
            f"{directory.parent} has {free / 1e9:.0f} GB left, which is too little: choose a smaller --huge"
        )
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as scratch:
        with Broker.open(f"file:{scratch}/store?durability=os") as broker:
            for number in range(contents.topics):
                broker.create_topic(f"topic-{number:05}")
        shutil.copytree(f"{scratch}/store", directory)
    with Broker.open(f"file:{directory}?durability=os", BrokerSettings(topics_max=2 * TOPICS_IN_STORE)) as broker:
        broker.create_topic("wide", partitions=PARTITIONS_MANY)
        columns = {"value": [b"{}"] * PARTITIONS_MANY, "partition": pa.array(range(PARTITIONS_MANY), pa.int32())}
        broker.publish("wide", pa.RecordBatch.from_pydict(columns))
        for name, count in (("payments", contents.messages), ("huge", contents.huge)):
            broker.create_topic(name, partitions=8)
            _publish(broker, name, count, has_keys=name == "payments")
        for number in range(GROUPS_MANY):
            broker.register_group("wide" if number % 2 else "payments", f"group-{number:02}")
        broker.register_group("payments", "billing")


def _publish(broker: Broker, topic: str, messages: int, has_keys: bool) -> None:
    for start in range(0, messages, _BATCH):
        numbers = pa.array(np.arange(start, min(start + _BATCH, messages))).cast(pa.string())
        amount, rest = ('{"amount": ', ', "currency": "EUR"}') if has_keys else ('{"n": ', "}")
        columns = {"value": pc.binary_join_element_wise(amount, numbers, rest, "").cast(pa.binary())}
        if has_keys:
            columns["key"] = pc.binary_join_element_wise("user-", numbers, "").cast(pa.binary())
        broker.publish(topic, pa.RecordBatch.from_pydict(columns))
