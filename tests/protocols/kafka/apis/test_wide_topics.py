"""An answer about a topic is as much work with 10,000 partitions as with 10: anyone may ask for it again and again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.limits import PARTITIONS_MAX
from headrace.protocols.kafka.apis import cluster
from headrace.protocols.kafka.messages.envelope import encode_answer
from headrace.protocols.kafka.nodes import Node, Nodes
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.work import work

FETCH, METADATA, DESCRIBE_TOPIC_PARTITIONS = 1, 3, 75
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3


@pytest.mark.parametrize("others", [(), (Node(5, "five", 1), Node(99, "ninety-nine", 2))], ids=["alone", "three"])
@pytest.mark.parametrize(("key", "version"), [(METADATA, 1), (METADATA, 12), (DESCRIBE_TOPIC_PARTITIONS, 0)])
def test_many_partitions_are_as_little_work_as_few(key: int, version: int, others: tuple[Node, ...]) -> None:
    with Broker.open("memory:") as broker:
        bridge: Any = SimpleNamespace(broker=broker)
        call: Any = SimpleNamespace(parts=SimpleNamespace(nodes=Nodes(bridge)))
        call.parts.nodes._others = others

        def steps(topic: str) -> int:
            found = cluster._Found(
                topic, None, broker.reader(topic), ErrorCode.none, range(broker.reader(topic).partitions)
            )

            def answered() -> bytes:
                return encode_answer(key, version, 1, {"topics": [cluster._topic(call, found)], "brokers": []})

            # The first time each schema is made, and leaders are chosen.
            assert answered()
            return work(answered)

        broker.create_topic("narrow", 10)
        broker.create_topic("wide", PARTITIONS_MAX)
        assert steps("wide") < 2 * steps("narrow")


def test_a_wide_fetch_is_answered_as_many_narrow_ones(site: Site) -> None:
    site.broker.create_topic("fetched", 1_500)
    publish_values(site, "fetched", 7)
    asked = [{"partition": number, "fetch_offset": number % 3, "partition_max_bytes": 1000} for number in range(1_600)]

    def fetched(client: RawClient, partitions: list[dict[str, Any]]) -> list[Any]:
        more = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
        topics = [{"topic": "fetched", "partitions": partitions}]
        answer = client.call(FETCH, 12, **more, session_id=0, forgotten_topics_data=[], topics=topics)
        return [vars(each) for each in answer.responses[0].partitions]

    with RawClient(site.port) as client:
        # Where there is nothing to read, as a wide answer has it.
        wide = fetched(client, [each for each in asked if each["partition"] != 7])
        narrow = [fetched(client, [each])[0] for each in asked[:10] + asked[-110:] if each["partition"] != 7]
    assert wide[:9] + wide[-110:] == narrow
    assert {each["error_code"] for each in wide} == {0, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC}


def publish_values(site: Site, topic: str, partition: int) -> None:
    partitions = pa.array([partition], pa.int32())
    site.broker.publish(topic, pa.record_batch({"value": pa.array([b"x"], pa.binary()), "partition": partitions}))
