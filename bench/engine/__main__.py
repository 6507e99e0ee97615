"""Run all engine benchmarks: `python -m bench.engine [--quick] [--directory DIR]`."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.engine.loads import (
    batch,
    commits_per_second,
    plain_writes_per_second,
    publishes_per_second,
    seconds_per_call,
    store,
)
from bench.memory import resident_bytes
from bench.report import Report
from headrace.broker import Broker


def publishing(report: Report, root: Path, seconds: float) -> None:
    """Durable publishing beside plain writes of the same bytes."""
    for rows, floor in ((10_000, None), (1_000, None), (100, 200_000), (1, None)):
        messages = batch(rows)
        with store(root) as broker:
            rate = rows / seconds_per_call(partial(broker.publish, "bench", messages), seconds)
            stored = broker.describe_topic("bench").bytes_stored
            size = stored // max(1, broker.counters["commits_written"])
        limit = rows * plain_writes_per_second(root, size, seconds)
        report.line(f"publish, commits of {rows:,}", rate, "messages/s", least=floor)
        report.line(
            f"  of write + fdatasync of the same {size:,} bytes",
            rate / limit,
            "",
            least=0.4 if rows == 10_000 else None,
        )


def group_commit(report: Report, root: Path, seconds: float) -> None:
    """Many threads with one message each, beside one thread."""
    message = batch(1)
    with store(root) as broker:
        alone = publishes_per_second(broker, message, 1, seconds)
        before = broker.counters["commits_written"]
        combiner = publishes_per_second(broker, message, 64, seconds)
        commits = broker.counters["commits_written"] - before
    report.line("single messages, 1 thread", alone, "messages/s")
    report.line("single messages, 64 threads", combiner, "messages/s")
    report.note(f"{combiner * seconds / max(1, commits):.0f} messages shared a commit")
    report.line("  of one thread", combiner / alone, "times", least=10)


def offset_commits(report: Report, root: Path, seconds: float) -> None:
    """Offset commits of many groups at once, beside those of one: what waits shares a sync."""
    with store(root) as broker:
        while broker.offsets("bench")[0][1] < 1 << 20:
            broker.publish("bench", batch(10_000))
        alone = commits_per_second(broker, 1, seconds)
        together = commits_per_second(broker, 64, seconds)
    report.line("offset commits, 1 group", alone, "commits/s")
    report.line("offset commits, 64 groups", together, "commits/s")
    report.line("  of one group", together / alone, "times", least=5)


def partitions(report: Report, root: Path, seconds: float) -> None:
    """What a message costs with many partitions."""
    messages = batch(10_000)
    cost = {}
    for count in (1, 8, 256):
        with store(root, count) as broker:
            cost[count] = seconds_per_call(partial(broker.publish, "bench", messages), seconds)
        report.line(f"publish, {count} partitions", 10_000 / cost[count], "messages/s")
    report.line("  cost at 256 partitions of that at 1", cost[256] / cost[1], "times", most=1.3)


def retained(report: Report, root: Path, seconds: float, messages_retained: int) -> None:
    """What a message costs, and the memory held, after very many were retained."""
    messages = batch(10_000)
    with store(root) as broker:
        empty = seconds_per_call(partial(broker.publish, "bench", messages), seconds)
        device_before = plain_writes_per_second(root, messages.nbytes, seconds)
        gc.collect()
        memory = resident_bytes(os.getpid(), "RssAnon")
        while broker.counters["messages_written"] < messages_retained:
            broker.publish("bench", messages)
        gc.collect()
        grown = resident_bytes(os.getpid(), "RssAnon") - memory
        full = seconds_per_call(partial(broker.publish, "bench", messages), seconds)
        device_after = plain_writes_per_second(root, messages.nbytes, seconds)
        report.note(
            f"{broker.describe_topic('bench').bytes_stored / 1e9:.1f} GB retained in {messages_retained:,} messages"
        )
    report.line("publish, commits of 10,000, topic full", 10_000 / full, "messages/s")
    report.line("  cost of that of an empty topic", full / empty, "times", most=1.2)
    report.line("  what plain writes cost then, of what they cost before", device_before / device_after, "times")
    report.line("  memory grown by", grown / 1e6, "MB", most=100)


def reading(report: Report, root: Path, messages_large: int, messages_single: int) -> None:
    """Reading from the page cache: large commits, and commits of one message."""
    with store(root) as broker:
        messages = batch(10_000)
        while broker.counters["messages_written"] < messages_large:
            broker.publish("bench", messages)
        report.line("read, commits of 10,000 over 8 partitions", _read_all(broker), "messages/s", least=5_000_000)
    for options, name in (("", "newest segment"), ("&segment_bytes=4194304", "complete segments")):
        with store(root, 8, f"?durability=os{options}") as broker:
            message = batch(1)
            for _ in range(messages_single):
                broker.publish("bench", message)
            report.line(f"read, commits of one message, {name}", _read_all(broker), "messages/s", least=300_000)


def _read_all(broker: Broker) -> float:
    """Read every partition from start to end, twice, and give the rate of the second time."""
    rate = 0.0
    for _ in range(2):
        began, count = time.perf_counter(), 0
        for partition, (offset, end) in broker.offsets("bench").items():
            while offset < end:
                rows = broker.fetch("bench", partition, offset).num_rows
                offset, count = offset + rows, count + rows
        rate = count / (time.perf_counter() - began)
    return rate


def opening(report: Report, root: Path, commits: int) -> None:
    """Opening after SIGKILL a store of commits of 100 messages."""
    with TemporaryDirectory(dir=root) as directory:
        program = [sys.executable, "-m", "bench.engine.fill", directory, str(commits)]
        filler = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert filler.stdout is not None
        filler.stdout.readline()
        os.kill(filler.pid, signal.SIGKILL)
        filler.wait()
        filler.stdout.close()
        began = time.perf_counter()
        with Broker.open(f"file:{directory}/store") as broker:
            seconds = time.perf_counter() - began
            count = sum(end for _, end in broker.offsets("bench").values())
            gigabytes = broker.describe_topic("bench").bytes_stored / 1e9
    report.note(f"{count:,} messages in {commits:,} commits, {gigabytes:.1f} GB, killed while writing")
    report.line("open after SIGKILL", seconds, "s", most=2)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description="Measure the engine beside the limits of this machine.")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, for a first look")
    parser.add_argument("--directory", default=".", help="where the stores are put: choose the disk to measure")
    arguments = parser.parse_args()
    scale, seconds = (20, 1.0) if arguments.quick else (1, 4.0)
    report = Report("Engine: in process, 100-byte values, keys, fsync before every acknowledgement")
    report.begin()
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory:
        root = Path(directory)
        publishing(report, root, seconds)
        group_commit(report, root, seconds)
        offset_commits(report, root, seconds)
        partitions(report, root, seconds)
        reading(report, root, 20_000_000 // scale, 200_000 // scale)
        opening(report, root, 100_000 // scale)
        retained(report, root, seconds, 100_000_000 // scale)
    report.end()


if __name__ == "__main__":
    main()
