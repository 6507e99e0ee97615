"""Run all HTTP benchmarks: `python -m bench.http [--seconds N] [--directory DIR]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import uvloop

from bench.engine.loads import batch
from bench.http.load import Connection, call, rate, request
from bench.memory import resident_bytes
from bench.report import Report

ARROW = "application/vnd.apache.arrow.stream"
CONNECTIONS = 64
SUBSCRIBERS = 1_000


@contextmanager
def server(directory: str) -> Iterator[tuple[int, int]]:
    """A server process; its port and process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.http.server", directory], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def single_messages(report: Report, port: int, seconds: float) -> None:
    """One message a request on the queue API, fsync before the answer."""
    producer = (await call(port, "POST", "/producer/register", {"topic": "queue"}))["producer_id"]
    message = {"topic": "queue", "producer_id": producer, "message": "x" * 100}
    produce = request("POST", "/producer/produce", msgspec.json.encode(message))
    nothing = request("POST", "/empty")
    await rate(port, nothing, CONNECTIONS, 0.5)
    limits, produced = [], []
    for _ in range(3):
        limits.append(await rate(port, nothing, CONNECTIONS, seconds))
        produced.append(await rate(port, produce, CONNECTIONS, seconds))
    best, limit = max(produced), max(limits)
    report.line("empty POST, 64 connections", limit, "requests/s")
    report.line("produce on the queue API, 64 connections", best, "messages/s", least=4_000)
    report.line("  of the empty POST", best / limit, "", least=0.5)


async def batches(report: Report, port: int, seconds: float) -> None:
    """Many messages a request, as JSON and as Arrow."""
    await call(port, "POST", "/v1/topics", {"name": "batches", "partitions": 8})
    path = "/v1/topics/batches/messages"
    messages = [{"value": "x" * 100, "key": f"user-{number}"} for number in range(1_000)]
    as_json = request("POST", path, msgspec.json.encode({"messages": messages}))
    json_rate = 1_000 * await rate(port, as_json, 4, seconds)
    report.line("publish 1,000 messages as JSON, 4 connections", json_rate, "messages/s", least=100_000)
    sink = pa.BufferOutputStream()
    rows = batch(10_000)
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    head = request("POST", path, sink.getvalue().to_pybytes(), ARROW)
    as_arrow = head.replace(b"host: localhost\r\n", f"host: localhost\r\naccept: {ARROW}\r\n".encode(), 1)
    arrow_rate = 10_000 * await rate(port, as_arrow, 4, seconds)
    report.line("publish 10,000 messages as Arrow, 4 connections", arrow_rate, "messages/s", least=1_000_000)


async def subscribers(report: Report, port: int, process: int, seconds: float) -> None:
    """What a thousand subscribers cost that wait for a topic nobody publishes to."""
    for name in ("busy", "idle"):
        await call(port, "POST", "/v1/topics", {"name": name})
    publish = request("POST", "/v1/topics/busy/messages", msgspec.json.encode({"messages": [{"value": "x" * 100}]}))
    await rate(port, publish, CONNECTIONS, 0.5)
    alone = [await rate(port, publish, CONNECTIONS, seconds) for _ in range(2)]
    before = resident_bytes(process)
    waiting = [await Connection.open(port) for _ in range(SUBSCRIBERS)]
    for connection in waiting:
        await connection.begin(request("GET", "/v1/topics/idle/events"))
    memory = resident_bytes(process) - before
    beside = [await rate(port, publish, CONNECTIONS, seconds) for _ in range(2)]
    for connection in waiting:
        connection.close()
    alone.append(await rate(port, publish, CONNECTIONS, seconds))
    report.line("memory for 1,000 idle subscribers", memory / 1e6, "MB", most=150)
    report.line("publishing beside them, of the rate without", max(beside) / max(alone), "", least=0.9)


async def measure(report: Report, port: int, process: int, seconds: float) -> None:
    """Everything against one server."""
    await single_messages(report, port, seconds)
    await batches(report, port, seconds)
    await subscribers(report, port, process, seconds)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description="Measure the HTTP server from another process.")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each load runs")
    parser.add_argument("--directory", default=".", help="where the store is put: choose the disk to measure")
    arguments = parser.parse_args()
    report = Report("HTTP: server and load in separate processes, fsync before every answer")
    report.begin()
    with (
        TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory,
        server(directory) as (port, process),
    ):
        uvloop.run(measure(report, port, process, arguments.seconds))
    report.end()


if __name__ == "__main__":
    main()
