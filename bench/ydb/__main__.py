"""Run the benchmark of the YDB protocol: `python -m bench.ydb [--messages N] [--rounds N] [--directory DIR]`.

YDB's SDK for Python writes messages of 100 bytes to Headrace, and to a server that only acknowledges: the SDK is the
limit, so a ratio near 1 is all there is. In turns; the ratio is the median over the rounds. Beside it: what a message
costs the server's process, and what one costs that arrives by Kafka's protocol in the same rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import ydb

from bench.kafka.clients import VALUE, Contender, Work, measured, produce
from bench.report import Report
from headrace.load.server import serving
from tests.ports import ReservedPort

TOPIC = "bench"
# A call of the SDK takes so many messages.
CHUNK = 500
PATIENCE_SECONDS = 600
# A message by Kafka's protocol costs little: that is measured over more of them.
KAFKA_TIMES = 10


@contextmanager
def acknowledging() -> Iterator[Contender]:
    """The server that only acknowledges."""
    command = [sys.executable, "-m", "bench.ydb.acknowledging"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Contender("acknowledges", f"127.0.0.1:{int(process.stdout.readline())}", process.pid)
        process.terminate()


@contextmanager
def driver_of(address: str) -> Iterator[Any]:
    """The SDK's driver."""
    with ydb.Driver(endpoint=f"grpc://{address}", database="/local") as driver:
        driver.wait(timeout=PATIENCE_SECONDS)
        yield driver


def write(contender: Contender, driver: Any, messages: int) -> Work:
    """Write as fast as the SDK can, uncompressed, and wait for all acknowledgements."""
    with driver.topic_client.writer(TOPIC, codec=ydb.TopicCodec.RAW) as writer:
        writer.wait_init(timeout=PATIENCE_SECONDS)
        with measured(contender, messages) as work:
            for _ in range(messages // CHUNK):
                writer.write([ydb.TopicWriterMessage(VALUE) for _ in range(CHUNK)])
            writer.flush(timeout=PATIENCE_SECONDS)
    return work


def compare(report: Report, directory: Path, messages: int, rounds: int) -> None:
    """Headrace beside the server that only acknowledges, and YDB's protocol beside Kafka's."""
    with ReservedPort() as ydb_port, ReservedPort() as kafka_port, acknowledging() as limit:
        address, bootstrap = (f"127.0.0.1:{port.number}" for port in (ydb_port, kafka_port))
        options = ["--ydb", address, "--kafka", bootstrap]
        with (
            serving(f"file:{directory}/store", options) as server,
            driver_of(address) as driver,
            driver_of(limit.bootstrap) as limit_driver,
        ):
            ours = Contender("Headrace", bootstrap, server.pid)
            driver.topic_client.create_topic(TOPIC)
            ours.create("kafka", 1)
            write(ours, driver, CHUNK), write(limit, limit_driver, CHUNK), produce(ours, "kafka", CHUNK)
            works = [
                (
                    write(ours, driver, messages),
                    write(limit, limit_driver, messages),
                    produce(ours, "kafka", messages * KAFKA_TIMES),
                )
                for _ in range(rounds)
            ]
    for mine, alone, _ in works:
        report.note(f"{mine.per_second:,.0f} messages/s, and {alone.per_second:,.0f} if they are only acknowledged")
    ratio = median(mine.per_second / alone.per_second for mine, alone, _ in works)
    report.line("StreamWrite, of a server that only acknowledges", ratio, "times", least=0.7)
    cost, by_kafka, bare = (median(each[place].server_us for each in works) for place in (0, 2, 1))
    report.line("server: a message, of what it costs by Kafka's protocol", cost / by_kafka, "times", most=3.0)
    report.note(f"{cost:.1f} µs of a core; Kafka's {by_kafka:.1f} µs; only to acknowledge {bare:.1f} µs")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.ydb", description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where the store is made")
    given = parser.parse_args()
    report = Report("YDB's protocol, messages of 100 bytes")
    report.begin()
    with TemporaryDirectory(dir=given.directory) as directory:
        compare(report, Path(directory), given.messages, given.rounds)
    report.end()


if __name__ == "__main__":
    main()
