"""Run all PostgreSQL benchmarks: `python -m bench.postgres [--quick] [--directory DIR]`.

A PostgreSQL of its own is started on the disk to measure, with fsync on. Every number stands beside what it is compared
with, measured in the same run and in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psycopg
import pyarrow as pa

from bench.engine.loads import batch, publishes_per_second, seconds_per_call
from bench.http.load import call, rate, request
from bench.postgres.queues import dead_rows, through_a_queue
from bench.report import Report
from headrace.broker import Broker
from headrace.core.publish.plan import plan
from headrace.core.publish.state import TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.postgres.codec import encode_copy as rows
from tests.postgres_server import PASSWORD, PostgresServer

ROUNDS = 3
THREADS = 64


@contextmanager
def topic(server: PostgresServer, partitions: int = 8) -> Iterator[Broker]:
    """A broker on a new store with the topic `bench`."""
    with Broker.open(server.fresh_url()) as broker:
        broker.create_topic("bench", partitions=partitions)
        yield broker


class BareTable:
    """What COPY alone can do: the same rows into a table with the same columns and the same primary key."""

    def __init__(self, connection: psycopg.Connection, messages: pa.RecordBatch) -> None:
        self._connection = connection
        self._messages = messages
        self._state = TopicState(np.zeros(8, np.int64))
        connection.execute("""CREATE TABLE bench_bare (partition integer NOT NULL, "offset" bigint NOT NULL,
            time_us bigint NOT NULL, bytes_before bigint NOT NULL, value bytea NOT NULL, key bytea,
            PRIMARY KEY (partition, "offset"))""")

    def prepared(self, commits: int) -> Iterator[memoryview]:
        """The rows of N commits as COPY takes them: laying them out is not what is measured."""
        for _ in range(commits):
            commit, _ = plan(self._messages, self._state, DEFAULT_SETTINGS, 0)
            self._state.apply(commit)
            _, data = rows.encode(commit, np.zeros(commit.rows.num_rows, np.int64))
            yield data

    def copy_all(self, prepared: Sequence[memoryview]) -> None:
        """A COPY and a transaction for each."""
        for data in prepared:
            with self._connection.cursor().copy("COPY bench_bare FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(rows.HEADER)
                copy.write(data)
                copy.write(rows.TRAILER)


def publishing(report: Report, server: PostgresServer, commits: int) -> None:
    """Durable publishing of large batches beside COPY of the same rows."""
    messages = batch(10_000)
    with topic(server) as broker, server.connect() as connection:
        bare = BareTable(connection, messages)
        limits, rates = [], []
        for _ in range(ROUNDS):
            prepared = list(bare.prepared(commits))
            limits.append(_rate(partial(bare.copy_all, prepared), commits * 10_000))
            rates.append(_rate(lambda: [broker.publish("bench", messages) for _ in range(commits)], commits * 10_000))
    report.line("COPY into a bare table, 10,000 rows at a time", max(limits), "rows/s")
    report.line("publish, commits of 10,000", max(rates), "messages/s")
    report.line("  of the COPY", max(rates) / max(limits), "", least=0.5)


def singles(report: Report, server: PostgresServer, seconds: float) -> None:
    """Single messages of many publishers beside what one connection can commit."""
    message = batch(1)
    with topic(server) as broker, server.connect() as connection:
        connection.execute("CREATE TABLE bench_single (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v bytea)")
        insert = "INSERT INTO bench_single (v) VALUES (%s)"
        alone, combiner = [], []
        for _ in range(ROUNDS):
            alone.append(1 / seconds_per_call(lambda: connection.execute(insert, [b"x" * 100]), seconds))
            combiner.append(publishes_per_second(broker, message, THREADS, seconds))
    report.line("transactions of one row, one connection", max(alone), "rows/s")
    report.line(f"single messages, {THREADS} publishers", max(combiner), "messages/s")
    report.line("  of one connection", max(combiner) / max(alone), "times", least=5)


def reading(report: Report, server: PostgresServer, messages: int) -> None:
    """Reading a topic from start to end."""
    with topic(server) as broker:
        for _ in range(messages // 10_000):
            broker.publish("bench", batch(10_000))
        report.line("read", max(_read_all(broker) for _ in range(ROUNDS)), "messages/s", least=500_000)


def _read_all(broker: Broker) -> float:
    began, count = time.perf_counter(), 0
    for partition, (offset, end) in broker.offsets("bench").items():
        while offset < end:
            found = broker.fetch("bench", partition, offset).num_rows
            offset, count = offset + found, count + found
    return count / (time.perf_counter() - began)


def committing(report: Report, server: PostgresServer, seconds: float) -> None:
    """Committing offsets, many groups at once, one partition each time."""
    with topic(server) as broker:
        broker.publish("bench", batch(10_000))
        groups = [f"group-{number}" for number in range(THREADS)]
        for group in groups:
            broker.register_group("bench", group)
        stop = time.perf_counter() + seconds
        counts = [0] * len(groups)

        def run(place: int) -> None:
            while time.perf_counter() < stop:
                broker.commit_offsets("bench", groups[place], {place % 8: counts[place] % 1_000})
                counts[place] += 1

        _together(run, len(groups))
        report.line(f"commits of an offset, {THREADS} groups", sum(counts) / seconds, "commits/s", least=2_000)


def against_pgqueue(report: Report, server: PostgresServer, seconds: float) -> None:
    """A row and a counter for every message, over HTTP, beside Headrace over HTTP on the same PostgreSQL."""
    conninfo = f"host=127.0.0.1 port={server.port} user=postgres password='{PASSWORD}' dbname=postgres"
    headrace = ["-m", "headrace", "serve", "--store", server.fresh_url(), "--http", "127.0.0.1:0"]
    with (
        _process(["-m", "bench.postgres.pgqueue", conninfo]) as pgqueue,
        _process([*headrace, "--flight", "off"]) as ours,
    ):
        asyncio.run(_measure_http(report, int(pgqueue), int(ours.split(" with ")[0].rpartition(":")[2]), seconds))


async def _measure_http(report: Report, pgqueue: int, ours: int, seconds: float) -> None:
    producer = (await call(ours, "POST", "/producer/register", {"topic": "queue"}))["producer_id"]
    message = {"topic": "queue", "producer_id": producer, "message": "x" * 100}
    produce = request("POST", "/producer/produce", msgspec.json.encode(message))
    await call(ours, "POST", "/v1/topics", {"name": "batches", "partitions": 8})
    many = {"messages": [{"value": "x" * 100, "key": f"user-{number}"} for number in range(1_000)]}
    publish = request("POST", "/v1/topics/batches/messages", msgspec.json.encode(many))
    rates: dict[str, list[float]] = {"pgqueue": [], "single": [], "batches": []}
    for _ in range(ROUNDS):
        rates["pgqueue"].append(await rate(pgqueue, produce, THREADS, seconds))
        rates["single"].append(await rate(ours, produce, THREADS, seconds))
        rates["batches"].append(1_000 * await rate(ours, publish, 4, seconds))
    before = max(rates["pgqueue"])
    report.line(f"PgQueue over HTTP, {THREADS} connections", before, "messages/s")
    report.line(f"queue API over HTTP, {THREADS} connections", max(rates["single"]), "messages/s")
    report.line("  of PgQueue", max(rates["single"]) / before, "times")
    report.line("1,000 messages a request over HTTP, 4 connections", max(rates["batches"]), "messages/s")
    report.line("  of PgQueue", max(rates["batches"]) / before, "times", least=20)


def beside_a_queue(report: Report, server: PostgresServer, messages: int) -> None:
    """The same messages through a queue of rows and through a topic: how fast, and what is left to vacuum."""
    size = 1_000
    database = server.fresh_database()
    with server.connect(database) as connection:
        queue = through_a_queue(connection, messages, size)
    values = pa.record_batch({"value": pa.array([b"x" * 100] * size, pa.binary())})
    with Broker.open(server.url(database)) as broker:
        broker.create_topic("bench", partitions=1)
        broker.register_group("bench", "readers")
        began = time.perf_counter()
        for place in range(0, messages, size):
            broker.publish("bench", values)
            assert broker.fetch("bench", 0, place, max_messages=size).num_rows == size
            broker.commit_offsets("bench", "readers", {0: place + size})
        ours = messages / (time.perf_counter() - began)
    with server.connect(database) as connection:
        queue_dead, queue_bytes = dead_rows(connection, "public")
        our_dead, our_bytes = dead_rows(connection, "headrace")
    report.note(f"{messages:,} messages, sent and taken {size:,} at a time, one after another")
    report.note("                              messages/s       dead rows        MB of tables")
    report.note(f"queue of rows, SKIP LOCKED  {queue:>12,.0f}  {queue_dead:>14,}  {queue_bytes / 1e6:>18,.1f}")
    report.note(f"topic, group commits        {ours:>12,.0f}  {our_dead:>14,}  {our_bytes / 1e6:>18,.1f}")


def _rate(work: Callable[[], Any], messages: int) -> float:
    began = time.perf_counter()
    work()
    return messages / (time.perf_counter() - began)


def _together(run: Callable[[int], None], count: int) -> None:
    workers = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@contextmanager
def _process(arguments: list[str]) -> Iterator[str]:
    """A program that prints one line when it is ready; the line."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description="Measure Headrace on PostgreSQL beside PostgreSQL itself.")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, for a first look")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where PostgreSQL keeps its files")
    arguments = parser.parse_args()
    scale, seconds = (20, 1.0) if arguments.quick else (1, 4.0)
    report = Report("PostgreSQL: 100-byte values, keys, fsync on")
    report.begin()
    server = PostgresServer(
        {"shared_buffers": "512MB", "max_wal_size": "4GB"}, str(Path(arguments.directory).resolve())
    )
    try:
        publishing(report, server, max(5, 60 // scale))
        singles(report, server, seconds)
        reading(report, server, 2_000_000 // scale)
        committing(report, server, seconds)
        against_pgqueue(report, server, seconds)
        beside_a_queue(report, server, 1_000_000 // scale)
    finally:
        server.stop()
    report.end()


if __name__ == "__main__":
    main()
