"""The Python client of cursus, unmodified, against this server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from cursus import Acks, ConsumerMode, Event, EventStore, Message

from headrace.broker import Broker
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.broker.background import eventually
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.site import consumer, producer

# A consumer that prints what it handles, and is killed.
_CONSUMER = """
import sys
from cursus import Consumer, ConsumerConfig
config = ConsumerConfig(topic="t", brokers=[sys.argv[1]], group_id="g", heartbeat_interval_ms=200)
Consumer(config).start(lambda message: print(message.payload, flush=True))
"""


class Handled:
    """What consumers have handled, and how often. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.payloads = Counter[str]()

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.payloads[message.payload] += 1


def written(broker: Broker, topic: str) -> list[str]:
    """The values of a topic, in the order of each partition."""
    return [
        value.decode()
        for partition in broker.offsets(topic)
        for value in broker.fetch(topic, partition, 0, 100_000).column("value").to_pylist()
    ]


@pytest.mark.parametrize("acks", list(Acks))
@pytest.mark.parametrize("mode", list(ConsumerMode))
def test_what_is_sent_is_handled_once(site: CursusSite, acks: Acks, mode: ConsumerMode) -> None:
    topic, handled = f"sent-{acks.name}-{mode.name}", Handled()
    sent = Counter(map(str, range(100)))
    with producer(site.address, topic, acks=acks) as sending:
        for number in range(100):
            sending.send(str(number), key=str(number % 7))
    assert sending.unique_ack_count == 100
    assert Counter(written(site.broker, topic)) == sent
    with consumer(site.address, topic, handled, mode) as reading:
        eventually(lambda: handled.payloads.total() >= 100)
        (listed,) = [each for each in site.broker.describe_group(topic, "g").members if each == reading._member_id]
        assert listed.startswith("consumer-")
    assert handled.payloads == sent
    group = site.broker.describe_group(topic, "g")
    assert (group.members, group.lag_messages) == ({}, 0)


def test_an_event_store_keeps_its_streams(site: CursusSite) -> None:
    store = EventStore(site.address, "accounts", "bank")
    store.create_topic(2)
    for version in (1, 2, 3):
        assert store.append("ann", version, Event(type="Paid", payload=f'{{"euro": {version}}}')).version == version
    store.save_snapshot("ann", 2, '{"sum": 3}')
    read = store.read_stream("ann")
    store.close()
    assert read.snapshot is not None
    assert (read.snapshot.version, read.snapshot.payload) == (2, '{"sum": 3}')
    assert [(event.version, event.type, event.payload) for event in read.events] == [(3, "Paid", '{"euro": 3}')]


def test_a_group_goes_on_without_a_member_that_is_killed() -> None:
    """Members that lose partitions join again; what the killed one has not committed is handled by others."""
    listeners, handled = sockets.bind("127.0.0.1", 0), Handled()
    address = f"127.0.0.1:{sockets.port_of(listeners)}"
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.open("memory:"))
        stack.enter_context(CursusServer(broker, broker.access, CursusSettings(session_seconds=1.0), listeners))
        sending = stack.enter_context(producer(address, "t", partitions=6))
        broker.register_group("t", "g")
        stack.enter_context(consumer(address, "t", handled))
        stack.enter_context(consumer(address, "t", handled))
        command = [sys.executable, "-c", _CONSUMER, address]
        killed = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(killed.kill)
        eventually(lambda: shares(broker) == [2, 2, 2])
        for number in range(300):
            sending.send(str(number))
        assert killed.stdout is not None
        printed = {killed.stdout.readline().strip()}
        killed.kill()
        printed.update(killed.stdout.read().split())
        for number in range(300, 600):
            sending.send(str(number))
        eventually(lambda: shares(broker) == [3, 3])
        sending.flush()
        eventually(lambda: broker.describe_group("t", "g").lag_messages == 0)
        assert printed | handled.payloads.keys() == set(map(str, range(600)))


def shares(broker: Broker) -> list[int]:
    """How many partitions each member of the group has."""
    return [len(partitions) for partitions in broker.describe_group("t", "g").members.values()]
