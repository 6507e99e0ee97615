"""Records of requests that are sent without waiting for answers keep their order, whatever is refused of them."""

from __future__ import annotations

from typing import Any

from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.storage.open import open_store
from tests.broker.background import GatedStore, until_queued
from tests.broker.messages import content
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built

PRODUCE, METADATA = 0, 3
TOO_LARGE = 10


def send(client: RawClient, **values: bytes) -> None:
    """A request with a record for each partition."""
    data = [{"index": int(name[1:]), "records": built([(NOW_MS, None, value, [])])} for name, value in values.items()]
    client.request(PRODUCE, 9, acks=-1, timeout=1000, topic_data=[{"name": "orders", "partition_data": data}])


def answered(client: RawClient) -> list[tuple[int, int, int]]:
    """Partition, error and offset of each record of the next answer."""
    parts = client.answer().responses[0].partition_responses
    return [(each.index, each.error_code, each.base_offset) for each in parts]


def test_a_refused_record_of_another_partition_changes_no_order() -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    store: Any = GatedStore(open_store("memory:"))
    with Broker(store) as broker, KafkaServer(broker, broker.access, KafkaSettings(), listeners):
        broker.create_topic("orders", partitions=3, message_bytes_max=100)
        with RawClient(sockets.port_of(listeners)) as client:
            client.call(METADATA, 1, topics=[])
            store.gate.clear()
            send(client, p1=b"x" * 101, p0=b"first", p2=b"other")
            until_queued(broker, "orders", 3)
            send(client, p0=b"second")
            until_queued(broker, "orders", 4)
            store.gate.set()
            assert answered(client) == [(1, TOO_LARGE, -1), (0, 0, 0), (2, 0, 0)]
            assert answered(client) == [(0, 0, 1)]
        assert content(broker, "orders") == {0: [b"first", b"second"], 1: [], 2: [b"other"]}
