"""Bad input to every public method: an error of the core tree that names field, value and rule, and nothing happens.

Each case by itself on a memory store; the durable engines meet all of them on one store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets
from tests.broker.messages import batch, content, statuses
from tests.broker.sites import Site

Call = Callable[[Broker], object]


def publishing(**columns: Any) -> Call:
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    return lambda broker: broker.publish("orders", pa.record_batch(arrays))


NAMES: list[tuple[str, Any]] = [
    ("topic name", ""),
    ("topic name", "x" * 256),
    ("topic name", "a\nb"),
    ("topic name", "a\x00"),
    ("topic name", "\ud800"),
    ("topic name", 7),
    ("topic name", None),
    ("topic name", b"orders"),
    ("topic name", ["orders"]),
]

TOPICS: list[tuple[str, Call]] = [
    ("partitions", lambda broker: broker.create_topic("new", partitions=0)),
    ("partitions", lambda broker: broker.create_topic("new", partitions=PARTITIONS_MAX + 1)),
    ("partitions", lambda broker: broker.create_topic("new", partitions="3")),  # type: ignore[arg-type]
    ("partitions", lambda broker: broker.create_topic("new", partitions=True)),
    ("partitions", lambda broker: broker.create_topic("new", partitions=1.5)),  # type: ignore[arg-type]
    ("partitions", lambda broker: broker.alter_topic("orders", partitions=-1)),
    ("setting", lambda broker: broker.create_topic("new", colour="red")),  # type: ignore[call-arg]
    ("setting", lambda broker: broker.alter_topic("orders", colour="red")),  # type: ignore[call-arg]
    ("retention_seconds", lambda broker: broker.create_topic("new", retention_seconds=-1)),
    ("retention_seconds", lambda broker: broker.alter_topic("orders", retention_seconds="long")),  # type: ignore[arg-type]
    ("deduplication", lambda broker: broker.create_topic("new", deduplication="yes")),  # type: ignore[arg-type]
    ("codecs", lambda broker: broker.create_topic("new", codecs=["rar"])),
    ("codecs", lambda broker: broker.alter_topic("orders", codecs=[])),
    ("message_bytes_max", lambda broker: broker.alter_topic("orders", message_bytes_max=None)),  # type: ignore[arg-type]
]

BATCHES: list[tuple[str, Call]] = [
    ("batch", lambda broker: broker.publish("orders", b"value")),
    ("batch", lambda broker: broker.publish("orders", [b"value"])),
    ("batch", lambda broker: broker.publish("orders", pa.table({"value": [b"a"]}))),
    ("batch", lambda broker: broker.publish("orders", None)),
    ("batch", lambda broker: broker.stage("orders", b"value")),
    ("column", publishing(value=[b"a"], colour=["red"])),
    ("column", publishing(key=[b"a"])),
    ("value", publishing(value=[1, 2])),
    ("key", publishing(value=[b"a"], key=[1.5])),
    ("attributes", publishing(value=[b"a"], attributes=["text"])),
    ("codec", publishing(value=[b"a"], codec=["rar"])),
    ("created_at", publishing(value=[b"a"], created_at=[7])),
    ("producer_id", publishing(value=[b"a"], producer_id=["p" * 2049])),
    ("message_group_id", publishing(value=[b"a"], producer_id=["p"], message_group_id=["g" * 2049])),
    ("message_group_id", publishing(value=[b"a"], message_group_id=["g"])),
    ("seqno", publishing(value=[b"a"], producer_id=["p"], seqno=[-1])),
    ("seqno", publishing(value=[b"a"], seqno=[1])),
    ("seqno", publishing(value=[b"a"], producer_id=["p"], seqno=pa.array([2**63], pa.uint64()))),
    ("seqno", publishing(value=[b"a"], producer_id=["p"], seqno=["1"])),
    ("partition", publishing(value=[b"a"], partition=[2])),
    ("partition", publishing(value=[b"a"], partition=[-1])),
    ("message", publishing(value=[b"a" * 2_000_000])),
    ("partition", lambda broker: broker.stage("orders", batch(b"a", partition=2))),
]

PUBLISHING: list[tuple[str, Call]] = [
    ("commit_key", lambda broker: broker.publish("orders", batch(b"a"), ("w", 1))),  # type: ignore[arg-type]
    ("writer", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("", 1))),
    ("writer", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w" * 2049, 1))),
    ("writer", lambda broker: broker.publish("orders", batch(b"a"), CommitKey(7, 1))),  # type: ignore[arg-type]
    ("commit number", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", -1))),
    ("commit number", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", 2**31, 7))),
    ("fingerprint", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", 1, 2**32))),
    ("commit number", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", 2**63))),
    ("commit number", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", "1"))),  # type: ignore[arg-type]
    ("commit number", lambda broker: broker.publish("orders", batch(b"a"), CommitKey("w", True))),
    ("timeout_seconds", lambda broker: broker.publish("orders", batch(b"a"), timeout_seconds=-1)),
    ("timeout_seconds", lambda broker: broker.publish("orders", batch(b"a"), timeout_seconds=math.nan)),
    ("producer_id", lambda broker: broker.last_seqno("orders", 7)),  # type: ignore[arg-type]
    ("message_group_id", lambda broker: broker.last_seqno("orders", "p", None)),  # type: ignore[arg-type]
    ("writer", lambda broker: broker.last_commit("orders", "")),
    ("topics", lambda broker: broker.describe_topics("orders")),
    ("number of topics", lambda broker: broker.describe_topics(["orders"] * 257)),
    ("writer", lambda broker: broker.last_commits(["orders"], "")),
    ("topics", lambda broker: broker.last_commits("orders", "w")),
    ("topic name", lambda broker: broker.last_commits(["orders", ""], "w")),
    ("number of topics", lambda broker: broker.last_commits(["orders"] * 257, "w")),
    ("stages", lambda broker: broker.commit_transaction([Staged("s", 1)])),  # type: ignore[arg-type]
    ("stages", lambda broker: broker.commit_transaction({"orders": [Staged("s", 1), Staged("s", 1)]})),
    ("stages", lambda broker: broker.commit_transaction({"orders": [], "ORDERS": []})),
    ("topic name", lambda broker: broker.commit_transaction({"": []})),
    ("number of topics", lambda broker: broker.commit_transaction({str(number): [] for number in range(10_001)})),
    ("commit_key", lambda broker: broker.commit_transaction({}, commit_key=7)),  # type: ignore[arg-type]
    ("offsets", lambda broker: broker.commit_transaction({}, {0: 1})),  # type: ignore[arg-type]
    ("offsets", lambda broker: broker.commit_transaction({}, [TransactionOffsets("orders", "g", {})] * 2)),
    ("number of groups", lambda broker: broker.commit_transaction({}, [TransactionOffsets("o", "g", {})] * 10_001)),
    ("group name", lambda broker: broker.commit_transaction({}, [TransactionOffsets("orders", "", {})])),
    ("member", lambda broker: broker.commit_transaction({}, [TransactionOffsets("orders", "g", {}, "")])),
    ("generation", lambda broker: broker.commit_transaction({}, [TransactionOffsets("orders", "g", {}, "m", -1)])),
    ("stage", lambda broker: broker.stage("orders", batch(b"a"), "")),
    ("stage", lambda broker: broker.stage("orders", batch(b"a"), 7)),  # type: ignore[arg-type]
    ("stage", lambda broker: broker.stage("orders", batch(b"a"), "s\n")),
    ("stages", lambda broker: broker.publish_staged("orders", ["s"])),  # type: ignore[list-item]
    ("stages", lambda broker: broker.publish_staged("orders", None)),  # type: ignore[arg-type]
    ("stages", lambda broker: broker.publish_staged("orders", Staged("s", 1))),  # type: ignore[arg-type]
    ("stage", lambda broker: broker.publish_staged("orders", [Staged("", 1)])),
    ("rows", lambda broker: broker.publish_staged("orders", [Staged("s", -1)])),
    ("commit_key", lambda broker: broker.publish_staged("orders", [], 7)),  # type: ignore[arg-type]
    ("timeout_seconds", lambda broker: broker.publish_staged("orders", [], timeout_seconds=-1)),
    ("stages", lambda broker: broker.drop_stages("orders", "s")),
    ("stage", lambda broker: broker.drop_stages("orders", [Staged("s", 1)])),  # type: ignore[list-item]
]

READING: list[tuple[str, Call]] = [
    ("ranges", lambda broker: broker.offsets_within("orders", {0: (0, 1)})),  # type: ignore[dict-item]
    ("ranges", lambda broker: broker.offsets_within("orders", [(0, 0, 1, 1)])),  # type: ignore[arg-type]
    ("partition", lambda broker: broker.offsets_within("orders", {"0": (0, 1, 1)})),  # type: ignore[dict-item]
    ("start", lambda broker: broker.offsets_within("orders", {0: (-1, 1, 1)})),
    ("end", lambda broker: broker.offsets_within("orders", {0: (0, "1", 1)})),  # type: ignore[dict-item]
    ("bytes", lambda broker: broker.offsets_within("orders", {0: (0, 1, 0)})),
    ("partition", lambda broker: broker.fetch("orders", "0", 0)),  # type: ignore[arg-type]
    ("partition", lambda broker: broker.fetch("orders", None, 0)),  # type: ignore[arg-type]
    ("partition", lambda broker: broker.fetch("orders", True, 0)),
    ("offset", lambda broker: broker.fetch("orders", 0, 0.5)),  # type: ignore[arg-type]
    ("offset", lambda broker: broker.fetch("orders", 0, "earliest")),  # type: ignore[arg-type]
    ("max_messages", lambda broker: broker.fetch("orders", 0, 0, max_messages=0)),
    ("max_messages", lambda broker: broker.fetch("orders", 0, 0, max_messages=1 << 30)),
    ("max_messages", lambda broker: broker.fetch("orders", 0, 0, max_messages=1.5)),  # type: ignore[arg-type]
    ("max_bytes", lambda broker: broker.fetch("orders", 0, 0, max_bytes=0)),
    ("max_bytes", lambda broker: broker.fetch("orders", 0, 0, max_bytes=None)),  # type: ignore[arg-type]
    ("wait_seconds", lambda broker: broker.fetch("orders", 0, 0, wait_seconds=-1)),
    ("wait_seconds", lambda broker: broker.fetch("orders", 0, 0, wait_seconds=301)),
    ("wait_seconds", lambda broker: broker.fetch("orders", 0, 0, wait_seconds=math.nan)),
    ("wait_seconds", lambda broker: broker.fetch("orders", 0, 0, wait_seconds="1")),  # type: ignore[arg-type]
    ("partition", lambda broker: broker.offset_at("orders", "0", 0)),  # type: ignore[arg-type]
    ("partitions", lambda broker: broker.offsets_at("orders", 0, "01")),  # type: ignore[arg-type]
    ("partitions", lambda broker: broker.offsets_at("orders", 0, 1)),  # type: ignore[arg-type]
    ("partitions", lambda broker: broker.offsets_at("orders", 0, ["0"])),  # type: ignore[list-item]
    ("time_us", lambda broker: broker.offsets_at("orders", -1)),
    ("time_us", lambda broker: broker.offset_at("orders", 0, -1)),
    ("time_us", lambda broker: broker.offset_at("orders", 0, 2**63)),
    ("time_us", lambda broker: broker.offset_at("orders", 0, "now")),  # type: ignore[arg-type]
]

GROUPS: list[tuple[str, Call]] = [
    ("group name", lambda broker: broker.register_group("orders", "")),
    ("group name", lambda broker: broker.register_group("orders", "x" * 256)),
    ("group name", lambda broker: broker.register_group("orders", None)),  # type: ignore[arg-type]
    ("consumers", lambda broker: broker.register_group("orders", "g", consumers=0)),
    ("consumers", lambda broker: broker.register_group("orders", "g", consumers="2")),  # type: ignore[arg-type]
    ("important", lambda broker: broker.register_group("orders", "g", important="no")),  # type: ignore[arg-type]
    ("read_from", lambda broker: broker.register_group("orders", "g", read_from="newest")),  # type: ignore[arg-type]
    ("read_from", lambda broker: broker.register_group("orders", "g", read_from=-1)),
    ("group name", lambda broker: broker.join_group("orders", "\t", "ann")),
    ("member", lambda broker: broker.join_group("orders", "g", "")),
    ("member", lambda broker: broker.join_group("orders", "g", 7)),  # type: ignore[arg-type]
    ("member", lambda broker: broker.join_group("orders", "g", "m" * 2049)),
    ("session_timeout_seconds", lambda broker: broker.join_group("orders", "g", "ann", 0)),
    ("session_timeout_seconds", lambda broker: broker.join_group("orders", "g", "ann", "30")),  # type: ignore[arg-type]
    ("member", lambda broker: broker.heartbeat("orders", "known", None)),  # type: ignore[arg-type]
    ("group name", lambda broker: broker.heartbeat("orders", 7, "ann")),  # type: ignore[arg-type]
    ("member", lambda broker: broker.leave_group("orders", "known", [])),  # type: ignore[arg-type]
    ("group name", lambda broker: broker.leave_group("orders", [], "ann")),  # type: ignore[arg-type]
    ("offsets", lambda broker: broker.commit_offsets("orders", "known", None)),  # type: ignore[arg-type]
    ("offsets", lambda broker: broker.commit_offsets("orders", "known", [0, 1])),  # type: ignore[arg-type]
    ("partition", lambda broker: broker.commit_offsets("orders", "known", {"0": 1})),  # type: ignore[dict-item]
    ("offset", lambda broker: broker.commit_offsets("orders", "known", {0: "1"})),  # type: ignore[dict-item]
    ("offset", lambda broker: broker.commit_offsets("orders", "known", {0: 1.0})),  # type: ignore[dict-item]
    ("consumer", lambda broker: broker.commit_offsets("orders", "known", {0: 0}, member=[])),  # type: ignore[arg-type]
    ("group name", lambda broker: broker.commit_offsets("orders", {}, {0: 0})),  # type: ignore[arg-type]
    ("offset", lambda broker: broker.seek("orders", "known", {0: None})),  # type: ignore[dict-item]
    ("offsets", lambda broker: broker.seek("orders", "known", "start")),  # type: ignore[arg-type]
    ("group name", lambda broker: broker.committed("orders", "")),
    ("group name", lambda broker: broker.delete_group("orders", 7)),  # type: ignore[arg-type]
    ("group name", lambda broker: broker.describe_group("orders", {})),  # type: ignore[arg-type]
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        yield opened


def check_refused(broker: Broker, field: str, call: Call) -> None:
    """The call is refused by name and leaves no trace."""
    topic, group = broker.describe_topic("orders"), broker.describe_group("orders", "known")
    with pytest.raises(InvalidInput) as caught:
        call(broker)
    error = caught.value
    assert error.field == field
    assert error.value
    assert error.rule
    assert str(error).endswith(f"{error.field} is {error.value}: {error.rule}")
    assert len(str(error)) < 1000
    assert not error.retry
    assert broker.list_topics() == ["orders"]
    assert broker.describe_topic("orders") == topic
    assert broker.describe_group("orders", "known") == group


def refuse(broker: Broker, *cases: tuple[str, Call]) -> None:
    """Calls are refused, and the broker works on."""
    broker.create_topic("orders", partitions=2)
    broker.register_group("orders", "known")
    for field, call in cases:
        check_refused(broker, field, call)
    assert statuses(broker.publish("orders", batch(b"good", producer_id="p", seqno=0))) == ["written"]
    assert content(broker, "orders") == {0: [b"good"], 1: []}


@pytest.mark.parametrize(("field", "name"), NAMES, ids=lambda value: repr(value)[:12])
def test_a_bad_name_of_a_topic_is_refused_everywhere(broker: Broker, field: str, name: Any) -> None:
    calls: list[Call] = [
        lambda broker: broker.create_topic(name),
        lambda broker: broker.describe_topic(name),
        lambda broker: broker.alter_topic(name, partitions=2),
        lambda broker: broker.delete_topic(name),
        lambda broker: broker.offsets(name),
        lambda broker: broker.publish(name, batch(b"a")),
        lambda broker: broker.fetch(name, 0, 0),
        lambda broker: broker.offset_at(name, 0, 0),
        lambda broker: broker.last_seqno(name, "p"),
        lambda broker: broker.last_commit(name, "w"),
        lambda broker: broker.stage(name, batch(b"a")),
        lambda broker: broker.publish_staged(name, []),
        lambda broker: broker.drop_stages(name, []),
        lambda broker: broker.register_group(name, "g"),
        lambda broker: broker.join_group(name, "g", "ann"),
        lambda broker: broker.list_groups(name),
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call(broker)
        assert caught.value.field == field
        assert caught.value.rule
    assert broker.list_topics() == []


@pytest.mark.parametrize(("field", "call"), TOPICS)
def test_a_bad_topic_is_refused(broker: Broker, field: str, call: Call) -> None:
    refuse(broker, (field, call))


@pytest.mark.parametrize(("field", "call"), BATCHES)
def test_a_bad_batch_is_refused(broker: Broker, field: str, call: Call) -> None:
    refuse(broker, (field, call))


@pytest.mark.parametrize(("field", "call"), PUBLISHING)
def test_a_bad_way_to_publish_is_refused(broker: Broker, field: str, call: Call) -> None:
    refuse(broker, (field, call))


@pytest.mark.parametrize(("field", "call"), READING)
def test_a_bad_way_to_read_is_refused(broker: Broker, field: str, call: Call) -> None:
    refuse(broker, (field, call))


@pytest.mark.parametrize(("field", "call"), GROUPS)
def test_a_bad_group_or_member_is_refused(broker: Broker, field: str, call: Call) -> None:
    refuse(broker, (field, call))


def test_durable_engines_refuse_all_of_it(durable_site: Site) -> None:
    refuse(durable_site.open(), *TOPICS, *BATCHES, *PUBLISHING, *READING, *GROUPS)


def test_the_row_of_a_bad_message_is_named(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(InvalidMessage, match="row 2: seqno is -5: it must be 0 or more") as caught:
        broker.publish("orders", batch(b"a", b"b", b"c", producer_id="p", seqno=[1, 2, -5]))
    assert caught.value.row == 2


def test_a_refused_batch_uses_up_no_turn_no_seqno_and_no_payload(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2, deduplication="payload")
    with pytest.raises(InvalidMessage):
        broker.publish("orders", batch(b"a", b"b", producer_id="p", seqno=[1, 2], partition=[None, 9]))
    assert broker.last_seqno("orders", "p") is None
    receipts = broker.publish("orders", batch(b"a", b"b", producer_id="p", seqno=[1, 2]))
    assert statuses(receipts) == ["written"] * 2
    assert receipts.partition.tolist() == [0, 0]
