"""Fetches that are asked again and again: each has the answer of its time, whatever happens while it waits."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, takewhile

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import StoreUnavailable, TopicNotFound
from headrace.core.rights import ANYONE, Caller
from headrace.edge.access import Gate, Principal
from headrace.edge.limits import Limits
from headrace.edge.settings import LimitSettings
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.apis.records import idle_fetch
from headrace.protocols.kafka.apis.records.idle_fetch import IdleFetch
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built

PRODUCE, FETCH, METADATA = 0, 1, 3
UNKNOWN_TOPIC = 3
FOREVER_SECONDS = 60.0


class Repetitions:
    """Sees whether requests were taken as repetitions, and does something as soon as the next one waits."""

    def __init__(self) -> None:
        self.taken: list[bool] = []
        self.has_begun = threading.Event()
        self.once: Callable[[], object] | None = None

    def saw(self, is_taken: bool) -> bool:
        self.taken.append(is_taken)
        if is_taken:
            act, self.once = self.once, None
            if act is not None:
                act()
            self.has_begun.set()
        return is_taken


@pytest.fixture
def repetitions(monkeypatch: pytest.MonkeyPatch) -> Repetitions:
    seen, begin = Repetitions(), IdleFetch.begin
    monkeypatch.setattr(IdleFetch, "begin", lambda idle, data: seen.saw(begin(idle, data)))
    return seen


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    site.broker.create_topic("idle", partitions=2)
    with RawClient(site.port) as client:
        yield client
    with suppress(TopicNotFound):
        site.broker.delete_topic("idle")


def ask(client: RawClient, max_wait: int = 50, offset: int = 0, **session: int) -> None:
    wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    limits = {"max_wait": max_wait, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **session}
    client.request(FETCH, 11, topics=[{"topic": "idle", "partitions": wanted}], **limits)


def found(client: RawClient, number: int) -> tuple[int, int, bool]:
    """The error, the end and whether there are records in the answer to this request."""
    (partition,) = client.answer(number).responses[0].partitions
    return partition.error_code, partition.high_watermark, bool(partition.records)


def idle(client: RawClient) -> None:
    ask(client)
    assert found(client, 0) == (0, 0, False)


def first_other(client: RawClient) -> tuple[int, int, bool]:
    """After `idle`: asks again until the answer is another than that there is nothing."""
    number = 1
    ask(client)
    while (answer := found(client, number)) == (0, 0, False):
        number += 1
        ask(client)
    return answer


def publish(broker: Broker, partition: int) -> None:
    broker.publish(
        "idle", pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([partition], pa.int32())})
    )


def test_a_repeated_fetch_is_answered_by_its_number(client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    # The first may be asked too late to be one.
    for number in takewhile(lambda _: not any(repetitions.taken), count(1)):
        ask(client)
        assert found(client, number) == (0, 0, False)


def test_messages_end_a_wait(site: Site, client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    repetitions.once = lambda: publish(site.broker, 0)
    assert first_other(client) == (0, 1, True)
    assert any(repetitions.taken)


def test_messages_published_at_any_moment_are_found(site: Site, client: RawClient, repetitions: Repetitions) -> None:
    """Before a wait, while it begins, during it, and while it ends."""
    moments, messages = random.Random(7), 30

    def publish_all() -> None:
        for offset in range(messages):
            # The next one when this one was found: a fetch that finds nothing is what is repeated.
            is_found[offset].wait(FOREVER_SECONDS)
            time.sleep(moments.uniform(0.005, 0.03))
            publish(site.broker, 0)

    is_found = [threading.Event() for _ in range(messages + 1)]
    is_found[0].set()
    publisher = threading.Thread(target=publish_all)
    publisher.start()
    number = 0
    for offset in range(messages):
        answer = (0, offset, False)
        while answer == (0, offset, False):
            ask(client, max_wait=5, offset=offset)
            answer = found(client, number)
            number += 1
        assert answer == (0, offset + 1, True)
        is_found[offset + 1].set()
    publisher.join()
    assert any(repetitions.taken)


def test_a_client_that_asks_no_more_is_not_watched_for(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared store is polled for whoever watches, and tokens are read again."""
    watches = site.broker._topics.find("idle").topic.watches
    monkeypatch.setattr(idle_fetch, "KEPT_SECONDS", 0.05)
    idle(client)
    until = time.monotonic() + FOREVER_SECONDS
    while len(watches):
        assert time.monotonic() < until
        time.sleep(0.01)
    ask(client)
    assert found(client, 1) == (0, 0, False)
    publish(site.broker, 0)
    ask(client)
    assert found(client, 2) == (0, 1, True)


def test_messages_of_other_partitions_do_not(site: Site, client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    repetitions.once = lambda: publish(site.broker, 1)
    for number in takewhile(lambda _: not any(repetitions.taken), count(1)):
        ask(client)
        assert found(client, number) == (0, 0, False)


def test_a_topic_that_is_deleted_meanwhile(site: Site, client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    repetitions.once = lambda: site.broker.delete_topic("idle")
    error, _, _ = first_other(client)
    assert error == UNKNOWN_TOPIC


def test_a_request_behind_it_waits_for_its_answer(client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    ask(client)
    repetitions.has_begun.wait(FOREVER_SECONDS)
    client.request(METADATA, 1, topics=[])
    assert found(client, 1) == (0, 0, False)
    assert client.answer(2).controller_id == 0


def test_another_request_in_between_is_answered_first(client: RawClient, repetitions: Repetitions) -> None:
    """A fetch that is taken as a repetition would overtake one that is still being written."""
    idle(client)
    data = [{"index": 1, "records": built([(NOW_MS, None, b"x", [])])}]
    client.request(PRODUCE, 9, acks=-1, timeout=1000, topic_data=[{"name": "idle", "partition_data": data}])
    ask(client)
    assert client.answer(1).responses[0].partition_responses[0].error_code == 0
    assert found(client, 2) == (0, 0, False)
    assert not any(repetitions.taken)


def test_a_client_that_leaves_meanwhile(client: RawClient, repetitions: Repetitions) -> None:
    idle(client)
    ask(client, max_wait=50)
    repetitions.has_begun.wait(FOREVER_SECONDS)
    client.finish()


def test_a_request_that_began_a_session_begins_another(client: RawClient) -> None:
    sessions = set()
    for number in range(3):
        ask(client, max_wait=1, session_id=0, session_epoch=0)
        sessions.add(client.answer(number).session_id)
    assert len(sessions) == 3


def test_a_server_that_stops_meanwhile(repetitions: Repetitions) -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker:
        broker.create_topic("idle")
        server = KafkaServer(broker, broker.access, KafkaSettings(), listeners)
        server.start()
        with RawClient(sockets.port_of(listeners)) as client:
            idle(client)
            ask(client)
            repetitions.has_begun.wait(FOREVER_SECONDS)
            assert server.stop(30.0)
            assert found(client, 1) == (0, 0, False)


def test_one_token_more_ends_the_wait_of_who_has_none(repetitions: Repetitions) -> None:
    listeners = sockets.bind("127.0.0.1", 0)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, KafkaSettings(), listeners):
        broker.create_topic("idle")
        with RawClient(sockets.port_of(listeners)) as client:
            idle(client)
            repetitions.once = lambda: broker.access.create("first", [("*", ["read"])])
            with pytest.raises(EOFError):
                for number in range(1, 10_000):
                    ask(client)
                    found(client, number)


def test_a_caller_is_admitted_again_unless_it_is_too_fast_or_another_now() -> None:
    with Broker.open("memory:") as broker:
        gate = Gate(broker.access, Limits(LimitSettings(requests_per_second=2), clock=lambda: 0.0))
        principal = gate.admit(None, "here", "Fetch")
        assert [gate.admit_again(principal) for _ in range(2)] == [True, False]
        gate = Gate(broker.access)
        principal = gate.admit(None, "here", "Fetch")
        record, token = broker.access.create("first", [("*", ["read"])])
        assert not gate.admit_again(principal)
        principal = gate.admit(token, "here", "Fetch")
        gate.store_uses()
        assert gate.admit_again(principal)
        broker.access.revoke(record.id)
        assert not gate.admit_again(principal)


def test_nobody_is_admitted_again_while_the_store_does_not_answer() -> None:
    """The connection asks again by itself: what is raised where bytes arrive would end it."""

    def identify() -> Caller:
        raise StoreUnavailable("of tokens", "gone")

    with Broker.open("memory:") as broker:
        assert not Gate(broker.access).admit_again(Principal(ANYONE, "here", identify))


def test_a_long_poll_beyond_the_limit_is_not_begun() -> None:
    streams = Limits(LimitSettings(streams_max=1)).streams
    assert [streams.try_take("one"), streams.try_take("one"), streams.try_take("two")] == [True, False, True]
