"""Topics and groups by the client, the same on every transport."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headrace.client import Client
from headrace.core.errors import (
    GroupNotFound,
    InvalidInput,
    OffsetOutOfRange,
    PartitionNotFound,
    SettingsConflict,
    TopicNotFound,
)

ON_POSTGRES = True


def fill(client: Client, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"value": pa.array([b"%d" % number for number in range(count)])}))


def test_topic_is_made_described_altered_listed_and_deleted(client: Client) -> None:
    made = client.create_topic("Orders", partitions=2, retention_seconds=60)
    assert (made.name, made.partitions, made.settings.retention_seconds) == ("Orders", 2, 60)
    assert client.alter_topic("orders", partitions=3).partitions == 3
    assert client.describe_topic("ORDERS").offsets == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    assert client.list_topics() == ["Orders"]
    client.delete_topic("orders")
    assert client.list_topics() == []


def test_errors_come_as_the_same_exceptions_with_their_fields(client: Client) -> None:
    client.create_topic("orders", retention_seconds=60)
    with pytest.raises(TopicNotFound) as missing:
        client.describe_topic("nothing")
    assert missing.value.topic == "nothing"
    with pytest.raises(SettingsConflict) as conflict:
        client.create_topic("orders", retention_seconds=61)
    assert conflict.value.details() == {
        "topic": "orders",
        "setting": "retention_seconds",
        "value": "61",
        "present": "60",
    }
    with pytest.raises(InvalidInput):
        client.create_topic("orders", colour="red")  # type: ignore[call-arg]
    with pytest.raises(GroupNotFound):
        client.describe_group("orders", "billing")


def test_offsets_and_times(client: Client) -> None:
    client.create_topic("orders")
    before = datetime.now(UTC) - timedelta(seconds=1)
    fill(client, "orders", 5)
    assert client.offsets("orders") == {0: (0, 5)}
    assert client.offset_at("orders", 0, before) == 0
    assert client.offset_at("orders", 0, datetime.now(UTC) + timedelta(hours=1)) == 5
    client.alter_topic("orders", partitions=3)
    assert client.offsets_at("orders", before) == {0: 0, 1: 0, 2: 0}
    assert client.offsets_at("orders", datetime.now(UTC) + timedelta(hours=1), [0, 2]) == {0: 5, 2: 0}
    with pytest.raises(PartitionNotFound, match="partitions 0 to 2"):
        client.offsets_at("orders", before, [3])
    assert client.offsets_at("orders", before, []) == {}


def test_read_returns_what_is_stored_and_not_more_than_asked_for(client: Client) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    assert client.read("orders", 0, 3, max_messages=4).column("offset").to_pylist() == [3, 4, 5, 6]
    assert client.read("orders", 0, 8).num_rows == 2
    assert client.read("orders", 0, 10).num_rows == 0
    with pytest.raises(OffsetOutOfRange) as late:
        client.read("orders", 0, 11)
    assert (late.value.offset, late.value.end) == (11, 10)
    with pytest.raises(PartitionNotFound):
        client.read("orders", 7, 0)
    with pytest.raises(InvalidInput):
        client.read("orders", 0, 0, max_messages=0)


def test_group_is_registered_sought_and_deleted(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, "orders", 6)
    assert client.register_group("orders", "billing", important=True).important
    client.seek("orders", "billing", "latest")
    assert client.describe_group("orders", "billing").lag_messages == 0
    client.seek("orders", "billing", "earliest")
    assert client.describe_group("orders", "billing").lag_messages == 6
    client.seek("orders", "billing", {0: 1, 1: 2})
    assert client.committed("orders", "billing") == {0: 1, 1: 2}
    client.seek("orders", "billing", datetime.now(UTC) + timedelta(hours=1))
    assert client.describe_group("orders", "billing").lag_messages == 0
    with pytest.raises(InvalidInput):
        client.seek("orders", "billing", "middle")
    assert client.list_groups("orders") == ["billing"]
    client.delete_group("orders", "billing")
    assert client.list_groups("orders") == []


def test_follow_gives_what_comes_and_ends_when_closed(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, "orders", 4)
    with client.follow("orders", start="earliest") as following:
        rows = 0
        while rows < 4:
            rows += next(following).num_rows
        assert following.next(timeout=0.05) is None
        fill(client, "orders", 2)
        while rows < 6:
            rows += next(following).num_rows
    assert list(following) == []
