"""An answer about a topic is as much work with 10,000 partitions as with 10: anyone may ask for it again and again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.limits import PARTITIONS_MAX
from headrace.protocols.kafka.apis import cluster
from headrace.protocols.kafka.messages.envelope import encode_answer
from headrace.protocols.kafka.nodes import Node, Nodes
from tests.protocols.kafka.work import work

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75


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
