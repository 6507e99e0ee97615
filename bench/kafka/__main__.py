"""Run all benchmarks of the Kafka protocol: `python -m bench.kafka [--messages N] [--rounds N] [--directory DIR]`.

Headrace beside Apache Kafka, as it comes and with a sync of every write: one broker in KRaft mode from the jars of
`make kafka-jars`. The servers run at the same time and are measured in turns, by the same clients: 100-byte messages,
eight partitions, acks=all. A ratio is the median over the rounds of the ratio within a round. In the same rounds: how
fast the client is alone, and what a write with a sync takes on this disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.kafka import clients, codec, cost
from bench.kafka.clients import Contender, Work
from bench.peers import kafka_broker, processes
from bench.peers.work import Missing
from bench.report import Report, percentiles_ms
from headrace.load.server import serving
from tests.ports import ReservedPort

TOPIC = "bench"
PARTITIONS = 8
ROUND_TRIPS = 300
HEADRACE, SYNCED, DEFAULT = "Headrace", "Kafka with sync", "Kafka as it comes"

# What Headrace must reach of each of the others.
THROUGHPUT = {SYNCED: 1.5, DEFAULT: 0.8}
CONSUMED = {SYNCED: 1.0, DEFAULT: 1.0}


@contextmanager
def headrace_server(directory: Path) -> Iterator[Contender]:
    """A server on an empty store."""
    with ReservedPort() as port:
        bootstrap = f"127.0.0.1:{port.number}"
        with serving(f"file:{directory}/store", ["--kafka", bootstrap]) as server:
            yield Contender(HEADRACE, bootstrap, server.pid)


@contextmanager
def kafka_server(directory: Path, name: str) -> Iterator[Contender]:
    """A broker of Apache Kafka on an empty directory."""
    directory.mkdir()
    broker = kafka_broker.started(directory, name == SYNCED)
    try:
        yield Contender(name, f"127.0.0.1:{broker.port}", broker.process.pid)
    finally:
        processes.stop(broker.process)


def compare(report: Report, contenders: list[Contender], messages: int, rounds: int, directory: Path) -> None:
    """Headrace beside the others, in turns."""
    produced: dict[str, list[Work]] = {each.name: [] for each in contenders}
    consumed: dict[str, list[Work]] = {each.name: [] for each in contenders}
    by_java: dict[str, list[Work]] = {each.name: [] for each in contenders}
    times: dict[str, list[float]] = {each.name: [] for each in contenders}
    synced: list[float] = []
    alone: list[float] = []
    for contender in contenders:
        contender.create(TOPIC, PARTITIONS)
        clients.produce(contender, TOPIC, messages)
    for _ in range(rounds):
        for contender in contenders:
            produced[contender.name].append(clients.produce(contender, TOPIC, messages))
        alone.append(clients.client_alone(messages))
        for contender in contenders:
            consumed[contender.name].append(clients.consume(contender, TOPIC, PARTITIONS, messages))
        for contender in contenders:
            times[contender.name] += clients.round_trips(contender, TOPIC, ROUND_TRIPS)
        synced += clients.syncs(directory, ROUND_TRIPS)
        for contender in contenders:
            by_java[contender.name].append(clients.producer_perf_test(contender, TOPIC, messages))
    _throughput(report, "confluent-kafka produces", produced, THROUGHPUT)
    report.line("confluent-kafka produces, with no server behind it", median(alone), "messages/s")
    for name, done in produced.items():
        report.note(f"of that, {name}: {median(each.per_second for each in done) / median(alone):.2f}")
    _throughput(report, "kafka-producer-perf-test produces", by_java, THROUGHPUT)
    _throughput(report, "confluent-kafka consumes", consumed, CONSUMED)
    _latency(report, times)
    _without_sync(report, times, synced)


def _throughput(report: Report, what: str, works: dict[str, list[Work]], targets: dict[str, float]) -> None:
    for name, done in works.items():
        report.line(f"{what}, {name}", median(each.per_second for each in done), "messages/s")
        report.note(f"server: {median(each.server_us for each in done):.2f} µs of a core for each")
    for name, least in targets.items():
        pairs = zip(works[HEADRACE], works.get(name, []), strict=False)
        ratios = [ours.per_second / theirs.per_second for ours, theirs in pairs]
        if ratios:
            report.line(f"{what}, of {name}", median(ratios), "times", least=least)


def _latency(report: Report, times: dict[str, list[float]]) -> None:
    taken = {name: percentiles_ms(each) for name, each in times.items()}
    for name, each in taken.items():
        report.line(f"one message at a time, {name}, p50", each["p50"], "ms")
        report.line(f"one message at a time, {name}, p99", each["p99"], "ms")
    ours = taken.pop(HEADRACE)
    for name, each in taken.items():
        for what, most in (("p50", 1.5), ("p99", 1.0)):
            report.line(f"one message at a time, {what} of {name}", ours[what] / each[what], "times", most=most)


def _without_sync(report: Report, times: dict[str, list[float]], synced: list[float]) -> None:
    """What is Headrace's own in a round trip: Kafka as it comes does not wait for the device."""
    sync_ms = percentiles_ms(synced)["p50"]
    report.line("a write of 512 bytes with a sync, p50", sync_ms, "ms")
    own_ms = percentiles_ms(times[HEADRACE])["p50"] - sync_ms
    report.line("one message at a time, Headrace without that, p50", own_ms, "ms")
    for name, each in times.items():
        if name != HEADRACE:
            report.line(f"the same, of {name}", own_ms / percentiles_ms(each)["p50"], "times")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the stores are: choose the disk to measure")
    parser.add_argument("--only", choices=["codec", "kafka", "cost"], help="one part of it")
    given = parser.parse_args()
    report = Report("the Kafka protocol")
    report.begin()
    if given.only in (None, "codec"):
        codec.compare(report)
    with ExitStack() as running:
        directory = Path(running.enter_context(TemporaryDirectory(prefix="headrace-bench-", dir=given.directory)))
        if given.only in (None, "kafka", "cost"):
            headrace = running.enter_context(headrace_server(directory))
        if given.only in (None, "cost"):
            cost.partitions(report, headrace, given.messages)
            cost.idle_group(report, headrace)
        if given.only in (None, "kafka"):
            contenders = [headrace]
            try:
                contenders += [
                    running.enter_context(kafka_server(directory / name.replace(" ", "-"), name))
                    for name in (SYNCED, DEFAULT)
                ]
            except Missing as missing:
                report.note(f"missing: {missing}")
            compare(report, contenders, given.messages, given.rounds, directory)
    report.end()


if __name__ == "__main__":
    main()
