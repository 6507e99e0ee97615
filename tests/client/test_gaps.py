"""Clients that come to offsets whose messages are lost: they go on behind them, and are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.errors import OffsetOutOfRange
from headrace.protocols.flight.server import FlightServer
from headrace.storage.open import open_store
from headrace.testing import EmbeddedTransport
from tests.group_writes import put_offsets


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Topic `t` has offsets 0 to 2 and 9 to 11; group `ahead` has committed 9, group `behind` nothing."""
    url = f"file:{tmp_path}/store"
    with Broker.open(url) as broker:
        broker.create_topic("t", 1)
        broker.register_group("t", "ahead")
        broker.register_group("t", "behind")
        with Client(EmbeddedTransport(broker)) as client, client.producer("t") as producer:
            for number in range(3):
                producer.send(b"%d" % number)
        topic_id = broker.describe_topic("t").id
    # As after a power cut: what the group had read is gone.
    with closing(open_store(url)) as store:
        put_offsets(store.catalog, topic_id, "ahead", {0: 9})
    with Broker.open(url) as broker:
        with Client(EmbeddedTransport(broker)) as client, client.producer("t") as producer:
            for number in range(9, 12):
                producer.send(b"%d" % number)
        yield broker


@pytest.fixture(params=["embedded", "flight"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    if request.param == "embedded":
        with Client(EmbeddedTransport(broker)) as made:
            yield made
        return
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    with connect(f"headrace://127.0.0.1:{served.port}", timeout_seconds=60.0) as made:
        yield made
    assert served.stop(60.0)


@pytest.mark.parametrize(("group", "expected"), [("ahead", [9, 10, 11]), ("behind", [0, 1, 2, 9, 10, 11])])
def test_a_member_gets_every_message_there_is(client: Client, group: str, expected: list[int]) -> None:
    offsets: list[int] = []
    with client.consumer("t", group=group) as consumer:
        while len(offsets) < len(expected):
            offsets += consumer.poll(timeout=10.0).column("offset").to_pylist()
        consumer.commit()
    assert offsets == expected
    assert client.describe_group("t", group).lag_messages == 0


def test_a_read_ends_before_the_gap_and_one_in_it_says_where_to_continue(client: Client) -> None:
    assert client.read("t", 0, 0, max_messages=100).column("value").to_pylist() == [b"0", b"1", b"2"]
    with pytest.raises(OffsetOutOfRange) as caught:
        client.read("t", 0, 3, max_messages=100)
    assert caught.value.start == 9
    assert client.read("t", 0, 9, max_messages=100).column("offset").to_pylist() == [9, 10, 11]


def test_a_scan_over_the_gap_gives_what_is_before_it_and_says_so(client: Client) -> None:
    values: list[bytes] = []
    with pytest.raises(OffsetOutOfRange):
        for batch in client.scan("t", 0, 0, 12):
            values += batch.column("value").to_pylist()
    assert values == [b"0", b"1", b"2"]
