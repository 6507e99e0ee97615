"""Sixteen threads do everything at once; afterwards the invariants must hold.

Any error that is not the honest answer to what another thread did at the same moment fails the test: nothing of the
store, nothing that is no error of the core tree.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from headrace.broker import Broker
from headrace.core.errors import Conflict, Gone, NotFound, OffsetOutOfRange, Overloaded, PartitionsCannotShrink
from headrace.core.publish.state import CommitKey
from tests.broker.background import together
from tests.broker.messages import batch, content, values_of
from tests.broker.sites import Site

ROUNDS_MIN = 5
# What one thread may be told because of what another did.
HONEST = (NotFound, Conflict, Gone, OffsetOutOfRange, Overloaded, PartitionsCannotShrink)
PARTITIONS_MAX = 12


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns after few instructions, so that every gap is met."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class Stress:
    """The roles of the threads, and what they have to remember."""

    def __init__(self, broker: Broker, site: Site, seconds: float, seed: int) -> None:
        self.broker = broker
        self.site = site
        self._deadline = time.monotonic() + seconds
        self._seed = seed
        self.acknowledged: dict[str, list[bytes]] = {}
        self.keyed: dict[str, list[int]] = {}
        self.rounds: dict[str, int] = {}

    def roles(self) -> list[Callable[[], None]]:
        roles: list[tuple[str, Callable[[random.Random, str], None]]] = [
            *[(f"producer-{number}", self.produce) for number in range(3)],
            *[(f"writer-{number}", self.write_with_key) for number in range(2)],
            ("stager-0", self.stage),
            *[(f"shared-{number}", self.share_payloads) for number in range(2)],
            ("follower-0", self.follow),
            ("reader-0", self.read_anywhere),
            *[(f"member-{number}", self.be_member) for number in range(2)],
            ("member-2", self.read_as_member),
            ("alterer-0", self.alter),
            ("wrecker-0", self.make_and_delete),
            ("keeper-0", self.keep_up),
        ]
        return [partial(self._play, name, role) for name, role in roles]

    def _play(self, name: str, role: Callable[[random.Random, str], None]) -> None:
        chooser = random.Random(f"{self._seed}-{name}")
        # However slow the machine is, everyone has some turns.
        while time.monotonic() < self._deadline or self.rounds.get(name, 0) < ROUNDS_MIN:
            with suppress(*HONEST):
                role(chooser, name)
            self.rounds[name] = self.rounds.get(name, 0) + 1

    def _publish_numbered(self, topic: str, name: str, rows: int) -> None:
        sent = self.acknowledged.setdefault(name, [])
        first = len(sent)
        values = [b"%s:%d" % (name.encode(), number) for number in range(first, first + rows)]
        numbers = list(range(first, first + rows))
        receipts = self.broker.publish(topic, batch(*values, producer_id=name, seqno=numbers))
        assert receipts.written == rows
        sent += values

    def produce(self, chooser: random.Random, name: str) -> None:
        self._publish_numbered("main", name, chooser.randint(1, 5))
        if chooser.random() < 0.3:
            assert self.broker.last_seqno("main", name) == len(self.acknowledged[name]) - 1

    def write_with_key(self, chooser: random.Random, name: str) -> None:
        """Two threads use the same keys: each number is published by one of them."""
        number = len(self.keyed.setdefault(name, []))
        receipts = self.broker.publish("keyed", batch(b"%d" % number, b"%d" % number), CommitKey("w", number))
        self.keyed[name].append(receipts.written)

    def stage(self, chooser: random.Random, name: str) -> None:
        sent = self.acknowledged.setdefault(name, [])
        parts = [[b"%s:%d" % (name.encode(), len(sent) + place) for place in range(3)]]
        staged = [self.broker.stage("main", batch(*values), f"{name}-{len(sent)}") for values in parts]
        assert self.broker.publish_staged("main", staged) == (3, 0)
        sent += parts[0]

    def share_payloads(self, chooser: random.Random, name: str) -> None:
        """Two topics of one window, and the same values for both."""
        number = self.rounds.get(name, 0)
        self.broker.publish(name, batch(b"%d" % number, b"%d" % (number + 1)))

    def follow(self, chooser: random.Random, name: str) -> None:
        """What is read is dense, and what a producer numbered rises."""
        partition = chooser.randrange(len(self.broker.offsets("main")))
        offset, last = 0, dict[str, int]()
        while time.monotonic() < self._deadline:
            read = self.broker.fetch("main", partition, offset, chooser.choice((1, 3, 1000)), wait_seconds=0.05)
            assert read.column("offset").to_pylist() == list(range(offset, offset + read.num_rows))
            for producer, seqno in zip(
                read.column("producer_id").to_pylist(), read.column("seqno").to_pylist(), strict=True
            ):
                if producer is not None:
                    assert seqno > last.get(producer, -1)
                    last[producer] = seqno
            offset += read.num_rows

    def read_anywhere(self, chooser: random.Random, name: str) -> None:
        topic = chooser.choice(self.broker.list_topics())
        for partition, (start, end) in self.broker.offsets(topic).items():
            read = self.broker.fetch(topic, partition, chooser.randint(start, end), chooser.choice((1, 100)))
            self.broker.offset_at(topic, partition, self.site.clock.now_us() - chooser.randint(0, 10**7))
            assert read.num_rows <= 100
        self.broker.describe_topic(topic)
        for group in self.broker.list_groups(topic):
            self.broker.describe_group(topic, group)

    def be_member(self, chooser: random.Random, name: str) -> None:
        topic, group = chooser.choice(("main", "doomed")), chooser.choice(("a", "b"))
        mine = self.broker.join_group(topic, group, name, session_timeout_seconds=chooser.choice((1, 1000)))
        for _ in range(3):
            ends = self.broker.offsets(topic)
            offsets = {partition: ends[partition][1] for partition in mine.partitions if partition in ends}
            self.broker.commit_offsets(topic, group, offsets, name, mine.generation)
            mine = self.broker.heartbeat(topic, group, name)
        if chooser.random() < 0.1:
            self.broker.seek(topic, group, {0: 0})
        if chooser.random() < 0.05:
            self.broker.delete_group(topic, group)
        self.broker.leave_group(topic, group, name)

    def read_as_member(self, chooser: random.Random, name: str) -> None:
        topic, group = chooser.choice(("main", "doomed")), "readers"
        self.broker.join_group(topic, group, name)
        reader = self.broker.reader(topic)
        for _ in range(10):
            read = reader.read_as_member(group, name, None, {}, chooser.choice((1_000, 3)), 1 << 20)
            self.broker.commit_offsets(topic, group, read.positions, name, read.generation, True)
        self.broker.leave_group(topic, group, name)

    def alter(self, chooser: random.Random, name: str) -> None:
        partitions = len(self.broker.offsets("main"))
        if partitions < PARTITIONS_MAX and chooser.random() < 0.2:
            self.broker.alter_topic("main", partitions=partitions + 1)
        self.broker.alter_topic("aging", retention_seconds=chooser.choice((1, 2, None)))
        self.broker.alter_topic("main", message_bytes_max=chooser.choice((1000, 2000)))
        self._publish_numbered("aging", name, 2)
        self.broker.register_group("aging", "audit", important=chooser.random() < 0.2)
        self.broker.seek("aging", "audit", {0: self.broker.offsets("aging")[0][1]})

    def make_and_delete(self, chooser: random.Random, name: str) -> None:
        self.broker.create_topic("doomed", partitions=chooser.randint(1, 3), retention_seconds=1)
        for number in range(chooser.randint(1, 10)):
            self.broker.publish("doomed", batch(b"%d" % number, b"x"))
        if chooser.random() < 0.3:
            self.broker.stage("doomed", batch(b"never published"), "left behind")
        if chooser.random() < 0.5:
            self.broker.delete_topic("doomed")

    def keep_up(self, chooser: random.Random, name: str) -> None:
        self.site.clock.step(chooser.random())
        self.broker.maintenance.run_all()

    def check(self, broker: Broker) -> None:
        """What must be true once all is quiet, and after a restart."""
        numbered = {name: sent for name, sent in self.acknowledged.items() if not name.startswith("alterer")}
        by_partition = content(broker, "main")
        assert sorted(value for values in by_partition.values() for value in values) == sorted(
            value for sent in numbered.values() for value in sent
        )
        for name, sent in numbered.items():
            mine = [
                value for values in by_partition.values() for value in values if value.startswith(name.encode() + b":")
            ]
            assert name.startswith("stager") or mine == sent
            assert name.startswith("stager") or broker.last_seqno("main", name) == len(sent) - 1
        self._check_keys(broker)
        self._check_window(broker)
        for topic in broker.list_topics():
            ends = broker.offsets(topic)
            for group in broker.list_groups(topic):
                for partition, offset in broker.committed(topic, group).items():
                    assert 0 <= offset <= ends[partition][1]
        aging, sent = content(broker, "aging")[0], self.acknowledged["alterer-0"]
        assert aging == sent[len(sent) - len(aging) :]

    def _check_keys(self, broker: Broker) -> None:
        rounds = [len(written) for written in self.keyed.values()]
        numbers = [int(value) for value in content(broker, "keyed")[0]]
        assert numbers == sorted(numbers)
        assert len(numbers) == sum(map(sum, self.keyed.values())) == 2 * len(set(numbers))
        assert broker.last_commit("keyed", "w") == max(rounds) - 1

    def _check_window(self, broker: Broker) -> None:
        """The clock has moved less than the window is long, so no value is there twice."""
        shared = [value for topic in ("shared-0", "shared-1") for value in content(broker, topic)[0]]
        assert len(shared) == len(set(shared)) > 0


def stress(site: Site, seconds: float, seed: int) -> None:
    # Threads of tests that came before in this process are not looked for.
    before = set(threading.enumerate())
    broker = site.open(queue_messages_per_partition=50)
    broker.create_topic("main", partitions=2)
    broker.create_topic("keyed")
    broker.create_topic("aging", retention_seconds=1)
    for topic in ("shared-0", "shared-1"):
        broker.create_topic(
            topic, deduplication="payload", deduplication_scope="store", deduplication_window_seconds=7 * 24 * 3600
        )
    test = Stress(broker, site, seconds, seed)
    roles = test.roles()
    assert len(roles) == 16
    together(roles)
    assert set(test.rounds) >= {"producer-0", "member-0", "wrecker-0", "keeper-0", "alterer-0"}
    assert broker.topics.find("main").topic.intake.depth == 0
    assert len(broker.topics.find("main").topic.watches) == 0
    test.check(broker)
    if site.engine.is_durable:
        test.check(site.reopen(broker))
    site.close()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("headrace")] == []


@pytest.mark.usefixtures("busy_switching")
def test_sixteen_threads_at_once_break_nothing(site: Site) -> None:
    stress(site, seconds=3.0, seed=1)


@pytest.mark.campaign
@pytest.mark.usefixtures("busy_switching")
@pytest.mark.parametrize("seed", range(20))
def test_sixteen_threads_for_long_break_nothing(durable_site: Site, seed: int) -> None:
    stress(durable_site, seconds=15.0, seed=seed)


def test_a_reader_gets_whole_messages_while_segments_roll_and_go(durable_site: Site, busy_switching: None) -> None:
    """A topic that keeps dropping its oldest segment under readers that read there."""
    site = durable_site
    broker = site.open()
    broker.create_topic("orders", retention_seconds=1)
    stop = time.monotonic() + 2.0

    def write() -> None:
        number = 0
        while time.monotonic() < stop:
            broker.publish("orders", batch(b"%d" % number))
            number += 1
            site.clock.step(0.2)

    def keep_up() -> None:
        while time.monotonic() < stop:
            broker.maintenance.run_all()

    def read() -> None:
        while time.monotonic() < stop:
            start, _ = broker.offsets("orders")[0]
            with suppress(OffsetOutOfRange):
                got = broker.fetch("orders", 0, start, max_messages=5)
                assert values_of(got) == [b"%d" % offset for offset in got.column("offset").to_pylist()]
            broker.offset_at("orders", 0, 0)
            broker.describe_topic("orders")
            broker.register_group("orders", "readers")

    together([write, keep_up, read, read, read])
    site.close()
