"""What the engine benchmarks publish, and the limits they are compared with."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from headrace.broker import Broker

VALUE_BYTES = 100
KEYS = 100_000


def batch(rows: int, seed: int = 0) -> pa.RecordBatch:
    """Messages with 100-byte values and one of 100,000 keys."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, rows * VALUE_BYTES, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * VALUE_BYTES
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    keys = pa.array([b"user-%d" % key for key in random.integers(0, KEYS, rows)], pa.binary())
    return pa.record_batch({"value": values, "key": keys})


@contextmanager
def store(root: Path, partitions: int = 8, options: str = "") -> Iterator[Broker]:
    """A broker on a new store with the topic `bench`."""
    with TemporaryDirectory(dir=root) as directory, Broker.open(f"file:{directory}/store{options}") as broker:
        broker.create_topic("bench", partitions=partitions)
        yield broker


def seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    """The time of one call, measured over about N seconds after a warm-up."""
    call()
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        call()
        calls += 1
    return elapsed / calls


def plain_writes_per_second(root: Path, size: int, seconds: float) -> float:
    """The limit: how often the machine writes N bytes to a growing file and syncs them."""
    path = root / "plain"
    payload = os.urandom(size)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    try:

        def write() -> None:
            os.write(handle, payload)
            os.fdatasync(handle)

        return 1 / seconds_per_call(write, seconds)
    finally:
        os.close(handle)
        path.unlink()


def publishes_per_second(broker: Broker, messages: pa.RecordBatch, threads: int, seconds: float) -> float:
    """How often N threads together publish a batch."""
    return calls_per_second(lambda _: broker.publish("bench", messages), threads, seconds)


def commits_per_second(broker: Broker, groups: int, seconds: float) -> float:
    """How often the consumers of N groups together commit an offset, each of its own group."""
    for group in range(groups):
        broker.register_group("bench", f"g{group}")
    offsets = [iter(range(1, 1 << 20)) for _ in range(groups)]

    def commit(group: int) -> None:
        broker.commit_offsets("bench", f"g{group}", {0: next(offsets[group])})

    return calls_per_second(commit, groups, seconds)


def calls_per_second(call: Callable[[int], object], threads: int, seconds: float) -> float:
    """How often N threads together call something, each with its number."""
    stop = time.perf_counter() + seconds
    counts = [0] * threads

    def run(place: int) -> None:
        while time.perf_counter() < stop:
            call(place)
            counts[place] += 1

    workers = [threading.Thread(target=run, args=(place,)) for place in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds
