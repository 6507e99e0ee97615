"""What is measured of a server that speaks Kafka, through the same clients whichever server it is.

Times of a client depend on who else uses the machine; what the server's process used of processors does so less. Both
are measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.kafka_broker import JARS

VALUE = os.urandom(100)
PATIENCE_SECONDS = 600
_SMALL_COMMIT_BYTES = 512
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that runs: where clients find it, and its process."""

    name: str
    bootstrap: str
    pid: int

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_SECONDS)

    def processor_seconds(self) -> float:
        """What its process has used of processors so far."""
        fields = re.sub(r"\(.*\)", "", Path(f"/proc/{self.pid}/stat").read_text()).split()
        return (int(fields[12]) + int(fields[13])) / _TICKS


@dataclass(slots=True)
class Work:
    """Some messages that went through a server."""

    messages: int
    seconds: float = 0.0
    server_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def server_us(self) -> float:
        """What one message cost the server, in microseconds of a core."""
        return self.server_seconds / self.messages * 1e6


@contextmanager
def measured(contender: Contender, messages: int) -> Iterator[Work]:
    """How long the block takes, and what it costs the server."""
    work = Work(messages)
    used, began = contender.processor_seconds(), time.perf_counter()
    yield work
    work.seconds = time.perf_counter() - began
    work.server_seconds = contender.processor_seconds() - used


def produce(contender: Contender, topic: str, messages: int, is_keyed: bool = False) -> Work:
    """confluent-kafka sends as fast as it can, with a linger of 5 ms and acks=all."""
    settings = {"linger.ms": 5, "acks": "all", "queue.buffering.max.messages": 2_000_000, "log_level": 0}
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": contender.bootstrap, **settings})
    keys = [b"key-%d" % number for number in range(10_000)] if is_keyed else [None]
    with measured(contender, messages) as work:
        for number in range(messages):
            producer.produce(topic, VALUE, keys[number % len(keys)])
            if number % 1000 == 0:
                producer.poll(0)
        if producer.flush(PATIENCE_SECONDS) or failed:
            raise RuntimeError(f"{contender.name} did not acknowledge everything")
    return work


def client_alone(messages: int) -> float:
    """How many messages a second the same client takes with no server behind it: nothing can be faster than that."""
    settings = {"queue.buffering.max.messages": 2_000_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", **settings})
    began = time.perf_counter()
    for number in range(messages):
        producer.produce("nobody", VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    seconds = time.perf_counter() - began
    producer.purge()
    return messages / seconds


def syncs(directory: Path, count: int) -> list[float]:
    """The seconds of writes of 512 bytes with a sync each, over zeros that are on the device, as a small commit is."""
    path = directory / "syncs"
    times = []
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(count * _SMALL_COMMIT_BYTES))
        os.fsync(file.fileno())
        for number in range(count):
            began = time.perf_counter()
            os.pwrite(file.fileno(), VALUE[:1] * _SMALL_COMMIT_BYTES, number * _SMALL_COMMIT_BYTES)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    path.unlink()
    return times


def consume(contender: Contender, topic: str, partitions: int, messages: int) -> Work:
    """confluent-kafka reads from the beginning, all partitions at once."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": contender.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    got = 0
    with measured(contender, messages) as work:
        while got < messages:
            got += len(consumer.consume(10_000, 1.0))
    consumer.close()
    return work


def round_trips(contender: Contender, topic: str, count: int) -> list[float]:
    """The seconds of single messages, each acknowledged before the next."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": contender.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0}
    )
    times = []
    for _ in range(count):
        began = time.perf_counter()
        producer.produce(topic, VALUE)
        if producer.flush(PATIENCE_SECONDS):
            raise RuntimeError(f"{contender.name} did not acknowledge a message")
        times.append(time.perf_counter() - began)
    return times


def producer_perf_test(contender: Contender, topic: str, messages: int) -> Work:
    """Apache Kafka's own kafka-producer-perf-test, with the same settings."""
    command = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(messages), "--record-size", "100", "--throughput", "-1"]
    command += ["--producer-props", f"bootstrap.servers={contender.bootstrap}", "acks=all", "linger.ms=5"]
    with measured(contender, messages) as work:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    # Without the time that Java takes to start.
    found = re.findall(r"([\d.]+) records/sec", ended.stdout)
    work.seconds = messages / float(found[-1])
    return work
