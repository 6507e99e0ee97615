"""Waits that share a clock, and the stop of a server that has some."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.protocols.kafka.ticks import Ticks
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient

FETCH, METADATA = 1, 3
UNKNOWN_TOPIC = 3


def test_waits_end_together_and_one_that_was_ended_is_left_alone() -> None:
    async def wait() -> list[bool]:
        ticks = Ticks()
        events = [asyncio.Event() for _ in range(3)]
        waits = [ticks.begin(event, 0.001) for event in events]
        ticks.end(waits[1])
        await events[0].wait()
        await events[2].wait()
        # What is over may be ended too, and the last of a slot takes the timer with it.
        for each in waits:
            ticks.end(each)
        ticks.end(ticks.begin(events[1], 600.0))
        assert not ticks._slots and not ticks._timers
        return [each.is_over for each in waits] + [events[1].is_set()]

    assert asyncio.run(wait()) == [True, False, True, False]


def test_a_server_that_stops_answers_what_waits() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker:
        broker.create_topic("waiting")
        server = KafkaServer(broker, broker.access, KafkaSettings(), listeners)
        server.start()
        with RawClient(sockets.port_of(listeners)) as client:
            client.call(METADATA, 1, topics=[])
            wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
            limits = {"max_wait": 600_000, "min_bytes": 1, "max_bytes": 100}
            for _ in range(2):
                client.request(FETCH, 11, topics=[{"topic": "waiting", "partitions": wanted}], **limits)
            assert server.stop(30.0)
            assert client.answer().responses[0].partitions[0].error_code == 0


def test_a_fetch_that_is_repeated_has_the_answer_of_its_time(site: Site) -> None:
    """What did not change is not encoded again, and has the number of its request all the same."""
    site.broker.create_topic("repeated")
    with RawClient(site.port) as client:
        wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        asked = {"max_wait": 1, "min_bytes": 1, "max_bytes": 1 << 20}

        def fetched() -> tuple[int, bytes]:
            topics = [{"topic": "repeated", "partitions": wanted}]
            (found,) = client.call(FETCH, 11, topics=topics, **asked).responses[0].partitions
            return found.high_watermark, bytes(found.records)

        assert [fetched() for _ in range(3)] == [(0, b"")] * 3
        for number, size in enumerate((10, 10_000), 1):
            site.broker.publish("repeated", pa.RecordBatch.from_pydict({"value": [b"x" * size]}))
            found = [fetched() for _ in range(3)]
            assert found == [found[0]] * 3
            assert found[0][0] == number and len(found[0][1]) > size
        site.broker.delete_topic("repeated")
        partition = client.call(FETCH, 11, topics=[{"topic": "repeated", "partitions": wanted}], **asked)
        assert partition.responses[0].partitions[0].error_code == UNKNOWN_TOPIC
