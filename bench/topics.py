"""Ten thousand topics on disk: creating them, opening them after a clean close and after a kill, and their memory.

    python -m bench.topics [--topics 10000] [--directory DIR]

Each step is a process of its own. Before the kill every topic gets a message.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

import pyarrow as pa

from bench.memory import resident_bytes
from bench.report import Report
from headrace import Broker, BrokerSettings
from headrace.core.limits import TOPICS_MAX

_SETTINGS = BrokerSettings(topics_max=TOPICS_MAX, partitions_max=TOPICS_MAX)
_STEPS = ("create", "open", "publish")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--directory", help="where the store is, and is deleted; a temporary one if omitted")
    parser.add_argument("--step", choices=_STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        _step(arguments.step, arguments.directory, arguments.topics)
        return
    report = Report(f"{arguments.topics:,} topics of one partition each")
    report.begin()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        count = arguments.topics
        (seconds,) = _run("create", directory, count)
        report.line("creating", count / seconds, "topics/s", least=200)
        seconds, memory = _run("open", directory, count)
        report.line("opening after a clean close", seconds, "s", most=5)
        report.line("memory of an idle topic", memory / count / 1024, "KiB", most=100)
        _run("publish", directory, count, ended=-signal.SIGKILL)
        seconds, _ = _run("open", directory, count)
        report.line("opening after a kill, one message in each", seconds, "s", most=15)
    report.end()


def _run(step: str, directory: str, count: int, ended: int = 0) -> list[float]:
    command = [sys.executable, "-m", "bench.topics", "--step", step, "--directory", directory, "--topics", str(count)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert process.returncode == ended, f"{step} ended with {process.returncode}"
    return [float(number) for number in process.stdout.split()]


def _step(step: str, directory: str, count: int) -> None:
    # What the first topic of a process imports and allocates is not a topic's.
    with Broker.open("memory:") as warm:
        warm.create_topic("first")
    before = resident_bytes(os.getpid())
    began = time.perf_counter()
    with Broker.open(f"file:{directory}/store", settings=_SETTINGS) as broker:
        if step == "create":
            began = time.perf_counter()
            for number in range(count):
                broker.create_topic(f"topic-{number}")
            print(time.perf_counter() - began)
        elif step == "open":
            print(time.perf_counter() - began, resident_bytes(os.getpid()) - before)
        else:
            batch = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
            for number in range(count):
                broker.publish(f"topic-{number}", batch)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
