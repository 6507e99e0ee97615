"""Consumers of several topics: in turn, in a group of each, by pattern, and with partitions named by their topic."""

from __future__ import annotations

import asyncio

import pytest

from headrace import TopicPartition
from headrace.aio import AsyncClient
from headrace.client import Client, TopicsConsumer
from headrace.client.consumer import topics_consumer
from headrace.core.errors import Closed, InvalidInput, TopicDeleted, TopicNotFound
from tests.broker.background import PATIENCE_SECONDS, eventually


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
        found = [(message.topic, message.value) for message in consumer.messages(idle_seconds=0.3)]
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
    with pytest.raises(InvalidInput, match="no regular expression"):
        client.consumer(pattern="(")


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
            values = [(message.topic, message.offset) async for message in consumer.messages(idle_seconds=0.3)]
            assert sorted(values) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
            assert await consumer.commit() == []
            assert await consumer.positions() == {("a", 0): 2, ("b", 0): 2}

    asyncio.run(main())
    assert client.committed("b", "g") == {0: 2}
