"""Consumers of several topics: in turn, in a group of each, by pattern, and with partitions named by their topic."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any

import pytest

from headrace import TopicPartition
from headrace.aio import AsyncClient
from headrace.broker import Broker
from headrace.client import Client, TopicsConsumer
from headrace.client.consumer import topics_consumer
from headrace.core.errors import Closed, InvalidInput, TopicDeleted, TopicNotFound
from headrace.testing import EmbeddedTransport
from headrace.wire.operations import CommitOffsets, Heartbeat, LeaveGroup, Operation
from tests.broker.background import PATIENCE_SECONDS, eventually

ON_POSTGRES = True


def fill(client: Client, topic: str, count: int, partitions: int = 1) -> None:
    client.create_topic(topic, partitions=partitions)
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%s %d" % (topic.encode(), number), partition=number % partitions)


def take(consumer: TopicsConsumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        batch = consumer.poll(timeout=PATIENCE_SECONDS)
        assert batch.num_rows, values
        topic = {name.lower() for name in batch.column("topic").to_pylist()}
        assert {value.split()[0].decode() for value in batch.column("value").to_pylist()} == topic
        values += batch.column("value").to_pylist()
    return values


def test_several_topics_are_read_by_one_member_of_the_group_of_each(client: Client) -> None:
    fill(client, "a", 4, partitions=2)
    fill(client, "b", 3)
    with client.consumer(["a", "B"], group="g", member_id="me") as consumer:
        assert sorted(take(consumer, 7)) == [b"a 0", b"a 1", b"a 2", b"a 3", b"b 0", b"b 1", b"b 2"]
        assert consumer.assignment == [("B", 0), ("a", 0), ("a", 1)]
        assert consumer.positions() == {("a", 0): 2, ("a", 1): 2, ("B", 0): 3}
        assert consumer.poll(timeout=0.0).schema.names[-1] == "topic"
        assert consumer.commit() == []
        assert client.describe_group("b", "g").members == {"me": [0]}
        assert (consumer.topics, consumer.generation, consumer.skipped) == (["B", "a"], None, 0)
        assert "topics ['a', 'B'] in group 'g' (reading 3 partitions)" in repr(consumer)
    assert client.committed("a", "g") == {0: 2, 1: 2} and client.committed("b", "g") == {0: 3}
    assert client.describe_group("a", "g").members == {}
    with pytest.raises(Closed):
        consumer.poll()


def test_messages_know_their_topic(client: Client) -> None:
    fill(client, "a", 2)
    fill(client, "b", 2)
    with client.consumer(("a", "b"), auto_commit=True, group="g") as consumer:
        found = [(message.topic, message.value) for message in islice(consumer, 4)]
    assert sorted(found) == [("a", b"a 0"), ("a", b"a 1"), ("b", b"b 0"), ("b", b"b 1")]
    assert client.committed("a", "g") == {0: 2}
    with client.consumer("a") as one:
        assert next(iter(one)).topic == "a"


def test_offsets_are_committed_and_sought_by_topic_and_partition(client: Client) -> None:
    fill(client, "a", 3)
    fill(client, "b", 3)
    with client.consumer(["a", "b"], group="g") as consumer:
        take(consumer, 6)
        assert consumer.commit({TopicPartition("a", 0): 2}) == []
        assert client.committed("a", "g") == {0: 2} and client.committed("b", "g") == {}
        consumer.seek({("b", 0): 1})
        assert take(consumer, 2) == [b"b 1", b"b 2"]
        consumer.seek("earliest")
        assert len(take(consumer, 6)) == 6
        for wrong in ({0: 1}, {("c", 0): 1}):
            with pytest.raises(InvalidInput, match="name it by topic and number"):
                consumer.commit(wrong)  # type: ignore[arg-type]


def test_partitions_are_paused_and_resumed(client: Client) -> None:
    fill(client, "a", 2)
    fill(client, "b", 2)
    with client.consumer(["a", "b"]) as consumer:
        consumer.pause([TopicPartition("a", 0)])
        assert take(consumer, 2) == [b"b 0", b"b 1"]
        assert consumer.poll(timeout=0.05).num_rows == 0
        assert consumer.paused == [("a", 0)]
        consumer.resume()
        assert take(consumer, 2) == [b"a 0", b"a 1"]


def test_topics_of_a_pattern_are_picked_up_when_they_appear(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_consumer, "_LOOK_SECONDS", 0.1)
    fill(client, "orders-eu", 1)
    fill(client, "others", 1)
    with client.consumer(pattern="orders-.*", group="g", start="latest") as consumer:
        assert consumer.topics == ["orders-eu"]
        fill(client, "orders-us", 2)
        assert take(consumer, 2) == [b"orders-us 0", b"orders-us 1"], "from its beginning, since it came later"
        client.delete_topic("orders-eu")

        def is_left_out() -> bool:
            consumer.poll(timeout=0.01)
            return consumer.topics == ["orders-us"]

        eventually(is_left_out)
        assert consumer.commit() == []


def test_a_topic_of_a_list_must_exist(client: Client) -> None:
    fill(client, "a", 1)
    with pytest.raises(TopicNotFound):
        client.consumer(["a", "none"])
    with client.consumer(["a"]) as consumer:
        client.delete_topic("a")
        with pytest.raises((TopicNotFound, TopicDeleted)):
            while True:
                consumer.poll(timeout=0.1)


def test_what_needs_one_topic_is_refused(client: Client) -> None:
    for wrong in ({"partitions": [0]}, {"consumer_index": 0}, {"start": {0: 1}}):
        with pytest.raises(InvalidInput, match="consumer of one topic"):
            client.consumer(["a"], "g", **wrong)
    with pytest.raises(InvalidInput, match="give topics or a pattern"):
        client.consumer()
    with pytest.raises(InvalidInput, match="give topics or a pattern"):
        client.consumer(["a"], pattern="b")
    with pytest.raises(InvalidInput, match="at least one topic"):
        client.consumer([])
    with pytest.raises(InvalidInput, match="not a regular expression"):
        client.consumer(pattern="(")


def test_topics_of_one_partition_are_shared_evenly_and_one_thread_sends_all_heartbeats(client: Client) -> None:
    topics = [f"t{number}" for number in range(6)]
    for topic in topics:
        client.create_topic(topic)
    # Those of tests before this one may still be about to end.
    before = set(threading.enumerate())

    def heartbeats() -> int:
        return sum(thread.name == "headrace-heartbeat" for thread in set(threading.enumerate()) - before)

    with client.consumer(pattern="t.", group="g") as first, client.consumer(topics, group="g") as second:
        assert heartbeats() == 2

        def is_even() -> bool:
            first.poll(timeout=0.0)
            second.poll(timeout=0.0)
            return len(first.assignment) == len(second.assignment) == 3

        eventually(is_even)
        assert sorted(first.assignment + second.assignment) == [(topic, 0) for topic in topics]
    eventually(lambda: heartbeats() == 0)


def test_callbacks_name_the_topic(client: Client) -> None:
    fill(client, "a", 1)
    fill(client, "b", 1)
    events: list[list[TopicPartition]] = []
    with client.consumer(["a", "b"], "g", on_assigned=events.append) as consumer:
        assert sorted(events) == [[("a", 0)], [("b", 0)]]
        assert consumer.assignment == [("a", 0), ("b", 0)]


def test_several_topics_in_asyncio(client: Client) -> None:
    fill(client, "a", 2)
    fill(client, "b", 2)

    async def main() -> None:
        async with AsyncClient(client).consumer(["a", "b"], group="g") as consumer:
            values: list[tuple[str | None, int]] = []
            async for message in consumer:
                values.append((message.topic, message.offset))
                if len(values) == 4:
                    break
            assert sorted(values) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
            assert await consumer.commit() == []
            assert await consumer.positions() == {("a", 0): 2, ("b", 0): 2}

    asyncio.run(main())
    assert client.committed("b", "g") == {0: 2}


class Refusing(EmbeddedTransport):
    """A way on which some operations fail; it keeps the names of the threads that send heartbeats."""

    def __init__(self, broker: Broker, kind: type[Operation[Any]]) -> None:
        super().__init__(broker)
        self.kind = kind
        self.is_refusing = False
        self.refused = 0
        self.beats: list[str] = []

    def call(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Heartbeat):
            self.beats.append(threading.current_thread().name)
        if self.is_refusing and isinstance(operation, self.kind):
            self.refused += 1
            raise InvalidInput("operation", self.kind.__name__, "it is refused here")
        return super().call(operation)


def test_all_topics_are_left_if_the_last_commit_of_one_fails(broker: Broker) -> None:
    transport = Refusing(broker, CommitOffsets)
    with Client(transport) as client:
        for topic in ("a", "b", "c"):
            fill(client, topic, 1)
        consumer = client.consumer(["a", "b", "c"], group="g", auto_commit=True)
        take(consumer, 3)
        transport.is_refusing = True
        with pytest.raises(InvalidInput):
            consumer.close()
        assert [client.describe_group(topic, "g").members for topic in ("a", "b", "c")] == [{}, {}, {}]


def test_a_topic_of_a_pattern_that_was_deleted_is_left_out_of_commits(client: Client) -> None:
    fill(client, "a", 1)
    fill(client, "b", 1)
    for last in ("commit", "close"):
        with client.consumer(pattern="[ab]", group=last, auto_commit=last == "close") as consumer:
            take(consumer, 2)
            client.delete_topic("a")
            if last == "commit":
                assert consumer.commit() == []
        assert client.committed("b", last) == {0: 1}
        fill(client, "a", 1)


def test_a_consumer_closed_from_another_thread_while_it_polls_leaves_all_topics(client: Client) -> None:
    topics = [f"t{number}" for number in range(8)]
    for topic in topics:
        client.create_topic(topic)
    consumer = client.consumer(topics, group="g")

    def poll() -> None:
        while not consumer.is_closed:
            try:
                consumer.poll(timeout=0.0)
            except Closed:
                return

    polling = threading.Thread(target=poll)
    polling.start()
    consumer.close()
    polling.join(PATIENCE_SECONDS)
    assert not polling.is_alive()
    assert [client.describe_group(topic, "g").members for topic in topics] == [{}] * 8


def test_a_loop_over_one_topic_lets_go_partitions_of_another(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_consumer, "_POLLED_SECONDS", 0.0)
    fill(client, "a", 5_000)
    client.create_topic("b", partitions=2)
    with client.consumer(["a", "b"], group="g") as first:
        read = 0
        for _ in first:
            read += 1
            if read == 1:
                second = client.consumer("b", group="g")
            time.sleep(0.001)
            second.poll(timeout=0.0)
            if second.assignment:
                break
        assert read < 5_000 and len(second.assignment) == 1
        second.close()
        first.commit()
    assert client.committed("a", "g") == {0: read}


@pytest.mark.parametrize("topics", ["a", ["a", "b"]])
@pytest.mark.parametrize(
    ("event", "at"), [("return", threading.Condition.__enter__), ("call", threading.Condition.wait)]
)
def test_stop_in_a_signal_handler_ends_a_poll_wherever_it_is(
    broker: Broker, topics: str | list[str], event: str, at: Callable[..., object]
) -> None:
    """A signal handler runs between any two steps of the thread: here with a lock held, and just before a wait."""
    with Client(EmbeddedTransport(broker)) as client:
        client.create_topic("a")
        client.create_topic("b")
        with client.consumer(topics) as consumer:

            def interrupt(frame: FrameType, happened: str, _: object) -> None:
                if happened == event and frame.f_code is at.__code__:
                    sys.setprofile(None)
                    consumer.stop()

            def poll() -> None:
                sys.setprofile(interrupt)
                consumer.poll(timeout=None)

            polling = threading.Thread(target=poll, daemon=True)
            polling.start()
            polling.join(PATIENCE_SECONDS)
            assert not polling.is_alive() and consumer.is_stopped


def test_a_member_that_could_not_leave_stays_a_member(broker: Broker) -> None:
    transport = Refusing(broker, LeaveGroup)
    transport.is_refusing = True
    with Client(transport) as client:
        fill(client, "a", 1)
        with client.consumer("a", group="g", max_poll_seconds=1.0) as consumer:
            eventually(lambda: transport.refused == 1)
            here = threading.current_thread().name
            for _ in range(5):
                consumer.poll(timeout=0.0)
            # Once for each time that it tried to leave: again only where this thread did not poll in time.
            assert transport.beats.count(here) <= transport.refused
