"""Who follows gets what is written over the native wire, and what was written before over Flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.client import Client, Consumer, connect
from headrace.client.transport import following, native
from headrace.protocols.native.follow import LOOK_BYTES
from headrace.protocols.native.settings import NativeSettings
from headrace.wire.native import HEAD_BYTES
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.client.test_native import Site, batch_of, site_of


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of(NativeSettings()) as made:
        yield made


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with connect(site.url) as made:
        yield made


def take(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        batch = consumer.poll(timeout=PATIENCE_SECONDS)
        assert batch.num_rows, f"{len(values)} of {count} came"
        values += batch.column("value").to_pylist()
    return values


def wire(consumer: Consumer) -> str:
    """Over which wire it follows now."""
    prefetch = consumer._intake._prefetch
    assert prefetch is not None
    near = getattr(prefetch._stream, "_stream", None)
    return "none" if near is None else "native" if isinstance(near, following.NoticedFollow) else "flight"


def test_a_follower_gets_every_message_of_every_form(site: Site, client: Client) -> None:
    with client.consumer("orders") as consumer, client.producer("orders", producer_id="till") as producer:
        producer.send(b"v", key=b"k", attributes={"a": b"1", "n": None}, partition=1).result(PATIENCE_SECONDS)
        producer.send(None, key=b"k", partition=1).result(PATIENCE_SECONDS)
        producer.send_batch(batch_of(0, 1_000))
        found: list[dict[str, object]] = []
        while len(found) < 1_002:
            found += consumer.poll(timeout=PATIENCE_SECONDS).to_pylist()
        assert wire(consumer) == "native"
    expected = [row for partition in range(2) for row in client.read("orders", partition, 0).to_pylist()]
    assert sorted(found, key=lambda row: (row["partition"], row["offset"])) == expected


def test_members_of_a_group_follow_over_it(site: Site, client: Client) -> None:
    with client.consumer("orders", group="billing") as consumer:
        for number in range(3):
            site.broker.publish("orders", batch_of(number * 10, 10))
            assert sorted(take(consumer, 10)) == sorted(b"%d" % (number * 10 + row) for row in range(10))
            assert consumer.commit() == []
        assert wire(consumer) == "native"
    assert sum(client.committed("orders", "billing").values()) == 30


def test_who_is_behind_catches_up_over_flight_and_comes_back(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_STAY_SECONDS", 0.0)
    large = [b"%06d" % number + b"x" * 1_000 for number in range(3 * LOOK_BYTES // 1_000)]
    site.broker.publish("orders", pa.record_batch({"value": large}))
    with client.consumer("orders") as consumer:
        assert Counter(take(consumer, len(large))) == Counter(large)
        assert wire(consumer) == "flight"
        # A few small batches, and it is at the end.
        for number in range(20):
            site.broker.publish("orders", batch_of(number, 1))
            assert take(consumer, 1) == [b"%d" % number]
        assert wire(consumer) == "native"
        # One message that is larger than a look takes it back.
        site.broker.publish("orders", pa.record_batch({"value": [b"x" * 2 * LOOK_BYTES]}))
        assert take(consumer, 1) == [b"x" * 2 * LOOK_BYTES]


def test_a_reader_that_is_slow_takes_no_more_than_its_credit(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_CREDIT_BYTES", 20_000)
    with client.consumer("orders", max_prefetch_bytes=20_000) as consumer:
        assert not consumer.poll(timeout=0.0).num_rows
        eventually(lambda: wire(consumer) == "native")
        for number in range(200):
            site.broker.publish("orders", batch_of(number, 1))
        assert len(take(consumer, 200)) == 200
        sent = site.limits.traffic["native"].bytes_out
        for number in range(1_000):
            site.broker.publish("orders", batch_of(number, 50))
        # It is not read: what is beyond its credit and a batch waits in the log.
        eventually(lambda: site.limits.traffic["native"].bytes_out > sent + 10_000)
        assert site.limits.traffic["native"].bytes_out < sent + 1_000_000
        assert len(take(consumer, 50_000)) == 50_000


def test_the_credit_of_a_follower_never_runs_out(site: Site, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of every frame all is given back, its head too: what is kept of each would be all of it in the end.
    monkeypatch.setattr(native, "_CREDIT_BYTES", 2_000)
    with client.consumer("orders") as consumer:
        assert not consumer.poll(timeout=0.0).num_rows
        eventually(lambda: wire(consumer) == "native")
        for number in range(2_000 // HEAD_BYTES + 1):
            site.broker.publish("orders", batch_of(number, 1))
            assert take(consumer, 1) == [b"%d" % number]
        assert wire(consumer) == "native"


def test_a_connection_that_is_cut_loses_nothing_and_repeats_nothing(site: Site, client: Client) -> None:
    with client.consumer("orders") as consumer:
        seen: list[bytes] = []
        for number in range(6):
            site.broker.publish("orders", batch_of(number * 100, 100))
            seen += take(consumer, 50)
            site.proxy.cut()
        seen += take(consumer, 600 - len(seen))
    assert Counter(seen) == Counter(b"%d" % number for number in range(600))


def test_deleted_messages_are_passed_over(site: Site, client: Client) -> None:
    with client.consumer("orders") as consumer:
        site.broker.publish("orders", batch_of(0, 10))
        take(consumer, 10)
        consumer.pause()
        site.broker.publish("orders", batch_of(10, 10))
        ends = {partition: end for partition, (_, end) in client.offsets("orders").items()}
        client.delete_messages("orders", ends)
        consumer.resume()
        site.broker.publish("orders", batch_of(20, 10))
        assert sorted(take(consumer, 10)) == [b"%d" % number for number in range(20, 30)]


def test_a_consumer_that_is_closed_leaves_no_connection(site: Site, client: Client) -> None:
    before = site.limits.traffic["native"].connections
    for _ in range(3):
        with client.consumer("orders") as consumer:
            consumer.poll(timeout=0.0)
            eventually(lambda: wire(consumer) == "native")
    # One may be kept for the next upload.
    eventually(lambda: site.limits.traffic["native"].connections <= max(1, before))


def test_the_end_of_a_topic_reaches_its_followers(site: Site, client: Client) -> None:
    with client.consumer("orders") as consumer:
        consumer.poll(timeout=0.0)
        eventually(lambda: wire(consumer) == "native")
        client.delete_topic("orders")
        with pytest.raises(Exception, match="orders"):
            while True:
                consumer.poll(timeout=PATIENCE_SECONDS)
