"""Publishing: receipts, routing, codecs, and what a batch may look like."""

from __future__ import annotations

from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import CodecNotAllowed, InvalidMessage, MessageTooLarge, TopicNotFound
from headrace.core.hashes.columns import FNV_OFFSET, FNV_PRIME
from headrace.core.messages import READ_SCHEMA
from headrace.core.publish.receipts import RECEIPT_SCHEMA
from tests.broker.background import publish_together, together
from tests.broker.clock import START_US, SettableClock
from tests.broker.messages import batch, content, everything, places, statuses, values_of
from tests.broker.sites import Site

DAY_SECONDS = 24 * 3600


def fnv1a(key: bytes) -> int:
    """FNV-1a with 64 bits, as cursus has it."""
    state = 14695981039346656037
    for byte in key:
        state = ((state ^ byte) * 1099511628211) % 2**64
    return state


# Receipts


def test_there_is_a_receipt_per_message_in_the_order_sent(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    receipts = broker.publish("orders", batch(b"a", b"b", b"c", b"d", partition=[2, 0, 2, 1]))
    assert places(receipts) == [(2, 0), (0, 0), (2, 1), (1, 0)]
    assert statuses(receipts) == ["written"] * 4
    assert (len(receipts), receipts.written) == (4, 4)
    assert places(broker.publish("orders", batch(b"e", b"f", partition=[1, 2]))) == [(1, 1), (2, 2)]


def test_receipts_as_arrow_have_no_place_for_duplicates(broker: Broker) -> None:
    broker.create_topic("orders")
    receipts = broker.publish("orders", batch(b"a", b"a", b"b", producer_id="p", seqno=[1, 1, 2])).to_arrow()
    assert receipts.schema == RECEIPT_SCHEMA
    assert receipts.to_pylist() == [
        {"partition": 0, "offset": 0, "status": "written"},
        {"partition": None, "offset": None, "status": "duplicate"},
        {"partition": 0, "offset": 1, "status": "written"},
    ]


def test_a_message_comes_back_as_it_was_sent(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    clock.step(5)
    sent = {
        "value": b"body",
        "key": b"k",
        "attributes": [("kind", b"sale"), ("kind", b"refund"), ("", b"")],
        "codec": "zstd",
        "created_at": 1_600_000_000_000_001,
        "producer_id": "till-7",
        "message_group_id": "shift-1",
        "seqno": 7,
    }
    columns = {name: [value] for name, value in sent.items() if name != "value"}
    broker.publish("orders", batch(b"body", **columns))
    read = broker.fetch("orders", 0, 0)
    assert read.schema == READ_SCHEMA
    row = read.to_pylist()[0]
    assert row.pop("timestamp").timestamp() * 1_000_000 == START_US + 5_000_000
    assert row.pop("created_at").timestamp() * 1_000_000 == sent.pop("created_at")
    assert row == {**sent, "partition": 0, "offset": 0}


def test_what_was_not_given_is_null(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b""))
    row = broker.fetch("orders", 0, 0).to_pylist()[0]
    assert row["value"] == b""
    assert {name for name, value in row.items() if value is None} == set(READ_SCHEMA.names) - {
        "partition",
        "offset",
        "timestamp",
        "value",
    }


def test_batches_of_different_columns_are_read_together(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a"))
    broker.publish("orders", batch(b"b", key=b"k"))
    broker.publish("orders", batch(b"c", attributes=[[("x", b"1")]]))
    broker.publish("orders", batch(b"d", key=b"k", producer_id="p", seqno=1))
    read = broker.fetch("orders", 0, 0)
    assert values_of(read) == [b"a", b"b", b"c", b"d"]
    assert read.column("key").to_pylist() == [None, b"k", None, b"k"]
    assert read.column("attributes").to_pylist() == [None, None, [("x", b"1")], None]
    assert read.column("seqno").to_pylist() == [None, None, None, 1]


def test_an_empty_batch_writes_nothing_and_is_no_error(broker: Broker) -> None:
    broker.create_topic("orders")
    assert len(broker.publish("orders", batch())) == 0
    assert broker.offsets("orders") == {0: (0, 0)}
    assert broker.counters["commits_written"] == 0


def test_loose_types_are_taken_where_nothing_is_lost(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    loose = pa.record_batch(
        {
            "value": pa.array(["text", "text"], pa.large_string()).dictionary_encode(),
            "key": pa.array([None, "k"], pa.string_view()),
            "partition": pa.array([1, 1], pa.uint64()),
            "attributes": pa.nulls(2),
        }
    )
    broker.publish("orders", loose)
    assert content(broker, "orders") == {0: [], 1: [b"text", b"text"]}


def test_slices_of_a_larger_batch_are_published_alone(broker: Broker) -> None:
    broker.create_topic("orders")
    whole = batch(b"a", b"b", b"c", b"d", key=[b"1", b"2", b"3", b"4"], attributes=[[(str(n), b"v")] for n in range(4)])
    broker.publish("orders", whole.slice(1, 2))
    read = broker.fetch("orders", 0, 0)
    assert values_of(read) == [b"b", b"c"]
    assert read.column("key").to_pylist() == [b"2", b"3"]
    assert read.column("attributes").to_pylist() == [[("1", b"v")], [("2", b"v")]]


# Routing


def test_keys_are_routed_by_fnv_1a_bit_for_bit(broker: Broker) -> None:
    assert (FNV_OFFSET, FNV_PRIME) == (14695981039346656037, 1099511628211)
    assert fnv1a(b"a") == 0xAF63DC4C8601EC8C
    assert fnv1a(b"foobar") == 0x85944171F73967E8
    broker.create_topic("orders", partitions=7)
    keys = [b"a", b"foobar", b"user-123", b"user-456", b"\xff" * 300, "ключ".encode(), *(b"%d" % n for n in range(500))]
    receipts = broker.publish("orders", batch(*keys, key=keys))
    assert receipts.partition.tolist() == [fnv1a(key) % 7 for key in keys]


def test_one_key_stays_in_order_in_one_partition(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    for number in range(10):
        broker.publish("orders", batch(b"%d" % number, b"other", key=[b"user-123", b"user-456"]))
    partition = fnv1a(b"user-123") % 4
    mine = [value for value in content(broker, "orders")[partition] if value != b"other"]
    assert mine == [b"%d" % number for number in range(10)]


def test_messages_without_a_key_go_round(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    receipts = broker.publish("orders", batch(b"0", b"1", b"2", b"3"))
    assert places(receipts) == [(0, 0), (1, 0), (2, 0), (0, 1)]
    assert places(broker.publish("orders", batch(b"4"))) == [(1, 1)]


def test_an_empty_key_is_no_key(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    assert places(broker.publish("orders", batch(b"a", b"b", b"c", key=[b"", None, b""]))) == [(0, 0), (1, 0), (2, 0)]


def test_keyed_and_named_messages_take_no_turn(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    mixed = batch(
        b"0", b"key", b"1", b"named", b"2", key=[None, b"k", None, b"k", None], partition=[None] * 3 + [2, None]
    )
    receipts = broker.publish("orders", mixed)
    assert receipts.partition.tolist() == [0, fnv1a(b"k") % 3, 1, 2, 2]


def test_the_turn_survives_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=3)
    broker.publish("orders", batch(b"0", b"1"))
    broker = durable_site.reopen(broker)
    assert places(broker.publish("orders", batch(b"2", b"3"))) == [(2, 0), (0, 1)]


# The link of a source to its partition


def test_a_source_keeps_the_partition_of_its_first_use(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    first = broker.publish("orders", batch(*[b""] * 5, producer_id=["p", "q", "p", "r", "q"]))
    assert first.partition.tolist() == [0, 1, 0, 2, 1]
    again = broker.publish("orders", batch(*[b""] * 4, producer_id=["r", "s", "p", "q"]))
    assert again.partition.tolist() == [2, 3, 0, 1]


def test_a_source_is_the_pair_of_producer_and_group(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    pairs = batch(*[b""] * 5, producer_id=["p", "p", "q", "p", "p"], message_group_id=["g", "h", "g", "g", ""])
    assert broker.publish("orders", pairs).partition.tolist() == [0, 1, 2, 0, 3]


def test_links_survive_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=4)
    producers = [f"p{number}" for number in range(4)]
    broker.publish("orders", batch(*[b""] * 4, producer_id=producers))
    broker = durable_site.reopen(broker)
    broker.publish("orders", batch(b""))
    assert broker.publish("orders", batch(*[b""] * 4, producer_id=producers)).partition.tolist() == [0, 1, 2, 3]


def test_a_link_is_forgotten_after_14_idle_days(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=4)
    broker.publish("orders", batch(b"", b"", producer_id=["p", "q"]))
    clock.step(14 * DAY_SECONDS - 1)
    assert broker.publish("orders", batch(b"", producer_id="p")).partition.tolist() == [0]
    clock.step(2)
    assert broker.publish("orders", batch(b"", b"", producer_id=["p", "q"])).partition.tolist() == [0, 2]


def test_the_idle_days_count_over_a_restart_too(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=4)
    broker.publish("orders", batch(b"", b"", producer_id=["p", "q"]))
    durable_site.clock.step(10 * DAY_SECONDS)
    broker.publish("orders", batch(b"", producer_id="q"))
    broker = durable_site.reopen(broker)
    durable_site.clock.step(4 * DAY_SECONDS + 1)
    broker = durable_site.reopen(broker)
    assert broker.publish("orders", batch(b"", b"", producer_id=["q", "p"])).partition.tolist() == [1, 2]


def test_a_key_goes_before_the_link_and_makes_none(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    receipts = broker.publish("orders", batch(b"", b"", producer_id="p", key=[b"k", None]))
    assert receipts.partition.tolist() == [fnv1a(b"k") % 4, 0]


# Codecs and sizes


@pytest.mark.parametrize("codec", ["raw", "gzip", "zstd", "lzop", None])
def test_the_name_of_the_codec_is_kept_and_the_value_is_not_looked_at(broker: Broker, codec: str | None) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"not compressed at all", codec=codec))
    assert broker.fetch("orders", 0, 0).select(["value", "codec"]).to_pylist() == [
        {"value": b"not compressed at all", "codec": codec}
    ]


def test_a_codec_that_the_topic_does_not_allow_is_refused(broker: Broker) -> None:
    broker.create_topic("orders", codecs=["gzip", "zstd"])
    broker.publish("orders", batch(b"a", b"b", codec=["gzip", "zstd"]))
    for wrong in ("lzop", "raw", "brotli", None):
        with pytest.raises(CodecNotAllowed) as caught:
            broker.publish("orders", batch(b"c", b"d", codec=["gzip", wrong]))
        assert (caught.value.field, caught.value.row) == ("codec", 1)
        assert caught.value.rule == "this topic allows gzip, zstd"
    assert content(broker, "orders") == {0: [b"a", b"b"]}


def test_a_message_counts_with_key_and_attributes(broker: Broker) -> None:
    broker.create_topic("orders", message_bytes_max=10)
    broker.publish("orders", batch(b"12345", key=b"67", attributes=[[("8", b"90")]]))
    with pytest.raises(MessageTooLarge) as caught:
        broker.publish("orders", batch(b"fits", b"12345", key=b"67", attributes=[None, [("8", b"901")]]))
    assert (caught.value.value, caught.value.row) == ("11 bytes", 1)


def test_one_bad_row_refuses_the_whole_batch(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    with pytest.raises(InvalidMessage) as caught:
        broker.publish("orders", batch(b"a", b"b", b"c", partition=[0, 2, 1]))
    assert (caught.value.field, caught.value.value, caught.value.row) == ("partition", "2", 1)
    assert content(broker, "orders") == {0: [], 1: []}


def test_publishing_does_not_make_a_topic(broker: Broker) -> None:
    with pytest.raises(TopicNotFound):
        broker.publish("orders", batch(b"a"))
    assert broker.list_topics() == []


# Many at once


def test_threads_leave_dense_offsets_and_every_message_once(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)

    def publish(thread: int) -> list[tuple[int, int]]:
        placed: list[tuple[int, int]] = []
        for number in range(20):
            placed += places(broker.publish("orders", batch(b"%d-%d" % (thread, number), b"%d+%d" % (thread, number))))
        return placed

    placed = list(chain.from_iterable(together([partial(publish, thread) for thread in range(8)])))
    assert len(set(placed)) == len(placed) == 320
    ends = {partition: end for partition, (_, end) in broker.offsets("orders").items()}
    assert sum(ends.values()) == 320
    assert sorted(placed) == [(partition, offset) for partition, end in ends.items() for offset in range(end)]
    assert len(set(everything(broker, "orders"))) == 320


def test_receipts_name_the_place_where_the_message_is(broker: Broker) -> None:
    broker.create_topic("orders", partitions=5)
    generator = np.random.default_rng(7)
    for _ in range(20):
        values = [generator.bytes(5) for _ in range(int(generator.integers(1, 40)))]
        keys = [None if generator.random() < 0.3 else b"%d" % generator.integers(9) for _ in values]
        receipts = broker.publish("orders", batch(*values, key=keys))
        for value, (partition, offset) in zip(values, places(receipts), strict=True):
            assert values_of(broker.fetch("orders", partition, offset, max_messages=1)) == [value]


def test_many_publishers_in_one_commit_are_answered_one_by_one(broker: Broker) -> None:
    broker.create_topic("orders", message_bytes_max=3)
    outcomes = publish_together(broker, "orders", [batch(b"a", b"b"), batch(b"long"), batch(), batch(b"c")])
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == ["Receipts", "MessageTooLarge", "Receipts", "Receipts"]
    assert content(broker, "orders") == {0: [b"a", b"b", b"c"]}
