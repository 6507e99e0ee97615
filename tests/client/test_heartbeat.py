"""A member of a group whose heartbeat meets something rare: a broken answer, a signal, a topic that was replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import PartitionNotFound, ServerFailed
from headrace.testing import EmbeddedTransport
from headrace.wire.operations import DescribeGroup, Heartbeat, JoinGroup, LeaveGroup, Operation
from tests.broker.background import PATIENCE_SECONDS, Background, eventually


class Watched(EmbeddedTransport):
    """Counts operations by type, and runs a function before the next one of a type."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.counts: dict[type[Operation[Any]], int] = {}
        self.before: dict[type[Operation[Any]], Callable[[], object]] = {}

    def call(self, operation: Operation[Any]) -> Any:
        kind = type(operation)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        run = self.before.pop(kind, None)
        if run is not None:
            run()
        return super().call(operation)


def fail() -> None:
    raise RuntimeError("a broken answer")


def test_heartbeats_continue_after_an_unexpected_error(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    transport = Watched(broker)
    with Client(transport) as client:
        client.create_topic("orders")
        with client.consumer("orders", group="billing") as consumer:
            transport.before[Heartbeat] = fail
            eventually(lambda: "heartbeat" in caplog.text and "a broken answer" in caplog.text)
            beats = transport.counts[Heartbeat]
            eventually(lambda: transport.counts[Heartbeat] > beats)
            consumer.poll(timeout=0.0)
            assert consumer.assignment == [0]


def test_waiting_for_messages_counts_as_polling(broker: Broker) -> None:
    with Client(EmbeddedTransport(broker)) as client:
        client.create_topic("orders")
        with client.consumer("orders", group="billing", max_poll_seconds=1.0) as consumer:
            session = consumer._session
            assert session is not None
            before = session._polled_at
            waiting = Background(lambda: consumer.poll(timeout=None))
            # Once when the poll begins, and then again and again.
            for _ in range(3):
                eventually(lambda: session._polled_at > before)  # noqa: B023
                before = session._polled_at
            consumer.stop()
            assert waiting.result().num_rows == 0


def test_an_unexpected_error_of_every_heartbeat_is_raised_by_poll(broker: Broker) -> None:
    class Broken(Watched):
        def call(self, operation: Operation[Any]) -> Any:
            if isinstance(operation, Heartbeat):
                fail()
            return super().call(operation)

    with Client(Broken(broker)) as client:
        client.create_topic("orders")
        with client.consumer("orders", group="billing") as consumer, pytest.raises(ServerFailed, match="heartbeat"):
            consumer.poll(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("topics", ["orders", ["orders", "bills"]])
def test_close_in_a_signal_handler_while_the_member_joins_again(broker: Broker, topics: str | list[str]) -> None:
    """The handler runs in the thread that is inside the call, so a lock which that thread holds is never released."""
    transport = Watched(broker)
    with Client(transport) as client:
        for topic in ("orders", "bills"):
            client.create_topic(topic)
        with client.producer("orders") as producer:
            producer.send(b"one")
            producer.send(b"two")
        consumer = client.consumer(topics, group="billing", max_poll_seconds=1.0)

        def read() -> None:
            for _ in consumer:
                eventually(lambda: transport.counts.get(LeaveGroup, 0) >= len(consumer.assignment))
                transport.before[JoinGroup] = consumer.close

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        reading.join(PATIENCE_SECONDS)
        assert not reading.is_alive() and consumer.is_closed
        assert JoinGroup not in transport.before, "the handler ran"
        assert client.describe_group("orders", "billing").members == {}


def test_a_topic_replaced_by_a_smaller_one_is_an_error_that_names_the_partition(broker: Broker) -> None:
    transport = Watched(broker)
    with Client(transport) as client:
        client.create_topic("orders", partitions=2)
        client.register_group("orders", "billing")

        def replace() -> None:
            broker.delete_topic("orders")
            broker.create_topic("orders", partitions=1)
            broker.register_group("orders", "billing")

        transport.before[DescribeGroup] = replace
        with pytest.raises(PartitionNotFound, match="partition 1"):
            client.consumer("orders", group="billing", start=-10)
