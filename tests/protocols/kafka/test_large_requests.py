"""Requests and answers with many bytes or elements: nothing of them is read or written on the event loop.

What many elements take once they are read has a budget, and those who have not signed in are read nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.core.rights import Right
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka import connection
from headrace.protocols.kafka.apis.call import LOOP_ELEMENTS_MAX, LOOP_REQUEST_BYTES_MAX
from headrace.protocols.kafka.messages.envelope import PARSED_ELEMENT_BYTES
from headrace.protocols.kafka.messages.reader import TEXT_BYTES_MAX
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built

PRODUCE, FETCH, METADATA, OFFSET_FETCH, FIND_COORDINATOR, LEAVE_GROUP = 0, 1, 3, 9, 10, 13
DESCRIBE_GROUPS, DELETE_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 42, 69
EVENT_LOOP = "headrace-kafka"
MANY = LOOP_ELEMENTS_MAX + 500
NAMES = [f"name-{number}" for number in range(MANY)]
RECORDS = built([(NOW_MS, None, b"x", [])])
UNKNOWN = [{"name": name, "partition_data": [{"index": 0, "records": RECORDS}]} for name in NAMES]
# By API a version, and fields with many elements.
LARGE: dict[str, tuple[int, int, dict[str, Any]]] = {
    "Produce": (PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": UNKNOWN}),
    "OffsetFetch": (OFFSET_FETCH, 8, {"groups": [{"group_id": name, "topics": None} for name in NAMES]}),
    "LeaveGroup": (LEAVE_GROUP, 3, {"group_id": "g", "members": [{"member_id": name} for name in NAMES]}),
    "DescribeGroups": (DESCRIBE_GROUPS, 5, {"groups": NAMES}),
    "DeleteGroups": (DELETE_GROUPS, 2, {"groups_names": NAMES}),
    "ConsumerGroupDescribe": (CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": NAMES}),
}
# A request that waits for messages, with as many elements as the budget of such a server holds for one caller.
SMALL_BYTES = 1 << 20
SMALL_BUDGET = {"request_bytes_max": SMALL_BYTES, "requests_bytes_max": SMALL_BYTES, "room_seconds_max": 0.2}
WIDE = SMALL_BYTES // PARSED_ELEMENT_BYTES


def called_by(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """The names of the threads that call a function of the connection."""
    threads: list[str] = []
    original: Any = getattr(connection, name)

    def call(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return original(*args)

    monkeypatch.setattr(connection, name, call)
    return threads


def test_long_names_are_read_and_written_in_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, writers = called_by(monkeypatch, "read_request"), called_by(monkeypatch, "_encoded")
    names = [
        f"{number:03}{'x' * (TEXT_BYTES_MAX - 3)}" for number in range(LOOP_REQUEST_BYTES_MAX // TEXT_BYTES_MAX + 1)
    ]
    with RawClient(site.port) as client:
        for keys in (names[:2], names):
            answer = client.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys)
            assert [each.key for each in answer.coordinators] == keys
    assert readers[0] == writers[0] == EVENT_LOOP
    assert EVENT_LOOP not in (readers[1], writers[1])


def test_a_large_request_is_cut_from_those_behind_it(site: Site) -> None:
    """A large one is not copied: it takes the buffer, of which it gives back what is not its own."""
    large = ["y" * TEXT_BYTES_MAX] * (LOOP_REQUEST_BYTES_MAX // TEXT_BYTES_MAX + 2)
    site.broker.create_topic("behind", 3)
    with RawClient(site.port) as client:
        requests = [
            client.encoded(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=large),
            client.encoded(METADATA, 9, topics=[{"name": "behind"}]),
            client.encoded(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=large),
            client.encoded(METADATA, 9, topics=[{"name": "behind"}]),
        ]
        client.send(b"".join(requests))
        for _ in range(2):
            assert [each.key for each in client.answer().coordinators] == large[:1]
            assert len(client.answer().topics[0].partitions) == 3


@pytest.mark.parametrize("api", LARGE)
def test_many_elements_are_read_and_written_in_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    key, version, fields = LARGE[api]
    writers = called_by(monkeypatch, "_encoded")
    with RawClient(site.port) as client:
        client.call(key, version, **fields)
    assert len(writers) == 1
    assert EVENT_LOOP not in writers


@contextmanager
def served(broker: Broker, **settings: Any) -> Iterator[int]:
    """The port of a server with such settings."""
    listeners = sockets.bind("127.0.0.1", 0)
    with KafkaServer(broker, broker.access, KafkaSettings(**settings), listeners):
        yield sockets.port_of(listeners)


def waiting(client: RawClient, partitions: int, seconds: float) -> None:
    """Ask for messages of so many partitions, which there are not."""
    asked = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 10} for number in range(partitions)]
    topics = [{"topic": "wide", "partitions": asked}]
    client.request(FETCH, 11, replica_id=-1, max_wait=round(seconds * 1000), min_bytes=1, max_bytes=1000, topics=topics)


def test_what_many_elements_take_has_a_share_of_its_own() -> None:
    with (
        Broker.open("memory:") as broker,
        served(broker, **SMALL_BUDGET) as port,
        RawClient(port) as first,
        RawClient(port) as second,
        RawClient(port) as small,
    ):
        broker.create_topic("wide", WIDE)
        waiting(first, WIDE, 2.0)
        small.call(METADATA, 9, topics=[{"name": "none"}])
        waiting(second, WIDE, 0.0)
        with pytest.raises(EOFError):
            second.answer()
        # A small request needs no room.
        waiting(small, LOOP_ELEMENTS_MAX // 2, 0.0)
        assert small.answer().error_code == 0
        assert first.answer().error_code == 0
        waiting(small, WIDE, 0.0)
        assert small.answer().error_code == 0


def test_a_fetch_that_is_kept_counts_against_its_caller() -> None:
    """A connection keeps what its last fetch asked for: all connections of a caller keep no more than its share."""
    few, more = LOOP_ELEMENTS_MAX // 2, 3
    with Broker.open("memory:") as broker, served(broker, **SMALL_BUDGET) as port:
        broker.create_topic("wide", WIDE)
        clients = [RawClient(port) for _ in range(more * WIDE // few)]
        for client in clients:
            waiting(client, few, 0.0)
            assert client.answer().error_code == 0
        with RawClient(port) as client:
            waiting(client, WIDE, 0.0)
            with pytest.raises(EOFError):
                client.answer()
        for client in clients:
            # Those that were not kept are served as well.
            waiting(client, few, 0.0)
            assert client.answer().error_code == 0
            client.close()
        with RawClient(port) as client:
            client.call(METADATA, 9, topics=[{"name": "none"}])
            waiting(client, WIDE, 0.0)
            assert client.answer().error_code == 0


def test_nothing_is_read_for_those_who_have_not_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = called_by(monkeypatch, "read_request")
    with Broker.open("memory:") as broker, served(broker) as port:
        broker.access.create("someone", [("*", list(Right))])
        for key, version, fields in LARGE.values():
            with RawClient(port) as client:
                client.request(key, version, **fields)
                with pytest.raises((EOFError, ConnectionError)):
                    client.answer()
    assert readers == []
