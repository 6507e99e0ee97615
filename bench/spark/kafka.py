"""Headrace beside Spark's Kafka connector: `make bench NAME=spark.kafka`.

The same messages in a topic of Headrace and in one of Apache Kafka, both of 8 partitions, read by Spark on local[2]
with the columns that both have, round by round in turn. The connector runs with its own Spark, by the Python of an
environment that has it; make makes that, and fetches the jars.

CPU is what all processes of a side took: Spark with its Python workers, and the broker. On a busy machine only this can
be compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.kafka_broker import Broker as KafkaBroker
from bench.peers.kafka_broker import started
from bench.peers.processes import stop_all
from bench.report import Report
from bench.rounds import best_of, processor_seconds, report_speed
from bench.spark.kafka_connector import COLUMNS
from bench.spark.site import Site, open_site, to_nowhere

ROOT = Path(__file__).parents[2]
JARS = ROOT / "tests" / "kafka_tools" / "spark_jars" / "target"
CONNECTOR = Path(__file__).parent / "kafka_connector.py"
TOPIC = "full"
PARTITIONS = 8
TARGET_TIMES = 8.0
_BATCH = 10_000


def fill(site: Site, servers: str, messages: int) -> None:
    """The same messages for both."""
    rows = site.rows(messages)
    site.write(rows, site.topic(TOPIC, PARTITIONS))
    known, admin = {"bootstrap.servers": servers}, import_module("confluent_kafka.admin")
    # Kept in a variable, since a client that nobody has any more ends its calls.
    client = admin.AdminClient(known)
    client.create_topics([admin.NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    producer = import_module("confluent_kafka").Producer(
        {**known, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    for number, row in enumerate(rows.toLocalIterator()):
        producer.produce(TOPIC, bytes(row.value), bytes(row.key))
        if number % _BATCH == 0:
            producer.poll(0)
            while len(producer) > _BATCH * 10:
                producer.poll(0.1)
    if producer.flush(300):
        raise RuntimeError("Kafka did not acknowledge everything")
    rows.unpersist()


class Connector:
    """The process that reads by the connector."""

    def __init__(self, python: str, servers: str, directory: Path, messages: int) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
        }
        command = [python, str(CONNECTOR), str(JARS), servers, TOPIC, str(directory / "connector")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept
        )
        assert self._answer() == str(messages), "Kafka has all messages"

    def read(self) -> None:
        """Read everything once."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        assert self._answer() == "done", "the connector read everything"

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def measure(report: Report, site: Site, kafka: KafkaBroker, connector: Connector, messages: int) -> None:
    """Both in turn."""
    theirs = (connector.process.pid, kafka.process.pid)
    named = ",".join(COLUMNS)

    def ours() -> float:
        # This process has the broker; its Spark and the other side are its children.
        return processor_seconds(without=theirs)

    names = ("connector", "data source", "headrace.spark.read")
    costs = best_of(
        [
            (connector.read, lambda: processor_seconds(*theirs)),
            (lambda: to_nowhere(site.read(TOPIC, columns=named)), ours),
            (lambda: to_nowhere(site.read_fast(TOPIC, columns=named)), ours),
        ]
    )
    for name, cost in zip(names, costs, strict=True):
        report.line(name, messages / cost.seconds, "rows/s")
        report.line("  processor time of a million messages", cost.processor_seconds * 1e6 / messages, "s")
        if name != "connector":
            target = TARGET_TIMES if name == "headrace.spark.read" else None
            report_speed(report, "the connector's rate", cost, costs[0], least=target)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    python = ROOT / ".venv-kafka-spark" / "bin" / "python"
    parser.add_argument("--python", default=str(python), help="the Python that has the connector's Spark")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    report = Report(
        f"bench-spark.kafka: {given.messages:,} messages of 100-byte values with keys, local[2], best of five"
    )
    report.begin()
    with TemporaryDirectory(dir=given.directory, prefix="bench-") as made, open_site(Path(made)) as site:
        try:
            (Path(made) / "kafka").mkdir()
            kafka = started(Path(made) / "kafka", synced=False)
            servers = f"127.0.0.1:{kafka.port}"
            fill(site, servers, given.messages)
            connector = Connector(given.python, servers, Path(made), given.messages)
            measure(report, site, kafka, connector, given.messages)
            connector.close()
        finally:
            stop_all()
    report.end()


if __name__ == "__main__":
    main()
