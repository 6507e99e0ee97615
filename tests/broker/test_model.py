"""A random life of a durable broker and of a memory broker side by side: every answer must be the same.

The memory engine says what is right, since it is too plain to be wrong in the ways the others can be. A seed gives
the whole life: publishes of many shapes, transactions over topics and groups, reads, groups, members, altered and
deleted topics, time, maintenance, and restarts and crashes of the durable broker. On a database two servers take turns,
step by step. Where engines may differ they are held to what must be true of both: retention drops segments on disk and
commits in memory, and a limit in bytes is met by whole messages counted with or without overhead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.cluster.notifications import Notifications
from headrace.broker.topics.registry import OpenTopic
from headrace.core.errors import HeadraceError, OffsetOutOfRange, StorageError
from headrace.core.messages import PUBLISH_SCHEMA, message_sizes
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import (
    GroupDescription,
    Membership,
    Staged,
    TopicDescription,
    TransactionOffsets,
    TransactionOutcome,
)
from tests.broker.background import publish_together
from tests.broker.clock import SettableClock
from tests.broker.sites import DISK, DURABLE_ENGINES, MEMORY, POSTGRES, Engine, Site

DAY_SECONDS = 24 * 3600
STEPS = 160

Step = Callable[[Broker], object]

# A topic whose old messages may go; what it holds is compared where both engines still have it.
AGING = "aging"
TOPICS = ("orders", "Payments", "x")
GROUPS = ("g", "h")
MEMBERS = ("ann", "bob", "cem")
WRITERS = ("w", "v")
STAGES = ("s", "t", "u")
PRODUCERS = (None, "", "p", "q", "r")
VALUES = (b"", b"a", b"b", b"cc", b"d" * 30, b"e" * 200)
SETTINGS: dict[str, tuple[Any, ...]] = {
    "deduplication": ("producer", "payload", "payload", "off"),
    "deduplication_scope": ("topic", "store"),
    "codecs": (["raw", "gzip", "zstd", "lzop"], ["raw", "zstd"]),
    "message_bytes_max": (100, 1 << 20, 1 << 20),
}


def is_aging(topic: str) -> bool:
    return topic.lower() == AGING


def keep_up(broker: Broker) -> None:
    """Run maintenance; nothing may go that an important group has yet to read."""
    topics = [topic for topic in broker.list_topics() if is_aging(topic)]
    before = {topic: broker.offsets(topic) for topic in topics}
    broker.maintenance.run_all()
    for topic in topics:
        for group in broker.list_groups(topic):
            described = broker.describe_group(topic, group)
            for partition, (start, _) in broker.offsets(topic).items():
                has_moved = start > before[topic][partition][0]
                held = described.progress[partition].committed or 0
                assert not (described.important and has_moved and start > held), (topic, group, partition)


def told(topic: str, answer: Membership) -> Membership:
    """What a member was told, without where to begin in a topic whose old messages may go."""
    return replace(answer, positions={}) if is_aging(topic) else answer


def pick(values: Sequence[Any], share: float) -> Any:
    """One of some values, by a number that was drawn before they were known."""
    return values[min(int(share * len(values)), len(values) - 1)]


class Life:
    """The steps that a seed gives, one after another.

    A step may ask the broker what there is and choose among it by numbers that were drawn before: as long as the two
    brokers are alike, so are their choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._topics: list[str] = []
        self._seqno: dict[tuple[str | None, str | None], int] = {}
        # With the topic of each.
        self._staged: list[tuple[str, Staged]] = []
        self._number = 0

    def _one_of(self, values: Any) -> Any:
        return self.random.choice(list(values))

    def _maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def _topic(self) -> str:
        known = self._topics if self._topics and self._maybe(0.97) else (*TOPICS, AGING)
        name: str = self._one_of(known)
        return name.upper() if self._maybe(0.1) else name

    def _lasting_topic(self) -> str:
        """One whose messages never go."""
        lasting = [topic for topic in self._topics if topic != AGING]
        name: str = self._one_of(lasting or TOPICS)
        return name

    def _settings(self) -> dict[str, Any]:
        names = self.random.sample(sorted(SETTINGS), self.random.randint(0, 2))
        return {name: self._one_of(SETTINGS[name]) for name in names}

    def create(self) -> Step:
        name = self._one_of((*TOPICS, AGING))
        partitions, settings = self._one_of((None, 1, 2, 3, 4)), self._settings()
        self._topics = sorted({*self._topics, name})
        if is_aging(name):
            settings = {"retention_seconds": 60}
        return lambda broker: broker.create_topic(name, partitions, **settings)

    def alter(self) -> Step:
        topic, partitions, settings = self._topic(), self._one_of((None, None, 2, 3, 4, 5)), self._settings()
        return lambda broker: broker.alter_topic(topic, partitions, **settings)

    def delete(self) -> Step:
        topic = self._topic()
        self._topics = [name for name in self._topics if name.lower() != topic.lower()]
        return lambda broker: broker.delete_topic(topic)

    def batch(self) -> pa.RecordBatch:
        rows = self._one_of((0, 1, 1, 1, 2, 3, 5, 12))
        columns: dict[str, list[Any]] = {"value": [self._value() for _ in range(rows)]}
        if self._maybe(0.4):
            columns["key"] = [self._one_of((None, b"", b"k", b"l", b"m")) for _ in range(rows)]
        if self._maybe(0.5):
            self._add_sources(columns, rows)
        if self._maybe(0.2):
            columns["partition"] = [self._one_of((None, 0, 0, 1)) for _ in range(rows)]
        if self._maybe(0.2):
            columns["attributes"] = [self._one_of((None, [], [("x", b"1"), ("y", b"")])) for _ in range(rows)]
        if self._maybe(0.2):
            columns["codec"] = [self._one_of((None, "raw", "zstd", "gzip")) for _ in range(rows)]
        if self._maybe(0.1):
            columns["created_at"] = [self._one_of((None, 0, 1_600_000_000_000_000)) for _ in range(rows)]
        arrays = {name: pa.array(column, PUBLISH_SCHEMA.field(name).type) for name, column in columns.items()}
        return pa.record_batch(arrays)

    def _value(self) -> bytes:
        self._number += 1
        value: bytes = self._one_of(VALUES) if self._maybe(0.5) else b"%d" % self._number
        return value

    def _add_sources(self, columns: dict[str, list[Any]], rows: int) -> None:
        producers = [self._one_of(PRODUCERS) for _ in range(rows)]
        groups = [self._one_of((None, "", "g")) if producer else None for producer in producers]
        columns["producer_id"], columns["message_group_id"] = producers, groups
        columns["seqno"] = [
            self._next_seqno(producer, group) if producer and self._maybe(0.9) else None
            for producer, group in zip(producers, groups, strict=True)
        ]

    def _next_seqno(self, producer: str, group: str | None) -> int:
        """Mostly the next number of the source, at times a gap, a retry, or a wrong one."""
        known = self._seqno.get((producer, group), 0)
        seqno: int = known + self._one_of((1, 1, 1, 5, 0, -2))
        self._seqno[producer, group] = max(known, seqno)
        return seqno

    def publish(self) -> Step:
        topic, batch, key = self._topic(), self.batch(), self._key()
        return lambda broker: broker.publish(topic, batch, key)

    def publish_together(self) -> Step:
        topic, batches = self._topic(), [self.batch() for _ in range(self.random.randint(1, 3))]
        return lambda broker: publish_together(broker, topic, batches)

    def _key(self, chance: float = 0.15) -> CommitKey | None:
        return CommitKey(self._one_of(WRITERS), self.random.randint(0, 20)) if self._maybe(chance) else None

    def stage(self) -> Step:
        topic, batch, name = self._topic(), self.batch(), self._one_of(STAGES)

        def stage(broker: Broker) -> Staged:
            staged = broker.stage(topic, batch, name)
            self._staged = [(topic, staged), *self._staged[:2]]
            return staged

        return stage

    def publish_staged(self) -> Step:
        topic, key = self._topic(), self._key()
        chosen = self.random.sample(self._staged, min(2, len(self._staged)))
        named = {staged.stage: staged for _, staged in chosen}
        return lambda broker: broker.publish_staged(topic, list(named.values()), key)

    def transaction(self) -> Step:
        """Messages to some topics and offsets of some groups, by a key that at times was used before.

        At times a topic is named twice, or a stage is one that is published already, or was of another topic's life.
        """
        batches = [(self._topic(), self.batch()) for _ in range(self._one_of((0, 1, 2, 2, 3)))]
        others = self._staged[:1] if self._maybe(0.15) else []
        offsets = [self._offsets(self._maybe(0.8)) for _ in range(self._one_of((0, 0, 1, 1, 2)))]
        key, self._number = self._key(0.5), self._number + 1
        name = f"transaction-{self._number}"

        def transact(broker: Broker) -> TransactionOutcome:
            stages: dict[str, list[Staged]] = {}
            for topic, staged in others:
                stages.setdefault(topic, []).append(staged)
            for number, (topic, batch) in enumerate(batches):
                stages.setdefault(topic, []).append(broker.stage(topic, batch, f"{name}-{number}"))
            return broker.commit_transaction(stages, [asked(broker) for asked in offsets], key)

        return transact

    def drop_stages(self) -> Step:
        topic, names = self._topic(), self.random.sample(STAGES, 2)
        return lambda broker: broker.drop_stages(topic, names)

    def ask_writers(self) -> Step:
        topic, producer, group = self._topic(), self._one_of(("p", "q", "r")), self._one_of(("", "g"))
        writer = self._one_of(WRITERS)
        return lambda broker: (broker.last_seqno(topic, producer, group), broker.last_commit(topic, writer))

    def fetch(self) -> Step:
        topic, partition, share = self._lasting_topic(), self._partition(), self.random.uniform(-0.1, 1.15)
        messages = self._one_of((1, 2, 7, 10_000))

        def fetch(broker: Broker) -> pa.RecordBatch:
            number = partition(broker, topic)
            end = broker.offsets(topic).get(number, (0, 1))[1]
            return broker.fetch(topic, number, round(share * end), messages)

        return fetch

    def _partition(self) -> Callable[[Broker, str], int]:
        """Mostly one that the topic has."""
        share, wrong = self.random.random(), self._maybe(0.03)
        return lambda broker, topic: 17 if wrong else pick(list(broker.offsets(topic)), share)

    def offset_at(self, now_us: int) -> Step:
        topic, partition = self._lasting_topic(), self._partition()
        time_us = now_us - self._one_of((0, 1, 1_000_000, 40_000_000, 10**12)) + self.random.randint(-2, 2)
        return lambda broker: broker.offset_at(topic, partition(broker, topic), time_us)

    def describe(self) -> Step:
        topic = self._topic()
        return lambda broker: (broker.list_topics(), broker.describe_topic(topic), broker.list_groups(topic))

    def register(self) -> Step:
        topic, group = self._topic(), self._one_of(GROUPS)
        consumers, read_from = self._one_of((None, None, None, 1, 3)), self._one_of(("earliest", "latest"))
        important = self._one_of((None, True, False)) if is_aging(topic) else None
        return lambda broker: broker.register_group(topic, group, consumers, important, read_from)

    def join(self) -> Step:
        topic, group, member = self._topic(), self._one_of(GROUPS), self._one_of(MEMBERS)
        timeout = self._one_of((10, 100, 1000))
        return lambda broker: told(topic, broker.join_group(topic, group, member, timeout))

    def _member(self) -> Callable[[Broker, str, str], str]:
        """Mostly one that the group has."""
        share, stranger = self.random.random(), self._maybe(0.1)

        def member(broker: Broker, topic: str, group: str) -> str:
            members = list(broker.describe_group(topic, group).members)
            return "eve" if stranger or not members else pick(members, share)

        return member

    def heartbeat(self) -> Step:
        topic, group, member = self._topic(), self._one_of(GROUPS), self._member()
        return lambda broker: told(topic, broker.heartbeat(topic, group, member(broker, topic, group)))

    def leave(self) -> Step:
        topic, group, member = self._topic(), self._one_of(GROUPS), self._member()
        return lambda broker: broker.leave_group(topic, group, member(broker, topic, group))

    def _offsets(self, is_known: bool = False) -> Callable[[Broker], TransactionOffsets]:
        """Mostly what a member may commit; at times as a stranger, too late, or to a partition of another.

        A known group is one that the topic has, by one of its members if it has any.
        """
        topic, name_of_group, member, share = self._topic(), self._one_of(GROUPS), self._member(), self.random.random()
        is_anonymous, late, is_foreign = self._maybe(0.15), self._one_of((0, 0, 0, 0, 1, None)), self._maybe(0.1)
        reach, share_of_group = self.random.uniform(0, 1.03), self.random.random()

        def offsets(broker: Broker) -> TransactionOffsets:
            groups = broker.list_groups(topic) if is_known else []
            group = pick(groups, share_of_group) if groups else name_of_group
            described = broker.describe_group(topic, group)
            is_alone = is_known and not described.members
            name = None if is_anonymous or is_alone else member(broker, topic, group)
            own = described.members.get(name or "", [])
            partition = pick(own, share) if own and not is_foreign else pick(list(broker.offsets(topic)), share)
            generation = None if late is None else described.generation - late
            offset = round(reach * broker.offsets(topic)[partition][1])
            return TransactionOffsets(topic, group, {partition: offset}, name, generation)

        return offsets

    def commit(self) -> Step:
        offsets = self._offsets()

        def commit(broker: Broker) -> None:
            asked = offsets(broker)
            broker.commit_offsets(asked.topic, asked.group, asked.offsets, asked.member, asked.generation)

        return commit

    def seek(self) -> Step:
        topic, group, partition = self._topic(), self._one_of(GROUPS), self._partition()
        reach = self.random.uniform(0, 1.03)

        def seek(broker: Broker) -> None:
            number = partition(broker, topic)
            end = broker.offsets(topic).get(number, (0, 1))[1]
            broker.seek(topic, group, {number: round(reach * end)})

        return seek

    def delete_group(self) -> Step:
        topic, group = self._topic(), self._one_of(GROUPS)
        return lambda broker: broker.delete_group(topic, group)

    def describe_group(self) -> Step:
        topic, group = self._lasting_topic(), self._one_of(GROUPS)
        return lambda broker: (broker.describe_group(topic, group), broker.committed(topic, group))

    def maintenance(self) -> Step:
        return keep_up

    def next(self, now_us: int) -> tuple[str, Step]:
        """The next step with its name."""
        if not self._topics:
            return "create", self.create()
        weights = {
            "publish": 30,
            "publish_together": 5,
            "fetch": 14,
            "create": 5,
            "alter": 4,
            "delete": 1,
            "stage": 6,
            "publish_staged": 4,
            "transaction": 8,
            "drop_stages": 1,
            "ask_writers": 4,
            "offset_at": 4,
            "describe": 3,
            "register": 5,
            "join": 8,
            "heartbeat": 4,
            "leave": 2,
            "commit": 8,
            "seek": 3,
            "delete_group": 1,
            "describe_group": 8,
            "maintenance": 5,
        }
        name = self.random.choices(list(weights), list(weights.values()))[0]
        return name, self.offset_at(now_us) if name == "offset_at" else getattr(self, name)()


def plain(answer: Any) -> Any:
    """An answer as something that compares by value."""
    if isinstance(answer, Receipts):
        return answer.to_arrow().to_pydict(), answer.outcome.tolist()
    if isinstance(answer, OffsetOutOfRange) and is_aging(answer.topic):
        return type(answer), {**answer.details(), "start": None}
    if isinstance(answer, HeadraceError):
        assert not isinstance(answer, StorageError), repr(answer)
        return type(answer), answer.details()
    if isinstance(answer, TopicDescription):
        offsets = {number: end for number, (_, end) in answer.offsets.items()}
        return {**asdict(answer), "bytes_stored": None, "offsets": offsets, "settings": answer.settings}
    if isinstance(answer, GroupDescription) and is_aging(answer.topic):
        committed = {number: progress.committed for number, progress in answer.progress.items()}
        return {**asdict(answer), "progress": committed}
    if is_dataclass(answer) and not isinstance(answer, type):
        return asdict(answer)
    if isinstance(answer, list | tuple):
        return [plain(part) for part in answer]
    return answer


def answer_of(broker: Broker, step: Step) -> Any:
    try:
        return plain(step(broker))
    except HeadraceError as error:
        return plain(error)


def is_same(left: Any, right: Any) -> bool:
    if isinstance(left, pa.RecordBatch) and isinstance(right, pa.RecordBatch):
        return bool(left.equals(right, check_metadata=True))
    return bool(left == right)


class Pair:
    """The two brokers, and how the durable one is restarted; of a shared store two servers take turns as that one."""

    def __init__(self, engine: Engine, directory: Path, fixture: Callable[[str], Any]) -> None:
        self.clock = SettableClock()
        self._directory = directory
        self._lives = 0
        self._site = Site.make(engine, directory / "0", fixture, self.clock)
        self._memory_site = Site.make(MEMORY, directory, fixture, self.clock)
        self.memory = self._memory_site.open()
        self.disk = self._site.open()
        self._neighbour = self._site.open() if engine.is_shared else None

    def restart(self) -> None:
        """Close the durable broker and open it again."""
        self.disk = self._site.reopen(self.disk)
        self._begin_sessions()

    def crash(self) -> None:
        """Open what the durable broker would have left if it had died just now."""
        self._lives += 1
        after = self._site.crashed(self._directory / str(self._lives))
        self.disk = after.open()
        self._neighbour = after.open() if self._neighbour is not None else None
        self._site.close()
        self._site = after
        self._begin_sessions()

    def turn(self) -> None:
        """Let the other server go on, once it has heard what this one did."""
        if self._neighbour is not None:
            self.disk, self._neighbour = self._neighbour, self.disk
            Notifications(self.disk._topics).receive(None)

    def _begin_sessions(self) -> None:
        """After a restart each member has a full session; so it has at the servers that live on."""
        for opened in self._opened():
            for group in opened.groups.all():
                opened.groups.sessions.forget(group.name)
                opened.groups.adopt([group], ())

    def expire(self) -> None:
        """A member is missed by the server that heard it; the others know at once here."""
        for opened in self._opened():
            opened.groups.expire()

    def _opened(self) -> Iterator[OpenTopic]:
        for broker in (self.memory, self.disk, self._neighbour):
            if broker is not None:
                broker.list_topics()
                yield from broker.topics.all()

    def close(self) -> None:
        self._site.close()
        self._memory_site.close()

    def compare_everything(self) -> None:
        """What the two brokers hold, to the last column."""
        assert self.disk.list_topics() == self.memory.list_topics()
        for writer in WRITERS:
            keys = [broker.store.catalog.commits.last_key(writer) for broker in (self.disk, self.memory)]
            assert keys[0] == keys[1]
        for topic in self.memory.list_topics():
            described = plain(self.disk.describe_topic(topic)), plain(self.memory.describe_topic(topic))
            assert described[0] == described[1]
            for partition, start in self._common_starts(topic):
                self._compare_messages(topic, partition, start)
            for group in self.memory.list_groups(topic):
                assert self.disk.committed(topic, group) == self.memory.committed(topic, group)
                if not is_aging(topic):
                    assert self.disk.describe_group(topic, group) == self.memory.describe_group(topic, group)
            self._compare_within_bytes(topic)
            self._compare_sources(topic)

    def _common_starts(self, topic: str) -> Iterator[tuple[int, int]]:
        disk, memory = self.disk.offsets(topic), self.memory.offsets(topic)
        for partition, (start, end) in memory.items():
            assert disk[partition][1] == end
            # Segments go whole, so the disk never has less.
            assert disk[partition][0] <= start
            assert is_aging(topic) or disk[partition][0] == start == 0
            yield partition, start

    def _compare_messages(self, topic: str, partition: int, start: int) -> None:
        disk, memory = (broker.fetch(topic, partition, start, 1 << 20) for broker in (self.disk, self.memory))
        assert is_same(disk, memory), f"{topic} {partition}\ndisk: {disk.to_pylist()}\nmemory: {memory.to_pylist()}"
        times = disk.column("timestamp").cast("int64").to_pylist()
        for time_us in {*times[:2], *times[-2:]}:
            for asked in (time_us, time_us + 1):
                found = [broker.offset_at(topic, partition, asked) for broker in (self.disk, self.memory)]
                assert found[0] == found[1]

    def _compare_within_bytes(self, topic: str) -> None:
        """A limit in bytes: the same messages, at least one, and no more than fit."""
        for partition, (start, end) in self.memory.offsets(topic).items():
            for limit in (1, 40, 300):
                if start < end:
                    read = [
                        broker.fetch(topic, partition, start, max_bytes=limit) for broker in (self.disk, self.memory)
                    ]
                    shorter = min(batch.num_rows for batch in read)
                    assert shorter >= 1
                    assert is_same(*(batch.slice(0, shorter) for batch in read))
                    for batch in read:
                        sizes = message_sizes(batch.column("value"), batch.column("key"), batch.column("attributes"))
                        assert batch.num_rows == 1 or int(np.sum(sizes)) <= limit

    def _compare_sources(self, topic: str) -> None:
        for producer in ("p", "q", "r"):
            for group in ("", "g"):
                asked = (topic, producer, group)
                assert self.disk.last_seqno(*asked) == self.memory.last_seqno(*asked)


def disturb(pair: Pair, life: Life) -> str | None:
    """Let time pass, restart or crash, or do nothing."""
    chance = life.random.random()
    if chance < 0.25:
        pair.clock.step(life.random.choice((0.000001, 0.5, 3, 11, 35, 90, -2)))
    elif chance < 0.252:
        pair.clock.step(15 * DAY_SECONDS)
    elif chance < 0.27:
        pair.restart()
        return "restart"
    elif chance < 0.29:
        pair.crash()
        return "crash"
    return None


def live(seed: int, steps: int, engine: Engine, directory: Path, fixture: Callable[[str], Any]) -> None:
    """One whole life; a failure names the seed and its last steps."""
    pair, life = Pair(engine, directory, fixture), Life(seed)
    names: list[str] = []
    try:
        for _ in range(steps):
            disturbance = disturb(pair, life)
            pair.expire()
            pair.turn()
            if disturbance is not None:
                names.append(disturbance)
                pair.compare_everything()
            name, step = life.next(pair.clock.now_us())
            names.append(name)
            memory, disk = answer_of(pair.memory, step), answer_of(pair.disk, step)
            assert is_same(disk, memory), f"disk: {disk}\nmemory: {memory}"
        pair.compare_everything()
        names.append("the last crash")
        pair.crash()
        pair.compare_everything()
    except BaseException as error:
        error.add_note(f"seed {seed}, step {len(names)}: {', '.join(names[-8:])}")
        raise
    finally:
        pair.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_disk_broker_answers_like_a_memory_broker(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    live(seed, STEPS, DISK, tmp_path, request.getfixturevalue)


@pytest.mark.parametrize("seed", range(3))
def test_two_servers_on_one_database_answer_like_one_memory_broker(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    live(seed, STEPS // 2, POSTGRES, tmp_path, request.getfixturevalue)


@pytest.mark.campaign
@pytest.mark.parametrize("engine", DURABLE_ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_a_durable_broker_answers_like_a_memory_broker_for_many_lives(
    seed: int, engine: Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    live(seed, STEPS, engine, tmp_path, request.getfixturevalue)
