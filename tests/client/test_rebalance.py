"""A rebalance that fails half-way: the member takes up its new partitions with the next poll, and reads all of them."""

from __future__ import annotations

from typing import Any

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import ServerFailed
from headrace.testing import EmbeddedTransport
from headrace.wire.operations import DescribeGroup, Operation
from tests.broker.background import eventually


class FailsOnce(EmbeddedTransport):
    """Fails the next look at a group."""

    is_failing = False

    def call(self, operation: Operation[Any]) -> Any:
        if self.is_failing and isinstance(operation, DescribeGroup):
            self.is_failing = False
            raise ServerFailed("once")
        return super().call(operation)


def test_partitions_that_could_not_be_taken_up_are_taken_up_by_the_next_poll(broker: Broker) -> None:
    transport = FailsOnce(broker)
    with Client(transport) as client:
        client.create_topic("orders", partitions=2)
        with client.consumer("orders", group="billing") as stays:
            with client.consumer("orders", group="billing"):
                eventually(lambda: stays.poll(timeout=0.0).num_rows == 0 and len(stays.assignment) == 1)
            transport.is_failing = True

            def has_failed() -> bool:
                try:
                    stays.poll(timeout=0.0)
                except ServerFailed:
                    return True
                return False

            eventually(has_failed)
            assert len(stays.assignment) == 1
            eventually(lambda: stays.poll(timeout=0.0).num_rows == 0 and stays.assignment == [0, 1])
            with client.producer("orders") as producer:
                for partition in (0, 1):
                    producer.send(b"%d" % partition, partition=partition).result()
            seen: list[bytes] = []

            def has_both() -> bool:
                seen.extend(stays.poll(timeout=0.1).column("value").to_pylist())
                return len(seen) == 2

            eventually(has_both)
            assert sorted(seen) == [b"0", b"1"]
