"""Transactions of a client: messages to several topics and offsets of consumers, all or nothing."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import Closed, HeadraceError, InvalidInput, InvalidMessage, Unreachable
from headrace.core.limits import PRODUCER_BATCH_BYTES
from headrace.core.reports.descriptions import Staged


def values(client: Client, topic: str) -> list[bytes]:
    batches = [client.read(topic, partition, start) for partition, (start, _) in client.offsets(topic).items()]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def topics(client: Client) -> tuple[str, ...]:
    for topic in ("in", "out", "more"):
        client.create_topic(topic)
    return ("in", "out", "more")


def test_messages_appear_together_at_the_end_in_the_order_sent(client: Client, topics: tuple[str, ...]) -> None:
    with client.transaction() as transaction:
        transaction.send("out", b"1", b"key", {"kind": b"sale", "empty": None})
        transaction.send("more", None, b"gone")
        transaction.send_batch("OUT", pa.record_batch({"value": [b"2", b"3"]}))
        transaction.send("Out", b"4", partition=0)
        assert [values(client, topic) for topic in topics] == [[], [], []]
    assert [values(client, topic) for topic in topics] == [[], [b"1", b"2", b"3", b"4"], [None]]
    first = client.read("out", 0, 0, max_messages=1).to_pylist()[0]
    assert (first["key"], dict(first["attributes"])) == (b"key", {"kind": b"sale", "empty": None})


def test_offsets_of_a_consumer_are_committed_with_the_messages(client: Client, topics: tuple[str, ...]) -> None:
    with client.producer("in") as producer:
        producer.send_batch(pa.record_batch({"value": [b"1", b"2", b"3"]}))
    client.register_group("more", "other")
    with client.consumer("in", group="g") as consumer:
        for count in (2, 1):
            batch = consumer.poll(max_messages=count, timeout=10.0)
            with client.transaction() as transaction:
                for value in batch.column("value").to_pylist():
                    transaction.send("out", value * 2)
                transaction.send_offsets(consumer)
                transaction.send_group_offsets("more", "other", {0: 0})
                before = client.committed("in", "g").get(0, 0)
            assert client.committed("in", "g") == {0: before + batch.num_rows}
            assert consumer.uncommitted() == []
    assert values(client, "out") == [b"11", b"22", b"33"]
    assert client.committed("more", "other") == {0: 0}


def test_several_topics_are_read_and_committed_together(client: Client, topics: tuple[str, ...]) -> None:
    for topic in ("in", "more"):
        with client.producer(topic) as producer:
            producer.send_batch(pa.record_batch({"value": [b"1"]}))
    with client.consumer(["in", "more"], group="g") as consumer, client.transaction() as transaction:
        rows = 0
        while rows < 2:
            rows += consumer.poll(timeout=10.0).num_rows
        transaction.send("out", b"2")
        transaction.send_offsets(consumer)
        transaction.commit()
        assert consumer.uncommitted() == []
    assert [client.committed(topic, "g") for topic in ("in", "more")] == [{0: 1}, {0: 1}]
    assert values(client, "out") == [b"2"]


def test_an_exception_drops_all_of_it(broker: Broker, client: Client, topics: tuple[str, ...]) -> None:
    class Mistake(Exception):
        pass

    client.register_group("in", "g")
    with pytest.raises(Mistake), client.transaction() as transaction:
        transaction.send_batch("out", pa.record_batch({"value": [b"1"]}))
        transaction.send_group_offsets("in", "g", {0: 0})
        raise Mistake
    assert (values(client, "out"), client.committed("in", "g")) == ([], {})
    assert broker.store.stages.expire(1 << 62) == 0
    with pytest.raises(Closed):
        transaction.send("out", b"2")
    with pytest.raises(Closed):
        transaction.commit()


def test_what_another_member_has_now_is_not_committed_and_nothing_else_either(
    client: Client, topics: tuple[str, ...]
) -> None:
    with client.producer("in") as producer:
        producer.send_batch(pa.record_batch({"value": [b"1"]}))
    with client.consumer("in", group="g", member_id="ann") as consumer:
        consumer.poll(timeout=10.0)
        transaction = client.transaction()
        transaction.send("out", b"x")
        transaction.send_offsets(consumer)
        client.seek("in", "g", {0: 0})
        with pytest.raises(HeadraceError):
            transaction.commit()
        transaction.abort()
    assert (values(client, "out"), client.committed("in", "g")) == ([], {0: 0})


def test_bad_input_is_refused(client: Client, topics: tuple[str, ...]) -> None:
    with client.consumer("in") as consumer, client.transaction() as transaction:
        with pytest.raises(InvalidInput, match="value"):
            transaction.send("out", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="only a consumer with a group"):
            transaction.send_offsets(consumer)
    with pytest.raises(InvalidMessage), client.transaction() as transaction:
        transaction.send("out", b"1", partition=7)
    assert values(client, "out") == []


def test_a_commit_whose_answer_was_lost_may_be_asked_for_again(client: Client, topics: tuple[str, ...]) -> None:
    for number in range(2):
        with client.transaction() as first, client.transaction() as second:
            first.send("out", b"%d" % number)
            second.send("more", b"%d" % number)
            stages = {"out": [client.stage("out", [pa.record_batch({"value": [b"again"]})])]}
            key = first.key
        assert client.commit_transaction(stages, commit_key=key).last_number == number
    assert [values(client, topic) for topic in topics] == [[], [b"0", b"1"], [b"0", b"1"]]


def refuse_stage(monkeypatch: pytest.MonkeyPatch, client: Client, number: int) -> None:
    """Have one of the next calls that put messages aside fail, by its number."""
    stage, calls = client.stage, count()

    def refusing(*given: Any) -> Staged:
        if next(calls) == number:
            raise Unreachable("the server", "it is down")
        return stage(*given)

    monkeypatch.setattr(client, "stage", refusing)


@pytest.mark.parametrize("number", range(3))
def test_a_commit_that_failed_before_it_was_asked_for_commits_all_of_it_when_called_again(
    client: Client, topics: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    client.register_group("in", "g")
    with client.producer("in") as producer:
        producer.send_batch(pa.record_batch({"value": [b"1"]}))
    with client.transaction() as transaction:
        for topic in topics:
            transaction.send(topic, topic.encode())
        transaction.send_group_offsets("in", "g", {0: 1})
        refuse_stage(monkeypatch, client, number)
        with pytest.raises(Unreachable):
            transaction.commit()
        assert client.committed("in", "g") == {}
        transaction.commit()
    assert [values(client, topic) for topic in topics] == [[b"1", b"in"], [b"out"], [b"more"]]
    assert client.committed("in", "g") == {0: 1}


def test_a_call_that_failed_sent_nothing_and_loses_nothing_that_was_sent_before(
    client: Client, topics: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b"x" * PRODUCER_BATCH_BYTES
    with client.transaction() as transaction:
        transaction.send("out", large)
        refuse_stage(monkeypatch, client, 0)
        with pytest.raises(Unreachable):
            transaction.send("out", b"1")
        refuse_stage(monkeypatch, client, 0)
        with pytest.raises(Unreachable):
            transaction.send_batch("more", pa.record_batch({"value": [b"2"]}))
        refuse_stage(monkeypatch, client, 1)
        with pytest.raises(Unreachable):
            transaction.send_batch("more", pa.record_batch({"value": [b"2"]}))
        transaction.send("out", b"3")
    assert [values(client, topic) for topic in topics] == [[], [large, b"3"], []]


def test_many_messages_do_not_wait_in_memory(broker: Broker, client: Client, topics: tuple[str, ...]) -> None:
    with client.transaction() as transaction:
        for number in range(9):
            transaction.send("out", b"%d" % number + b"x" * (1_000_000))
        assert transaction.waiting_bytes < 8 << 20
    assert [value[:1] for value in values(client, "out")] == [b"%d" % number for number in range(9)]
