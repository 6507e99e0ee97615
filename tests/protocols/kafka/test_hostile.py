"""What a server does with what is no request, or a request that lies: an error or a closed connection, and one line."""

from __future__ import annotations

import gc
import logging
import struct
from uuid import UUID

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from headrace.broker import Broker
from headrace.core.errors import HeadraceError
from headrace.edge.event_loop.frame_connection import UNKNOWN_BYTES_MAX
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.records.header import BadRecords
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
ROWS: list[Record] = [(NOW_MS, b"key", b"value", [])]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


CLOSED = {
    "a gigabyte is announced": struct.pack(">i", 1 << 30),
    "a negative size": struct.pack(">i", -1),
    "no room for a head": framed(b"\x00" * 4),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "an unknown API": framed(header(999, 0)),
    "a negative API": framed(header(-1, 0)),
    "an unknown version": framed(header(METADATA, 99)),
    "a version of old": framed(header(PRODUCE, 1)),
    "a transaction API": framed(header(24, 0)),
    "a client id beyond the end": framed(struct.pack(">hhih", METADATA, 1, 7, 500)),
    "a false count": framed(header(METADATA, 1) + b"\x7f\xff\xff\xff"),
    "a false compact count": framed(header(METADATA, 9) + b"\x00\xff\xff\xff\xff\x0f"),
    "a long string": framed(header(METADATA, 9) + b"\x00\x02\x81\x80\x02" + bytes(1 << 15) + b"\x00" * 4),
    "very many elements": framed(header(METADATA, 1) + struct.pack(">i", 1_000_000) + bytes(2_000_000)),
    "a cut request": framed(header(FETCH, 4) + b"\x00\x00"),
    "SASL without a frame": framed(header(17, 0) + b"\x00\x05PLAIN"),
}


@pytest.mark.parametrize("attack", CLOSED)
def test_what_is_no_request_closes_its_connection(attack: str, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), RawClient(site.port) as client:
        client.send(CLOSED[attack])
        assert client.is_closed()
        # The line is written before the connection is closed.
        assert len(caplog.records) == 1, caplog.text
        assert "127.0.0.1" in caplog.text
    with RawClient(site.port) as other:
        assert other.call(METADATA, 12, topics=[]).controller_id == 0


def test_a_slow_sender_is_disconnected() -> None:
    listeners, settings = sockets.bind("127.0.0.1", 0), KafkaSettings(request_seconds_max=0.3)
    with (
        Broker.open("memory:") as broker,
        KafkaServer(broker, broker.access, settings, listeners),
        RawClient(sockets.port_of(listeners)) as client,
    ):
        client.call(METADATA, 1, topics=[])
        client.send(struct.pack(">i", 1000) + b"\x00")
        assert client.is_closed()


def test_a_client_that_leaves_in_the_middle_harms_nobody(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for cut in (b"\x00", struct.pack(">i", 100), framed(header(METADATA, 1))[:9]):
            with RawClient(site.port) as client:
                client.send(cut)
        with RawClient(site.port) as client:
            site.broker.create_topic("left")
            wanted = [{"topic": "left", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
            client.request(FETCH, 4, max_wait=600_000, min_bytes=1, max_bytes=1, topics=wanted)
        with RawClient(site.port) as client:
            assert client.call(METADATA, 1, topics=[]).controller_id == 0
    assert not caplog.records


def test_unknown_versions_of_api_versions_are_answered(site: Site) -> None:
    with RawClient(site.port) as client:
        client._asked.append((API_VERSIONS, 0))
        client.send(framed(struct.pack(">hhih", API_VERSIONS, 99, 0, -1)))
        answer = client.answer(0)
        assert answer.error_code == 35 and len(answer.api_keys) > 20
        assert client.call(API_VERSIONS, 4).error_code == 0


def produced(
    client: RawClient, topic: str, *parts: tuple[int, bytes | None], acks: int = -1
) -> dict[int, tuple[int, int]]:
    """Produce to partitions: error and offset of each."""
    data = [{"index": index, "records": records} for index, records in parts]
    answer = client.call(PRODUCE, 9, acks=acks, timeout=1000, topic_data=[{"name": topic, "partition_data": data}])
    return {each.index: (each.error_code, each.base_offset) for each in answer.responses[0].partition_responses}


def test_a_bad_partition_leaves_the_others_alone(site: Site) -> None:
    site.broker.create_topic("partly", 3, message_bytes_max=1000)
    good = built(ROWS)
    spoiled = good[:-1] + bytes([good[-1] ^ 1])
    large = built([(NOW_MS, None, b"x" * 2000, [])])
    with RawClient(site.port) as client:
        parts = ((0, good), (1, spoiled), (2, large), (7, good), (-1, good))
        assert produced(client, "partly", *parts) == {0: (0, 0), 1: (2, -1), 2: (10, -1), 7: (3, -1), -1: (3, -1)}
        assert produced(client, "partly", (0, None)) == {0: (87, -1)}
        assert produced(client, "missing", (0, good)) == {0: (3, -1)}
        assert produced(client, "partly", (0, good), acks=5) == {0: (21, -1)}
        # Offsets are the broker's to give. The checksum does not cover what a batch says of its own.
        assert produced(client, "partly", (0, struct.pack(">q", 7) + good[8:])) == {0: (87, -1)}
        assert produced(client, "partly", (0, good)) == {0: (0, 1)}


def test_few_bytes_that_decompress_to_many_are_written_part_by_part() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = KafkaSettings(request_bytes_max=3 << 20, requests_bytes_max=64 << 20)
    bomb = built([(NOW_MS, None, bytes(2 << 20), [])], 1)
    larger = built([(NOW_MS, None, bytes(4 << 20), [])], 1)
    assert len(bomb) < 4000
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners):
        broker.create_topic("bombs", 20, message_bytes_max=4 << 20)
        broker.create_topic("small", 20, message_bytes_max=1000)
        with RawClient(sockets.port_of(listeners)) as client:
            parts = [(number, larger if number == 7 else bomb) for number in range(20)]
            expected = {number: (18, -1) if number == 7 else (0, 0) for number in range(20)}
            assert produced(client, "bombs", *parts) == expected
            gc.disable()
            try:
                # Nothing of what was refused is kept, not even until a garbage collection.
                before = pa.total_allocated_bytes()
                assert set(produced(client, "small", *parts).values()) == {(10, -1), (18, -1)}
                assert pa.total_allocated_bytes() - before < 8 << 20
            finally:
                gc.enable()


def test_what_was_refused_waits_for_no_garbage_collection(site: Site) -> None:
    site.broker.create_topic("partly", message_bytes_max=1000)
    unknown = [{"topic_id": UUID(int=number), "partitions": [{"partition": 0}]} for number in range(1, 4)]
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with RawClient(site.port) as client:
            assert produced(client, "partly", (0, b"no records" * 100_000)) == {0: (87, -1)}
            assert produced(client, "partly", (7, built(ROWS)), (0, built([(NOW_MS, None, bytes(2000), [])]))) == {
                7: (3, -1),
                0: (10, -1),
            }
            answer = client.call(FETCH, 13, max_wait=0, topics=unknown)
            assert [each.partitions[0].error_code for each in answer.responses] == [100] * 3
        gc.collect()
        kept = [each for each in gc.garbage if isinstance(each, HeadraceError | BadRecords)]
        assert kept == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_a_gap_an_old_epoch_and_a_retry_of_a_producer(site: Site) -> None:
    site.broker.create_topic("sequences")

    def batch(epoch: int, first: int, count: int = 2) -> bytes:
        rows: list[Record] = [(NOW_MS, None, b"%d/%d" % (epoch, first + each), []) for each in range(count)]
        return built(rows, producer=(5, epoch, first))

    with RawClient(site.port) as client:

        def send(epoch: int, first: int, count: int = 2) -> tuple[int, int]:
            return produced(client, "sequences", (0, batch(epoch, first, count)))[0]

        assert send(1, 4) == (45, -1)
        assert send(1, 0) == (0, 0)
        assert send(1, 2) == (0, 2)
        assert send(1, 0) == (0, 0)
        assert send(1, 2) == (0, 2)
        assert send(1, 1) == (0, 1), "no client cuts its batches differently, and the records are there"
        assert send(1, 3) == (45, -1)
        assert send(1, 6) == (45, -1)
        assert send(0, 4) == (47, -1)
        assert send(2, 4) == (45, -1)
        assert send(2, 0) == (0, 4)
        assert send(1, 4) == (47, -1)
        # An operator lets the producer begin again.
        site.broker.reset_source("sequences", "kafka:5", "0")
        assert send(3, 0) == (0, 6)
    values = site.broker.fetch("sequences", 0, 0, max_messages=6).column("value").to_pylist()
    assert values == [b"1/0", b"1/1", b"1/2", b"1/3", b"2/0", b"2/1"]


def test_answers_come_in_the_order_of_requests(site: Site) -> None:
    site.broker.create_topic("pipelined")
    with RawClient(site.port) as client:
        for number in range(40):
            rows: list[Record] = [(NOW_MS, None, b"%d" % number, [])]
            data = [{"name": "pipelined", "partition_data": [{"index": 0, "records": built(rows)}]}]
            client.request(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
            client.request(METADATA, 1, topics=[])
        for number in range(40):
            answer = client.answer(2 * number)
            assert answer.responses[0].partition_responses[0].base_offset == number
            client.answer(2 * number + 1)


def test_fetches_wait_and_are_bounded(site: Site) -> None:
    site.broker.create_topic("waiting", 2)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}

    def fetch(*partitions: dict[str, int], **more: int) -> None:
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
        client.request(FETCH, 12, topics=[{"topic": "waiting", "partitions": list(partitions)}], **limits)

    with RawClient(site.port) as client, RawClient(site.port) as producer:
        fetch(wanted, max_wait=600_000)
        produced(producer, "waiting", (0, built([(NOW_MS, None, b"x" * 1000, [])] * 10)))
        (found,) = client.answer().responses[0].partitions
        assert found.high_watermark == 10 and len(found.records) > 10_000
        fetch(wanted | {"fetch_offset": 11}, wanted | {"partition": 9}, wanted | {"partition": 1}, max_wait=600_000)
        codes = [each.error_code for each in client.answer().responses[0].partitions]
        assert codes == [1, 3, 0]
        # One message is more than the limit: it is given all the same.
        fetch(wanted | {"partition_max_bytes": 10})
        assert 1000 < len(client.answer().responses[0].partitions[0].records) < 1200
        fetch(wanted, session_id=7, session_epoch=1)
        assert client.answer().error_code == 70


def test_many_partitions_are_fetched_together(site: Site) -> None:
    count = 40
    site.broker.create_topic("many", count)
    with RawClient(site.port) as client:
        for number in range(3):
            parts = [(each, built([(NOW_MS, None, b"%d of %d" % (number, each), [])])) for each in range(count)]
            assert set(produced(client, "many", *parts).values()) == {(0, number)}
        wanted = [{"partition": each, "fetch_offset": each % 4, "partition_max_bytes": 100} for each in range(count)]
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        answer = client.call(FETCH, 12, topics=[{"topic": "many", "partitions": wanted}], **limits)
    for partition, found in enumerate(answer.responses[0].partitions):
        assert (found.partition_index, found.error_code, found.high_watermark) == (partition, 0, 3)
        values = [record.value for record in DefaultRecordBatch(bytes(found.records))] if found.records else []
        assert values == [b"%d of %d" % (number, partition) for number in range(partition % 4, 3)]


def test_who_does_not_receive_its_answers_holds_up_others_only_while_it_is_there() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    port, limit = sockets.port_of(listeners), 8 << 20
    settings = KafkaSettings(fetch_bytes_max=limit, answers_bytes_max=limit, room_seconds_max=60.0)
    wanted = [{"topic": "large", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": limit}]}]
    asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": limit, "topics": wanted}
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners):
        broker.create_topic("large")
        broker.publish("large", pa.RecordBatch.from_pydict({"value": pa.array([bytes(1 << 20)] * 7)}))
        with RawClient(port) as other:
            with RawClient(port) as greedy:
                for _ in range(12):
                    greedy.request(FETCH, 12, **asked)
                other.request(FETCH, 12, **asked)
            for _ in range(5):
                (found,) = other.answer().responses[0].partitions
                assert len(found.records) > 6 << 20
                other.request(FETCH, 12, **asked)


def test_an_unknown_caller_may_not_announce_much(site: Site) -> None:
    """Without tokens everyone is known; the bound is for those who are not (see test_access)."""
    with RawClient(site.port) as client:
        client.send(struct.pack(">i", UNKNOWN_BYTES_MAX + 1) + header(METADATA, 1) + bytes(UNKNOWN_BYTES_MAX - 9))
        assert client.receive(4)
