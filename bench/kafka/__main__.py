"""Run all benchmarks of the Kafka protocol: `python -m bench.kafka [--messages N] [--directory DIR]`.

confluent-kafka (librdkafka) beside the native client, on the same server, one after the other: 100-byte messages, eight
partitions, every acknowledgement on the device. `make bench-peers` compares with Apache Kafka itself.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.kafka.codec import compare
from bench.report import Report, percentiles_ms
from headrace import connect
from headrace.load.server import ServerProcess, serving, temporary_store
from tests.ports import ReservedPort

PARTITIONS = 8
VALUE = b"x" * 100
ROUND_TRIPS = 300
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """What a process has used of processors so far."""
    fields = re.sub(r"\(.*\)", "", Path(f"/proc/{pid}/stat").read_text()).split()
    return (int(fields[12]) + int(fields[13])) / _TICKS


def produce(report: Report, server: ServerProcess, bootstrap: str, messages: int, **more: Any) -> None:
    """Many messages at once."""
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "acks": "all",
        "queue.buffering.max.messages": 2_000_000,
    }
    producer = confluent_kafka.Producer(settings | more)
    used, began = processor_seconds(server.pid), time.perf_counter()
    for number in range(messages):
        producer.produce("bench", VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(300)
    took = time.perf_counter() - began
    what = "idempotent" if more else "plain"
    report.line(f"confluent-kafka produces, {what}", messages / took, "messages/s")
    report.note(f"server: {(processor_seconds(server.pid) - used) / messages * 1e6:.2f} µs of a core for each")


def round_trips(report: Report, bootstrap: str) -> None:
    """One message at a time, each acknowledged before the next."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        producer.produce("bench", VALUE)
        producer.flush(60)
        times.append(time.perf_counter() - began)
    for name, value in percentiles_ms(times).items():
        report.line(f"confluent-kafka, one message at a time, {name}", value, "ms")


def consume(report: Report, server: ServerProcess, bootstrap: str, messages: int) -> None:
    """All of it from the beginning, as messages of confluent-kafka."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition("bench", number, 0) for number in range(PARTITIONS)])
    got, used, began = 0, processor_seconds(server.pid), time.perf_counter()
    while got < messages:
        got += len(consumer.consume(10_000, 1.0))
    took = time.perf_counter() - began
    consumer.close()
    report.line("confluent-kafka consumes", got / took, "messages/s")
    report.note(f"server: {(processor_seconds(server.pid) - used) / got * 1e6:.2f} µs of a core for each")


def native(report: Report, server: ServerProcess, messages: int) -> None:
    """The same with the native client, message by message."""
    with connect(server.url) as client:
        used, began = processor_seconds(server.pid), time.perf_counter()
        with client.producer("bench") as producer:
            for _ in range(messages):
                producer.send(VALUE)
        took = time.perf_counter() - began
    report.line("the native client sends", messages / took, "messages/s")
    report.note(f"server: {(processor_seconds(server.pid) - used) / messages * 1e6:.2f} µs of a core for each")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--directory", type=Path, help="where the store is, of its size")
    given = parser.parse_args()
    report = Report("the Kafka protocol")
    report.begin()
    compare(report)
    with ReservedPort() as port, temporary_store(given.directory) as store:
        bootstrap = f"127.0.0.1:{port.number}"
        with serving(store, ["--kafka", bootstrap]) as server:
            with connect(server.url) as client:
                client.create_topic("bench", partitions=PARTITIONS)
            produce(report, server, bootstrap, given.messages)
            produce(report, server, bootstrap, given.messages, **{"enable.idempotence": True})
            consume(report, server, bootstrap, 2 * given.messages)
            round_trips(report, bootstrap)
            native(report, server, given.messages)
    report.end()


if __name__ == "__main__":
    main()
