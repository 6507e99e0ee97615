"""Apache Kafka through confluent-kafka: one broker in KRaft mode from jars, batches by its own producer.

The jars come by `make kafka-jars`. A sync of every write is a setting of the broker: a flush after every message.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import processes
from bench.peers.work import VALUE, Missing, Peer

JARS = Path(__file__).parent / "kafka_jars" / "target"
TOPIC = "bench"
PARTITIONS = 8
CLUSTER = "aGVhZHJhY2UtYmVuY2gxMg"
HEAP = "-Xmx1g"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of Apache Kafka that runs, and the port that it listens on."""

    process: subprocess.Popen[bytes]
    port: int


def started(directory: Path, synced: bool, more: Mapping[str, str] | None = None) -> Broker:
    """One broker that is its own controller, on an empty directory; `synced` has it sync every write."""
    java = processes.find("java", "a JRE of version 17 or newer")
    if not list(JARS.glob("kafka_*.jar")):
        raise Missing("the jars of Apache Kafka are missing: make kafka-jars")
    port, controller = processes.free_port(), processes.free_port()
    config = directory / "server.properties"
    config.write_text(_config(directory, port, controller, synced, more or {}))
    program = [java, HEAP, "-cp", f"{JARS}/*"]
    processes.run([*program, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)], directory)
    return Broker(processes.start([*program, "kafka.Kafka", str(config)], port, directory), port)


def _config(directory: Path, port: int, controller: int, synced: bool, more: Mapping[str, str]) -> str:
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{directory}/logs",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    if synced:
        settings["log.flush.interval.messages"] = 1
    return "".join(f"{name}={value}\n" for name, value in (settings | dict(more)).items())


class Kafka(Peer):
    """One broker that is its own controller."""

    batch = 10_000

    def __init__(self, synced: bool) -> None:
        self.name = "Apache Kafka, fsync always" if synced else "Apache Kafka, default settings"
        self._synced = synced

    def start(self, directory: Path) -> None:
        kafka = _library("confluent_kafka")
        self._broker = started(directory, self._synced)
        self._servers: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{self._broker.port}", "log_level": 0}
        self._create_topic()
        batching = {"linger.ms": 5, "batch.num.messages": self.batch, "batch.size": 1 << 20}
        self._producer = kafka.Producer(
            self._servers | batching | {"acks": "all", "queue.buffering.max.messages": 1_000_000}
        )
        self._single = kafka.Producer(self._servers | {"linger.ms": 0, "acks": "all"})

    def _create_topic(self) -> None:
        admin = _library("confluent_kafka.admin")
        client = admin.AdminClient(self._servers)
        client.create_topics([admin.NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)

    def publish(self, messages: int) -> None:
        for _ in range(messages // self.batch):
            for _ in range(self.batch):
                self._producer.produce(TOPIC, VALUE)
            self._producer.poll(0)
        if self._producer.flush(120):
            raise RuntimeError("Kafka did not acknowledge everything")

    def publish_one(self) -> None:
        self._single.produce(TOPIC, VALUE)
        if self._single.flush(60):
            raise RuntimeError("Kafka did not acknowledge a message")

    def read(self, messages: int) -> int:
        consumer = self._consumer()
        count = 0
        while count < messages:
            came = consumer.consume(min(10_000, messages - count), timeout=30.0)
            if not came:
                break
            count += len(came)
        consumer.close()
        return count

    def _consumer(self) -> Any:
        kafka = _library("confluent_kafka")
        consumer = kafka.Consumer(self._servers | {"group.id": "bench", "enable.auto.commit": False})
        first = kafka.OFFSET_BEGINNING
        consumer.assign([kafka.TopicPartition(TOPIC, number, first) for number in range(PARTITIONS)])
        return consumer

    def stop(self) -> None:
        # Producers disconnect when nobody has them any more.
        del self._producer, self._single
        processes.stop(self._broker.process)


def _library(name: str) -> Any:
    """The client's library, which is installed only where peers are measured."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise Missing(f"{name} is not installed: make bench NAME=peers installs it") from None
