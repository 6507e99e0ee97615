"""The consumer, the same on every transport."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client, Consumer
from headrace.core.errors import Closed, InvalidInput, TopicDeleted, TopicNotFound, Undecodable
from tests.broker.background import PATIENCE_SECONDS, eventually

ON_POSTGRES = True


def fill(client: Client, topic: str, count: int, first: int = 0) -> None:
    with client.producer(topic) as producer:
        values = [b"%d" % number for number in range(first, first + count)]
        producer.send_batch(pa.record_batch({"value": pa.array(values), "key": pa.array(values)}))


def take(consumer: Consumer, count: int) -> list[bytes]:
    """Poll until there are so many."""
    values: list[bytes] = []
    while len(values) < count:
        batch = consumer.poll(timeout=PATIENCE_SECONDS)
        assert batch.num_rows, f"only {len(values)} of {count} came"
        values += batch.column("value").to_pylist()
    return values


def until_read_ahead(consumer: Consumer, count: int) -> None:
    """Wait until so many messages are here before they are asked for."""
    prefetch = consumer._intake._prefetch
    assert prefetch is not None
    eventually(lambda: sum(batch.num_rows for batch, _ in list(prefetch._batches)) == count)


def test_consumer_without_a_group_reads_all_partitions_and_what_comes(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    fill(client, "orders", 100)
    with client.consumer("orders") as consumer:
        assert consumer.assignment == [0, 1, 2, 3]
        assert len(set(take(consumer, 100))) == 100
        assert consumer.poll(timeout=0.01).num_rows == 0
        fill(client, "orders", 50, first=100)
        assert len(set(take(consumer, 50))) == 50
        with pytest.raises(InvalidInput):
            consumer.commit()
    with pytest.raises(Closed):
        consumer.poll()


def test_poll_gives_at_most_what_is_asked_for_and_several_partitions_at_once(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    fill(client, "orders", 100)
    with client.consumer("orders") as consumer:
        until_read_ahead(consumer, 100)
        assert [consumer.poll(7).num_rows for _ in range(10)] == [7] * 10
        assert consumer.poll(1_000).num_rows == 30
        with pytest.raises(InvalidInput):
            consumer.poll(0)


def test_group_continues_where_it_committed(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, "orders", 20)
    with client.consumer("orders", group="billing") as consumer:
        first = consumer.poll(12, timeout=PATIENCE_SECONDS).column("value").to_pylist()
        consumer.commit()
        consumer.poll(3, timeout=PATIENCE_SECONDS)
    with client.consumer("orders", group="billing") as consumer:
        rest = take(consumer, 20 - len(first))
    assert sorted(first + rest) == sorted(b"%d" % number for number in range(20))


def test_messages_one_by_one_are_committed_up_to_the_present_one(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 20)
    with client.consumer("orders", group="billing") as consumer:
        for message in consumer:
            if message.offset == 7:
                consumer.commit()
            if message.offset == 9:
                break
        assert (message.value, message.key, message.partition) == (b"9", b"9", 0)
        assert abs(message.timestamp - datetime.now(UTC)) < timedelta(minutes=1)
        assert message.created_at is None
    assert client.committed("orders", "billing") == {0: 8}


def test_a_loop_that_is_left_skips_nothing(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 5)
    with client.consumer("orders", group="billing") as consumer:
        until_read_ahead(consumer, 5)
        left = consumer.messages(idle_seconds=PATIENCE_SECONDS)
        assert next(left).offset == 0
        assert next(iter(consumer)).offset == 1
        assert consumer.poll(2, timeout=PATIENCE_SECONDS).column("offset").to_pylist() == [2, 3]
        consumer.commit()
        assert client.committed("orders", "billing") == {0: 4}
        fill(client, "orders", 1, first=5)
        assert next(left).offset == 4
        assert take(consumer, 1) == [b"5"]
        consumer.commit()
    assert client.committed("orders", "billing") == {0: 6}


def test_a_loop_is_left_before_values_that_are_packed(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 3)
    with client.producer("orders", codec="gzip") as producer:
        producer.send(b"packed")
    with client.consumer("orders") as consumer:
        until_read_ahead(consumer, 4)
        assert next(iter(consumer)).offset == 0
        assert take(consumer, 3) == [b"1", b"2", b"packed"]


def test_automatic_commit_covers_what_was_given_out_before(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 20)
    with client.consumer("orders", group="billing", auto_commit=True) as consumer:
        consumer.poll(5, timeout=PATIENCE_SECONDS)
        assert client.committed("orders", "billing") == {}
        consumer.poll(5, timeout=PATIENCE_SECONDS)
        assert client.committed("orders", "billing") == {0: 5}
    assert client.committed("orders", "billing") == {0: 10}


def test_iterating_ends_after_an_idle_time_and_when_closed(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 3)
    with client.consumer("orders") as consumer:
        until_read_ahead(consumer, 3)
        assert [message.offset for message in consumer.messages(idle_seconds=0.3)] == [0, 1, 2]
        closing = threading.Timer(0.2, consumer.close)
        closing.start()
        assert list(consumer) == []
        closing.join()


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", 0), ("latest", 10), (4, 4), ({0: 7}, 7), (datetime(2020, 1, 1, tzinfo=UTC), 0)],
)
@pytest.mark.parametrize("group", [None, "billing"])
def test_reading_begins_where_it_should(client: Client, start: object, expected: int, group: str | None) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    with client.consumer("orders", group=group, start=start) as consumer:  # type: ignore[call-overload]
        assert consumer.positions() == {0: expected}
        fill(client, "orders", 1, first=10)
        assert take(consumer, 11 - expected) == [b"%d" % number for number in range(expected, 11)]


def test_wrong_start_is_refused(client: Client) -> None:
    client.create_topic("orders")
    for start in ("middle", None, True, 1.5):
        with pytest.raises(InvalidInput):
            client.consumer("orders", start=start)  # type: ignore[arg-type]


def test_seek_goes_forth_and_back_even_within_a_loop(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    with client.consumer("orders") as consumer:
        seen = []
        for message in consumer.messages(idle_seconds=PATIENCE_SECONDS):
            seen.append(message.offset)
            if len(seen) == 3:
                consumer.seek(8)
            if len(seen) == 5:
                break
        assert seen == [0, 1, 2, 8, 9]
        consumer.seek({0: 5})
        assert take(consumer, 5) == [b"5", b"6", b"7", b"8", b"9"]
        consumer.seek("earliest")
        assert consumer.positions() == {0: 0}
        consumer.seek("latest")
        assert consumer.positions() == {0: 10}
        with pytest.raises(InvalidInput):
            consumer.seek({3: 1})


def until_assigned(consumer: Consumer, partitions: int) -> None:
    """Wait until a member that polls has taken up that so many partitions are its own."""

    def has_them() -> bool:
        consumer.poll(timeout=0.1)
        return len(consumer.assignment) == partitions

    eventually(has_them)


def test_members_share_the_partitions_and_hand_them_over(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    events: list[tuple[str, list[int]]] = []
    with client.consumer(
        "orders",
        group="billing",
        session_timeout_seconds=600,
        on_assigned=lambda partitions: events.append(("assigned", partitions)),
        on_revoked=lambda partitions: events.append(("revoked", partitions)),
    ) as first:
        assert first.assignment == [0, 1, 2, 3]
        with client.consumer("orders", group="billing", session_timeout_seconds=600) as second:
            until_assigned(first, 2)
            until_assigned(second, 2)
            assert sorted(first.assignment + second.assignment) == [0, 1, 2, 3]
            fill(client, "orders", 100)
            values = take(first, 1)

            def all_came() -> bool:
                for consumer in (first, second):
                    values.extend(consumer.poll(timeout=0.1).column("value").to_pylist())
                return len(values) >= 100

            eventually(all_came)
            assert len(set(values)) == len(values) == 100
            second.commit()
        until_assigned(first, 4)
        first.commit()
        assert client.describe_group("orders", "billing").lag_messages == 0
    assert [kind for kind, partitions in events] == ["assigned", "revoked", "assigned"]
    assert events[1][1] == events[2][1]


def test_commit_reports_partitions_that_others_have_now_and_commits_the_rest(client: Client, broker: Broker) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, "orders", 20)
    with client.consumer("orders", group="billing", member_id="a", session_timeout_seconds=60) as first:
        take(first, 20)
        with client.consumer("orders", group="billing", member_id="b", session_timeout_seconds=60) as second:
            # As if it had not let go in time.
            present = broker.heartbeat("orders", "billing", "a")
            broker.heartbeat("orders", "billing", "a", present.generation, [0])
            assert first.commit() == [1]
            assert list(client.committed("orders", "billing")) == [0]
            assert len(take(second, 1)) == client.offsets("orders")[1][1]


def test_member_whose_session_ran_out_joins_again_by_itself(client: Client, broker: Broker) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, "orders", 10)
    lost: list[int] = []
    with client.consumer(
        "orders", group="billing", member_id="me", session_timeout_seconds=600, on_lost=lost.extend
    ) as consumer:
        values = take(consumer, 10)
        consumer.commit()
        broker.leave_group("orders", "billing", "me")
        # Until it has noticed, what it reads under its old session would come again.
        while not lost:
            assert not consumer.poll(timeout=0.1).num_rows
        fill(client, "orders", 10, first=10)
        values += take(consumer, 10)
        assert Counter(values) == Counter(b"%d" % number for number in range(20))
        consumer.commit()
        assert client.describe_group("orders", "billing").lag_messages == 0


def test_value_that_cannot_be_unpacked_is_met_again_until_a_seek_leads_around_it(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        producer.send_batch(pa.record_batch({"value": pa.array([b"not gzip"]), "codec": pa.array(["gzip"])}))
        producer.send_batch(pa.record_batch({"value": pa.array([b"good"])}))
    with client.consumer("orders") as consumer:
        for _ in range(2):
            with pytest.raises(Undecodable):
                consumer.poll(timeout=PATIENCE_SECONDS)
        consumer.seek(1)
        assert take(consumer, 1) == [b"good"]
    with client.consumer("orders", decode=False) as consumer:
        assert take(consumer, 2) == [b"not gzip", b"good"]


def test_deleted_topic_ends_the_consumer(client: Client) -> None:
    client.create_topic("orders")
    with client.consumer("orders") as consumer:
        client.delete_topic("orders")
        with pytest.raises((TopicDeleted, TopicNotFound)):
            while True:
                consumer.poll(timeout=0.5)
