"""Topics of Produce requests that this server does not know: a shared store is asked off the event loop, and seldom."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.core.errors import TopicNotFound
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built

PRODUCE = 0
FORBIDDEN, UNKNOWN_TOPIC = 29, 3
EVENT_LOOP = "headrace-kafka"


def topic_of(name: str) -> dict[str, Any]:
    return {"name": name, "partition_data": [{"index": 0, "records": built([(NOW_MS, None, b"x", [])])}]}


@pytest.mark.parametrize(("prefix", "code", "asked_max"), [("mine", UNKNOWN_TOPIC, 16), ("theirs", FORBIDDEN, 0)])
def test_many_unknown_topics_are_asked_for_at_once_and_only_by_those_who_may_publish(
    monkeypatch: pytest.MonkeyPatch, prefix: str, code: int, asked_max: int
) -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, KafkaSettings(), listeners):
        _, token = broker.access.create("till", [("mine*", ["publish"])])
        threads: list[str] = []

        def reader(topic: str) -> Any:
            threads.append(threading.current_thread().name)
            raise TopicNotFound(topic)

        # As on a shared store, where another server may have created them.
        monkeypatch.setattr(broker, "knows_topic", lambda _: False)
        monkeypatch.setattr(broker, "reader", reader)
        with RawClient(sockets.port_of(listeners), token=token) as client:
            topics = [topic_of(f"{prefix}-{number}") for number in range(300)]
            answer = client.call(PRODUCE, 9, acks=-1, timeout=1000, topic_data=topics)
        assert {each.partition_responses[0].error_code for each in answer.responses} == {code}
        assert len(threads) <= asked_max
        assert EVENT_LOOP not in threads
