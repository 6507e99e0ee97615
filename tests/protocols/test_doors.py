"""Null, empty and a value are three things, for keys, values and attributes, whichever door a message came in by.

A real server. The same messages are written through every door that writes, each to a topic of its own, and each topic
is read through every door that reads. One more topic is read after its messages left the log for the archive.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
import httpx
import pyarrow as pa
import pytest

import headrace
from headrace.aio import connect as connect_async
from headrace.core.messages import PUBLISH_SCHEMA
from headrace.wire.metrics import parse
from tests.cli.processes import headrace as run
from tests.ports import ReservedPort
from tests.protocols.http.event_client import EventReader
from tests.protocols.kafka.raw import RawClient
from tests.server_process import ServerProcess

PATIENCE_SECONDS = 120.0
FETCH = 1
ARROW = "application/vnd.apache.arrow.stream"
FIXED = ("--fixed", "broker.retention_check_seconds=0.1")

Part = bytes | None
# Key, value, and the value of the attribute `h`.
Row = tuple[Part, Part, Part]
ROWS: list[Row] = list(product((None, b"", b"k"), (None, b"", b"v"), (None, b"", b"x")))


@dataclass(frozen=True, slots=True)
class Doors:
    """A server, and a client of it."""

    server: ServerProcess
    client: headrace.Client
    kafka: str
    directory: Path

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def options(self) -> tuple[str, str]:
        return "--url", self.server.url


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("doors")
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        settings = (f"archive.url={directory}/archive", "archive.check_seconds=0.1")
        archiving = [part for setting in settings for part in ("--set", setting)]
        server = ServerProcess(f"file:{directory}/store", "--kafka", address, *archiving, *FIXED)
        try:
            with headrace.connect(server.url) as client:
                for name in WRITERS:
                    client.create_topic(name, partitions=1)
                    WRITERS[name](Doors(server, client, address, directory), name)
                yield Doors(server, client, address, directory)
        finally:
            server.close()


def text(part: Part) -> str | None:
    return None if part is None else part.decode()


def as_json(row: Row) -> dict[str, Any]:
    key, value, item = row
    return {"key": text(key), "value": text(value), "attributes": {"h": text(item)}}


def as_batch() -> pa.RecordBatch:
    columns = {
        "value": [value for _, value, _ in ROWS],
        "key": [key for key, _, _ in ROWS],
        "attributes": [[("h", item)] for _, _, item in ROWS],
    }
    return pa.record_batch({name: pa.array(rows, PUBLISH_SCHEMA.field(name).type) for name, rows in columns.items()})


def of_json(message: dict[str, Any]) -> Row:
    parts = (message.get("key"), message["value"], message["attributes"]["h"])
    return tuple(None if part is None else part.encode() for part in parts)  # type: ignore[return-value]


def of_table(table: pa.Table | pa.RecordBatch) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in ("key", "value", "attributes"))
    return [(key, value, dict(items)["h"]) for key, value, items in zip(*columns, strict=True)]


# Doors that write


def write_by_flight(doors: Doors, topic: str) -> None:
    with doors.client.producer(topic, producer_id="till-7") as producer:
        for key, value, item in ROWS:
            producer.send(value, key=key, attributes={"h": item})


def write_batch_by_flight(doors: Doors, topic: str) -> None:
    with doors.client.producer(topic) as producer:
        producer.send_batch(as_batch())


def write_by_aio(doors: Doors, topic: str) -> None:
    async def send() -> None:
        async with connect_async(doors.server.url) as client, await client.producer(topic) as producer:
            for key, value, item in ROWS:
                await producer.send(value, key=key, attributes={"h": item})

    asyncio.run(send())


def write_by_http(doors: Doors, topic: str) -> None:
    body = {"messages": [as_json(row) for row in ROWS]}
    httpx.post(f"{doors.http}/v1/topics/{topic}/messages", json=body, timeout=PATIENCE_SECONDS).raise_for_status()


def write_arrow_by_http(doors: Doors, topic: str) -> None:
    sink = pa.BufferOutputStream()
    batch = as_batch()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    address, headers = f"{doors.http}/v1/topics/{topic}/messages", {"Content-Type": ARROW}
    answer = httpx.post(address, content=sink.getvalue().to_pybytes(), headers=headers, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()


def write_by_kafka(doors: Doors, topic: str) -> None:
    producer = confluent.Producer({"bootstrap.servers": doors.kafka, "enable.idempotence": True})
    for key, value, item in ROWS:
        producer.produce(topic, value, key=key, headers=[("h", item)])
    assert producer.flush(PATIENCE_SECONDS) == 0


def write_by_command(doors: Doors, topic: str) -> None:
    lines = "".join(json.dumps(as_json(row)) + "\n" for row in ROWS)
    assert run("produce", topic, "--json", *doors.options, stdin=lines).code == 0


WRITERS: dict[str, Callable[[Doors, str], None]] = {
    "flight": write_by_flight,
    "flight-batch": write_batch_by_flight,
    "aio": write_by_aio,
    "http": write_by_http,
    "http-arrow": write_arrow_by_http,
    "kafka": write_by_kafka,
    "command": write_by_command,
}


# Doors that read


def read_by_flight(doors: Doors, topic: str) -> list[Row]:
    with doors.client.consumer(topic, group="readers") as consumer:
        messages = consumer.messages(idle_seconds=PATIENCE_SECONDS)
        read = [next(messages) for _ in ROWS]
    return [(each.key, each.value, (each.attributes or {})["h"]) for each in read]


def read_table_by_flight(doors: Doors, topic: str) -> list[Row]:
    return of_table(doors.client.table(topic))


def read_by_http(doors: Doors, topic: str) -> list[Row]:
    answer = httpx.get(f"{doors.http}/v1/topics/{topic}/partitions/0/messages?offset=0", timeout=PATIENCE_SECONDS)
    return [of_json(message) for message in answer.raise_for_status().json()["messages"]]


def read_arrow_by_http(doors: Doors, topic: str) -> list[Row]:
    address = f"{doors.http}/v1/topics/{topic}/partitions/0/messages?offset=0"
    answer = httpx.get(address, headers={"Accept": ARROW}, timeout=PATIENCE_SECONDS)
    return of_table(pa.ipc.open_stream(answer.raise_for_status().content).read_all())


def read_by_events(doors: Doors, topic: str) -> list[Row]:
    address = f"{doors.http}/v1/topics/{topic}/events?from=earliest"
    with httpx.stream("GET", address, timeout=PATIENCE_SECONDS) as response:
        return [of_json(message) for message in EventReader(response).open().messages(len(ROWS))]


def read_by_queue_api(doors: Doors, topic: str) -> list[Row]:
    """Values alone: this API has neither keys nor attributes."""
    with httpx.Client(base_url=doors.http, timeout=PATIENCE_SECONDS) as client:
        consumer = client.post("/consumer/register", json={"topic": topic}).json()["consumer_id"]
        place = {"topic": topic, "consumer_id": consumer}
        read = [client.get("/consumer/consume", params=place).json()["message"] for _ in ROWS]
    return [
        (key, None if found is None else found.encode(), item) for found, (key, _, item) in zip(read, ROWS, strict=True)
    ]


def read_by_kafka(doors: Doors, topic: str) -> list[Row]:
    consumer = confluent.Consumer({"bootstrap.servers": doors.kafka, "group.id": "any"})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    try:
        read = [consumer.poll(PATIENCE_SECONDS) for _ in ROWS]
        return [(each.key(), each.value(), dict(each.headers())["h"]) for each in read]
    finally:
        consumer.close()


READERS = [
    read_by_flight,
    read_table_by_flight,
    read_by_http,
    read_arrow_by_http,
    read_by_events,
    read_by_queue_api,
    read_by_kafka,
]


@pytest.mark.parametrize("read", READERS)
def test_null_empty_and_a_value_differ_through_every_door(
    doors: Doors, read: Callable[[Doors, str], list[Row]]
) -> None:
    assert {topic: read(doors, topic) for topic in WRITERS} == dict.fromkeys(WRITERS, ROWS)


@pytest.fixture(scope="module")
def archived(doors: Doors) -> str:
    """A topic whose messages are in the archive alone."""
    topic = "archived"
    doors.client.create_topic(topic, 1, archive="on", archive_after_seconds=0, local_retention_seconds=1)
    write_batch_by_flight(doors, topic)
    logs = doors.directory / "store" / "topics" / str(doors.client.archive(topic).topic_id)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while [log.stem.strip("0") for log in logs.glob("*.log")] == [""]:
        assert time.monotonic() < deadline, "the first segment is dropped"
        time.sleep(0.05)
    return topic


@pytest.mark.parametrize("read", READERS)
def test_archived_messages_are_read_through_every_door(
    doors: Doors, archived: str, read: Callable[[Doors, str], list[Row]]
) -> None:
    assert read(doors, archived) == ROWS


def test_archived_messages_are_found_by_their_time(doors: Doors, archived: str) -> None:
    written = doors.client.table(archived).column("timestamp")[0].as_py()
    assert doors.client.offsets_at(archived, written) == {0: 0}
    assert doors.client.offsets_at(archived, written + timedelta(seconds=1)) == {0: len(ROWS)}
    consumer = confluent.Consumer({"bootstrap.servers": doors.kafka, "group.id": "times"})
    try:
        milliseconds = int(written.timestamp() * 1000)
        wanted = [confluent.TopicPartition(archived, 0, milliseconds)]
        assert [each.offset for each in consumer.offsets_for_times(wanted, PATIENCE_SECONDS)] == [0]
    finally:
        consumer.close()


def test_commands_print_export_and_import_nulls(doors: Doors) -> None:
    printed = run("consume", "kafka", "--json", *doors.options).lines()
    assert [of_json(json.loads(line)) for line in printed] == ROWS
    shown = run("consume", "kafka", "--format", "{value}|{attributes}", *doors.options).lines()
    assert shown[:6] == ["null|h", "null|h=", "null|h=x", "|h", "|h=", "|h=x"]
    for name in ("all.jsonl", "all.parquet"):
        topic = f"back-{name}"
        doors.client.create_topic(topic)
        file = str(doors.directory / name)
        assert run("topic", "export", "kafka", file, *doors.options).code == 0
        assert run("topic", "import", topic, file, *doors.options).code == 0
        assert of_table(doors.client.table(topic)) == ROWS


def kafka_member(doors: Doors, group: str, topic: str) -> confluent.Consumer:
    """A Kafka consumer in a group, which commits what it was given when it is closed."""
    options = {"bootstrap.servers": doors.kafka, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent.Consumer(options)
    consumer.subscribe([topic])
    return consumer


def test_a_group_moves_between_kafka_and_native_members(doors: Doors) -> None:
    """Each time in the middle of what there is to read: all messages are handled, and what was committed only once."""
    doors.client.create_topic("moving", partitions=4)
    with doors.client.producer("moving") as producer:
        for number in range(400):
            producer.send(b"%d" % number, key=b"%d" % number)
    handled: list[bytes] = []
    for _ in range(2):
        member = kafka_member(doors, "movers", "moving")
        handled += [member.poll(PATIENCE_SECONDS).value() for _ in range(100)]
        member.close()
        with doors.client.consumer("moving", group="movers") as consumer:
            messages = consumer.messages(idle_seconds=PATIENCE_SECONDS)
            handled += [next(messages).value for _ in range(100)]
            consumer.commit()
    assert sorted(handled, key=int) == [b"%d" % number for number in range(400)]


def test_a_group_has_members_of_one_kind(doors: Doors) -> None:
    doors.client.create_topic("kinds")
    write_batch_by_flight(doors, "kinds")
    kafka = kafka_member(doors, "kinds", "kinds")
    assert kafka.poll(PATIENCE_SECONDS).error() is None
    told = "it has Kafka members in topic 'kinds', and members of one kind at a time: stop them first"
    with (
        pytest.raises(headrace.errors.GroupSizeConflict, match=told),
        doors.client.consumer("kinds", group="kinds") as refused,
    ):
        refused.poll(timeout=PATIENCE_SECONDS)
    kafka.close()
    with doors.client.consumer("kinds", group="kinds") as native:
        assert native.poll(timeout=PATIENCE_SECONDS).num_rows == len(ROWS) - 1
        kafka = kafka_member(doors, "kinds", "kinds")
        error = kafka.poll(PATIENCE_SECONDS).error()
        assert error.name() == "INCONSISTENT_GROUP_PROTOCOL"
        kafka.close()


def test_requests_of_kafka_clients_are_counted(doors: Doors) -> None:
    with RawClient(int(doors.kafka.partition(":")[2])) as client:
        refused = client.call(FETCH, 4, topics=[{"topic": "no-topic", "partitions": [{"partition": 0}]}], max_wait=0)
        assert refused.responses[0].partitions[0].error_code != 0
        found = parse(httpx.get(f"{doors.http}/metrics", timeout=PATIENCE_SECONDS).raise_for_status().text)
    requests = {tuple(labels.values()): count for labels, count in found["headrace_protocol_requests_total"]}
    assert requests["kafka", "Produce", "none"] > 0
    assert requests["kafka", "Fetch", "unknown_topic_or_partition"] == 1
    for name in ("bytes_in_total", "bytes_out_total", "connections"):
        assert found[f"headrace_protocol_{name}"][0][1] > 0


def test_a_line_may_stand_for_null(doors: Doors) -> None:
    doors.client.create_topic("lines")
    arguments = ("produce", "lines", "--key-separator", ":", "--null-value", "gone", *doors.options)
    assert run(*arguments, stdin="a:1\na:gone\ngone\nb:\n").code == 0
    found = doors.client.table("lines")
    assert found.column("value").to_pylist() == [b"1", None, None, b""]
    assert found.column("key").to_pylist() == [b"a", b"a", None, b"b"]
