"""Run all Flight benchmarks: `python -m bench.flight [--seconds N] [--soak MINUTES] [--directory DIR]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Unpack

from bench.flight.processes import client, result
from bench.memory import Watch, watching
from bench.report import Report
from headrace import TopicOptions, connect
from headrace.load.load import Load
from headrace.load.run import run
from headrace.load.server import ServerProcess, serving, temporary_store

PARTITIONS = 8
FILLED_MESSAGES = 10_000_000
LATENCY_RATE = 1_000
RETENTION_BYTES = 1 << 30
MEMORY_BYTES = 400_000_000


@contextmanager
def topic(server: ServerProcess, name: str, **settings: Unpack[TopicOptions]) -> Iterator[str]:
    """A topic of its own for a measurement, deleted afterwards."""
    with connect(server.url) as admin:
        admin.create_topic(name, partitions=PARTITIONS, **settings)
        yield name
        admin.delete_topic(name)


def publishing(report: Report, server: ServerProcess, seconds: float) -> None:
    """Batches, single messages, one at a time."""
    for rows, least in ((10_000, 1_500_000), (1_000, 600_000)):
        with topic(server, f"publish-{rows}") as name:
            rate = result(f"publish-{rows}", server.url, name, seconds)["rate"]
        report.line(f"publish, batches of {rows:,}", rate, "messages/s", least=least)
    with topic(server, "send") as name:
        report.line("send one by one", result("send", server.url, name, seconds)["rate"], "messages/s", least=150_000)
    with topic(server, "single") as name:
        times = result("single", server.url, name, seconds)
    report.line("one message at a time, p50", times["p50"], "ms", most=1.5)
    report.line("one message at a time, p99", times["p99"], "ms")


def reading(report: Report, server: ServerProcess, seconds: float) -> None:
    """All messages, as Arrow and one by one."""
    with topic(server, "read") as name:
        _fill(server, name)
        report.line("read as Arrow", result("poll", server.url, name, seconds)["rate"], "messages/s", least=5_000_000)
        rate = result("iterate", server.url, name, seconds)["rate"]
        report.line("iterate messages", rate, "messages/s", least=400_000)


def _fill(server: ServerProcess, name: str) -> None:
    with connect(server.url) as admin:
        while sum(end for _, end in admin.offsets(name).values()) < FILLED_MESSAGES:
            result("publish-10000", server.url, name, 1.0)


def latency(report: Report, server: ServerProcess, seconds: float) -> None:
    """From `send` to a following consumer at a set rate."""
    messages = int(max(5.0, seconds) * LATENCY_RATE)
    load = Load(messages=messages, batch=1, linger_seconds=0.0, rate=LATENCY_RATE, partitions=PARTITIONS)
    outcome = run(load, server.url)
    if not outcome.is_good:
        raise RuntimeError(f"not everything arrived once and in order: {outcome.findings}")
    at = f"end to end at {LATENCY_RATE:,} messages/s"
    report.line(f"{at}, p50", outcome.latencies.percentile(50) * 1e3, "ms", most=3)
    report.line(f"{at}, p99", outcome.latencies.percentile(99) * 1e3, "ms", most=20)


def groups(report: Report, server: ServerProcess, seconds: float) -> None:
    """A publisher at full speed, alone and beside two groups."""
    with topic(server, "groups", retention_bytes=RETENTION_BYTES) as name:
        alone = [result("publish-10000", server.url, name, seconds)["rate"]]
        beside, read = publisher_beside_groups(server, name, seconds)
        alone.append(result("publish-10000", server.url, name, seconds)["rate"])
    report.line("publisher beside two groups", beside, "messages/s")
    report.line("  each group reads beside it", read / 2, "messages/s")
    report.line("  publisher, of its rate alone", beside / (sum(alone) / 2), "", least=0.5)


def publisher_beside_groups(server: ServerProcess, name: str, seconds: float) -> tuple[float, float]:
    """The rates of a publisher and of two groups together."""
    with ExitStack() as stack:
        readers = [stack.enter_context(client(job, server.url, name, seconds)) for job in ("group-1", "group-2")]
        for reader in readers:
            reader.line()
        published = result("publish-10000", server.url, name, seconds)["rate"]
        for reader in readers:
            reader.stop()
        return published, sum(reader.line()["rate"] for reader in readers)


def soak(report: Report, server: ServerProcess, minutes: float) -> None:
    """Two groups and a publisher for long; the server's memory must not grow."""
    with topic(server, "soak", retention_bytes=RETENTION_BYTES) as name, watching(server.pid, 1.0) as watch:
        published, _ = publisher_beside_groups(server, name, minutes * 60)
    report.line(f"soak of {minutes:g} minutes, publisher beside two groups", published, "messages/s")
    report.line("  most resident memory", watch.most_bytes / 1e6, "MB", most=MEMORY_BYTES / 1e6)
    report.line("  grown from the second quarter to the last", watch.grown_bytes() / 1e6, "MB", most=20)


def memory(report: Report, watch: Watch) -> None:
    """What the server took throughout."""
    report.line("most resident memory of the server", watch.most_bytes / 1e6, "MB", most=MEMORY_BYTES / 1e6)
    report.line("  without mapped files", watch.most_of_its_own_bytes / 1e6, "MB")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description="Measure Flight and the client, each client in a process of its own.")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load runs")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="then run two groups for this long")
    parser.add_argument("--directory", default=".", help="where the store is put: choose the disk to measure")
    arguments = parser.parse_args()
    report = Report("Flight: server and clients in separate processes, fsync before every acknowledgement")
    report.begin()
    with temporary_store(Path(arguments.directory)) as store, serving(store) as server:
        with watching(server.pid) as watch:
            publishing(report, server, arguments.seconds)
            reading(report, server, arguments.seconds)
            latency(report, server, arguments.seconds)
            groups(report, server, arguments.seconds)
        memory(report, watch)
        if arguments.soak:
            soak(report, server, arguments.soak)
    report.end()


if __name__ == "__main__":
    main()
