"""A large commit of staged rows, as a micro-batch of Spark is: the memory of its server, and what exactly once costs.

    python -m bench.stages [--gigabytes 2] [--topics 1] [--directory DIR]

Two writers stage messages of 100 bytes with keys in pieces of 8 MB, as tasks of Spark do, and one commit publishes all
of them. Printed: how much memory the server has more at its peak than before the commit, with the files that it maps
and without; how long a message to the same topic waits during the commit; and the time from the first piece to the end
of the commit beside that of publishing the same pieces at least once, in turn.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from bench.memory import resident_bytes, watching
from bench.report import Report
from bench.rounds import Cost, processor_seconds, report_speed
from headrace import Client, connect
from headrace.core.reports.descriptions import Staged
from headrace.load.server import ServerProcess, serving, temporary_store

VALUE_BYTES = 100
PIECE_ROWS = 72_000
WRITERS = 2
PARTITIONS = 8
KEYS = 100_000
# Of the comparison, and how often each way is measured.
RATIO_BYTES = 500_000_000
ROUNDS = 5
GROWN_MB_MOST = 200
RATIO_LEAST = 0.85


def piece() -> pa.RecordBatch:
    """Messages with keys."""
    keys = np.char.add("user-", (np.arange(PIECE_ROWS) * 7919 % KEYS).astype(str)).tolist()
    values = np.char.zfill(np.arange(PIECE_ROWS).astype(str), VALUE_BYTES).tolist()
    return pa.record_batch({"key": pa.array(keys).cast(pa.binary()), "value": pa.array(values).cast(pa.binary())})


def by_writers(url: str, count: int, work: Callable[[Client, int], object]) -> None:
    """Numbered work, in turn by writers with a connection each."""

    def write(writer: int) -> None:
        with connect(url) as client:
            for number in range(writer, count, WRITERS):
                work(client, number)

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(write, range(WRITERS)))


def stage(url: str, topics: list[str], count: int, rows: pa.RecordBatch) -> dict[str, list[Staged]]:
    """Stage so many pieces, in turn for each topic."""
    staged: dict[str, list[Staged]] = {topic: [] for topic in topics}

    def put(client: Client, number: int) -> None:
        topic = topics[number % len(topics)]
        staged[topic].append(client.stage(topic, [rows]))

    by_writers(url, count, put)
    return staged


def publish(client: Client, staged: dict[str, list[Staged]]) -> int:
    """Publish all stages in one commit; how many messages were written."""
    if len(staged) == 1:
        ((topic, stages),) = staged.items()
        return client.publish_staged(topic, stages)[0]
    return sum(written for written, _ in client.commit_transaction(staged).messages.values())


class Neighbour:
    """Publishes a message now and then, and knows the longest that one took."""

    def __init__(self, url: str, topic: str) -> None:
        self.longest_seconds = 0.0
        self._url, self._topic = url, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-neighbour")
        self._thread.start()

    def _run(self) -> None:
        with connect(self._url) as client, client.producer(self._topic, timeout_seconds=3600.0) as producer:
            while not self._over.wait(0.05):
                began = time.perf_counter()
                producer.send(b"x").result()
                self.longest_seconds = max(self.longest_seconds, time.perf_counter() - began)

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()


def committing(report: Report, server: ServerProcess, gigabytes: float, topics: int) -> None:
    """One commit of this size."""
    rows, names = piece(), [f"t{number}" for number in range(topics)]
    count = max(topics, round(gigabytes * 1e9 / rows.nbytes))
    with connect(server.url) as client:
        for name in names:
            client.create_topic(name, partitions=PARTITIONS)
        began = time.perf_counter()
        staged = stage(server.url, names, count, rows)
        staging_seconds = time.perf_counter() - began
        before, own = resident_bytes(server.pid), resident_bytes(server.pid, "RssAnon")
        neighbour = Neighbour(server.url, names[0])
        began = time.perf_counter()
        with watching(server.pid, 0.02) as watch:
            written = publish(client, staged)
        seconds = time.perf_counter() - began
        neighbour.stop()
        if written != count * rows.num_rows:
            raise RuntimeError(f"{written} messages were written of {count * rows.num_rows}")
        for name in names:
            client.delete_topic(name)
    size = f"{count * rows.nbytes / 1e9:.3g} GB in {topics} {'topic' if topics == 1 else 'topics'}"
    report.line(f"staging of {size}", staging_seconds, "s")
    report.line(f"commit of {size}", seconds, "s")
    report.line("  memory of the server, more than before", (watch.most_bytes - before) / 1e6, "MB", most=GROWN_MB_MOST)
    report.line("  without mapped files", (watch.most_of_its_own_bytes - own) / 1e6, "MB")
    report.line("  longest wait of another publisher to the topic", neighbour.longest_seconds, "s")


def exactly_once(report: Report, server: ServerProcess) -> None:
    """Staged and published in one commit, beside published directly."""
    rows = piece()
    count = round(RATIO_BYTES / rows.nbytes)
    taken: dict[str, list[Cost]] = {"exactly": [], "directly": []}
    with connect(server.url) as client:
        for number in range(2 * ROUNDS):
            topic = f"ratio-{number}"
            client.create_topic(topic, partitions=PARTITIONS)
            used, began = processor_seconds(), time.perf_counter()
            if number % 2:
                publish(client, stage(server.url, [topic], count, rows))
            else:
                by_writers(server.url, count, partial(_send, topic, rows))
            cost = Cost(time.perf_counter() - began, processor_seconds() - used)
            taken["exactly" if number % 2 else "directly"].append(cost)
            client.delete_topic(topic)
    best = {
        name: Cost(min(cost.seconds for cost in costs), median(cost.processor_seconds for cost in costs))
        for name, costs in taken.items()
    }
    for name, way in (("directly", "at least once"), ("exactly", "exactly once")):
        report.line(
            f"{count * rows.nbytes / 1e9:.3g} GB {way}", count * rows.num_rows / best[name].seconds, "messages/s"
        )
    report_speed(report, "at least once", best["exactly"], best["directly"], least=RATIO_LEAST)


def _send(topic: str, rows: pa.RecordBatch, client: Client, _: int) -> None:
    with client.producer(topic, timeout_seconds=60.0) as producer:
        producer.send_batch(rows)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="the size of the commit")
    parser.add_argument("--topics", type=int, default=1, help="to how many topics it goes")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the store is put: choose the disk")
    arguments = parser.parse_args()
    report = Report("a commit of staged rows")
    report.begin()
    with temporary_store(arguments.directory) as store, serving(store) as server:
        exactly_once(report, server)
        committing(report, server, arguments.gigabytes, arguments.topics)
    report.end()


if __name__ == "__main__":
    main()
