"""Headrace beside Spark's Kafka connector: `python -m bench.spark.kafka --python PYTHON [--messages N]`.

The same messages in a topic of Headrace and in one of Apache Kafka, both of 8 partitions, read by Spark on local[2]
with the columns that both have, round by round in turn. The connector runs with its own Spark, by the Python of an
environment that has it; `make bench-spark-kafka` makes that, and fetches the jars.

CPU is what all processes of a side took: Spark with its Python workers, and the broker. On a busy machine only this can
be compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.kafka_broker import Broker as KafkaBroker
from bench.peers.kafka_broker import started
from bench.peers.processes import stop_all
from bench.report import Report
from bench.spark.kafka_connector import COLUMNS
from bench.spark.site import ROUNDS, WARMING_ROUNDS, Site, open_site, to_nowhere

JARS = Path(__file__).parents[2] / "tests" / "kafka_tools" / "spark_jars" / "target"
CONNECTOR = Path(__file__).parent / "kafka_connector.py"
TOPIC = "full"
PARTITIONS = 8
TARGET_TIMES = 8.0
_TICKS = os.sysconf("SC_CLK_TCK")
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


def cpu_seconds(*roots: int, without: int = 0) -> float:
    """What processes and all that they started have taken, without one of those."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    total, left = 0, list(roots)
    while left:
        pid = left.pop()
        if pid != without:
            total += ticks.get(pid, 0)
            left += [child for child in parents.get(pid, []) if child not in roots]
    return total / _TICKS


def measure(report: Report, site: Site, kafka: KafkaBroker, connector: Connector, messages: int) -> None:
    """Both in turn."""
    theirs = (connector.process.pid, kafka.process.pid)
    named = ",".join(COLUMNS)
    actions: dict[str, tuple[Callable[[], None], Callable[[], float]]] = {
        "connector": (connector.read, lambda: cpu_seconds(*theirs)),
        "data source": (lambda: to_nowhere(site.read(TOPIC, columns=named)), lambda: _ours(theirs)),
        "headrace.spark.read": (lambda: to_nowhere(site.read_fast(TOPIC, columns=named)), lambda: _ours(theirs)),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for _ in range(WARMING_ROUNDS + ROUNDS):
        for name, (read, cpu) in actions.items():
            cpu_before, began = cpu(), time.perf_counter()
            read()
            taken[name].append((time.perf_counter() - began, cpu() - cpu_before))
    best = {name: tuple(map(min, zip(*pairs[WARMING_ROUNDS:], strict=True))) for name, pairs in taken.items()}
    their_wall, their_cpu = best["connector"]
    for name, (wall, cpu_taken) in best.items():
        report.line(name, messages / wall, "rows/s")
        report.line("  CPU of a million messages", cpu_taken * 1e6 / messages, "s")
        if name != "connector":
            report.line("  of the connector's rate", their_wall / wall, "times", least=TARGET_TIMES)
            report.line("  by CPU", their_cpu / cpu_taken, "times")


def _ours(theirs: tuple[int, ...]) -> float:
    """This process has the broker; its Spark and the other side are its children."""
    return cpu_seconds(os.getpid()) - cpu_seconds(*theirs)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, help="the Python that has the connector's Spark")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    report = Report(
        f"bench-spark-kafka: {given.messages:,} messages of 100-byte values with keys, local[2], best of five"
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
