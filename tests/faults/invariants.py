"""What must hold after every fault, written once.

A `Ledger` does what a careful user does and keeps book: what was sent, what was acknowledged and with which offsets,
what was under way when the process died. `check` compares a reopened broker with the book:

- every acknowledged message is there once, where its receipt said, and nothing is there that was never sent;
- offsets are dense from start to end; sources and keys are in order;
- what was not acknowledged is there whole or not at all;
- committed offsets are the acknowledged ones.

`settle` repeats what was not acknowledged, as the errors tell users to: it must be accepted or be a duplicate of what
is there, and be there once after it. `check_files` looks for what a crash left behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.clock import Clock
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import StageNotFound, TopicNotFound
from headrace.core.messages import PUBLISH_SCHEMA
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import Staged, TransactionOffsets
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions

# Segments so small that a few messages fill one.
TINY = DiskOptions(segment_bytes=2000, segment_frames=4)

Place = tuple[int, int]


@dataclass(frozen=True)
class Message:
    """One message as it is sent. Values are unique in a ledger, so that a value says which message it is."""

    value: bytes
    key: bytes | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None
    partition: int | None = None


COLUMNS = ("value", "key", "producer_id", "message_group_id", "seqno", "partition")


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages as a batch to publish."""
    arrays = [
        pa.array([getattr(message, name) for message in messages], PUBLISH_SCHEMA.field(name).type) for name in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


@dataclass(eq=False)
class Attempt:
    """Messages sent in one commit; `places` has where each was written, as far as known, once that was acknowledged."""

    topic: str
    messages: tuple[Message, ...]
    commit_key: CommitKey | None = None
    repeats: bool = True
    places: list[Place | None] | None = None

    def acknowledge(self, receipts: Receipts) -> None:
        """Keep the receipts."""
        assert len(receipts) == len(self.messages)
        written = (receipts.outcome == 0).tolist()
        places = zip(receipts.partition.tolist(), receipts.offset.tolist(), strict=True)
        self.places = [place if is_written else None for place, is_written in zip(places, written, strict=True)]

    def acknowledge_totals(self, written: int, duplicates: int) -> None:
        """Keep that all of it is there, nobody said where."""
        assert written + duplicates == len(self.messages)
        self.places = [None] * len(self.messages)


@dataclass(eq=False)
class Transaction:
    """What was sent to several topics, and committed for groups, in one commit."""

    key: CommitKey
    attempts: list[Attempt]
    offsets: dict[tuple[str, str], dict[int, int]]

    @property
    def asked(self) -> list[TransactionOffsets]:
        """The offsets as they are asked for."""
        return [TransactionOffsets(*place, risen) for place, risen in self.offsets.items()]

    def is_there(self, broker: Broker, failed: Collection[str] = ()) -> bool:
        """Whether all of it is there; if not, nothing may be.

        If it was decided, and then its logs failed, the groups are where it brought them, and its messages come with
        the next opening.
        """
        sent = {
            {message.value for message in attempt.messages}
            <= {message.value for message in read_all(broker, attempt.topic).values()}
            for attempt in self.attempts
        }
        risen = {risen.items() <= broker.committed(*place).items() for place, risen in self.offsets.items()}
        parts = f"half of a transaction is there: messages {sent}, offsets {risen}"
        assert len(sent | risen) == 1 or (sent == {False} and risen == {True} and failed), parts
        return sent == {True}


@dataclass
class Ledger:
    """What a user of a store did and was told."""

    topics: dict[str, int] = field(default_factory=dict)
    # What was being done to topics when the process died: so many partitions were wanted, or none to be left of it.
    doubtful: dict[str, int | None] = field(default_factory=dict)
    trimmed: set[str] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    committed: dict[tuple[str, str], list[dict[int, int]]] = field(default_factory=dict)
    staged: list[tuple[str, Staged, list[Message]]] = field(default_factory=list)
    # Those that were not acknowledged.
    transactions: list[Transaction] = field(default_factory=list)

    def create_topic(self, broker: Broker, topic: str, partitions: int, **settings: Any) -> None:
        """Make a topic, or add partitions to it; while that is under way it may be there or not."""
        self.doubtful[topic] = partitions
        broker.create_topic(topic, partitions, **settings)
        del self.doubtful[topic]
        self.topics[topic] = partitions

    def delete_topic(self, broker: Broker, topic: str) -> None:
        """Delete a topic; while that is under way it may be there or not."""
        self.doubtful[topic] = None
        broker.delete_topic(topic)
        self.forget(topic)

    def forget(self, topic: str) -> None:
        """The topic is gone, and all that was in it."""
        self.doubtful.pop(topic, None)
        self.topics.pop(topic, None)
        self.attempts = [attempt for attempt in self.attempts if attempt.topic != topic]
        self.committed = {key: offsets for key, offsets in self.committed.items() if key[0] != topic}
        self.staged = [stage for stage in self.staged if stage[0] != topic]

    def publish(
        self,
        broker: Broker,
        topic: str,
        messages: Sequence[Message],
        commit_key: CommitKey | None = None,
        repeats: bool | None = None,
    ) -> Attempt:
        """Publish messages and keep the receipts; it can be repeated safely if seqnos, a key or the topic say so."""
        if repeats is None:
            repeats = commit_key is not None or all(message.seqno is not None for message in messages)
        attempt = Attempt(topic, tuple(messages), commit_key, repeats)
        self.attempts.append(attempt)
        attempt.acknowledge(broker.publish(topic, batch_of(messages), commit_key))
        return attempt

    def stage(self, broker: Broker, topic: str, messages: Sequence[Message], stage: str) -> None:
        """Put messages aside."""
        present = [known for known in self.staged if known[1].stage == stage]
        before = present[0][2] if present else []
        # While more is being put there, nobody can say how many rows it has.
        self.staged = [known for known in self.staged if known[1].stage != stage]
        staged = broker.stage(topic, batch_of(messages), stage)
        self.staged.append((topic, staged, [*before, *messages]))

    def publish_staged(self, broker: Broker, topic: str, commit_key: CommitKey | None) -> Attempt:
        """Publish all stages of a topic in one commit."""
        staged = [known for known in self.staged if known[0] == topic]
        self.staged = [known for known in self.staged if known[0] != topic]
        messages = [message for known in staged for message in known[2]]
        attempt = Attempt(topic, tuple(messages), commit_key, commit_key is not None)
        self.attempts.append(attempt)
        attempt.acknowledge_totals(*broker.publish_staged(topic, [known[1] for known in staged], commit_key))
        return attempt

    def commit_transaction(
        self, broker: Broker, key: CommitKey, offsets: dict[tuple[str, str], dict[int, int]] | None = None
    ) -> None:
        """Publish all stages of all topics, and commit offsets of groups, in one commit."""
        staged, self.staged, attempts = self.staged, [], dict[str, Attempt]()
        for topic, _, messages in staged:
            before = attempts[topic].messages if topic in attempts else ()
            attempts[topic] = Attempt(topic, (*before, *messages), key)
        made = Transaction(key, list(attempts.values()), offsets or {})
        self.attempts += made.attempts
        self.transactions.append(made)
        for place, risen in made.offsets.items():
            known = self.committed.setdefault(place, [{}])
            known.append({**known[-1], **risen})
        stages = {topic: [known[1] for known in staged if known[0] == topic] for topic in attempts}
        assert broker.commit_transaction(stages, made.asked, key).last_number is None
        self.acknowledge(made)

    def acknowledge(self, made: Transaction) -> None:
        """A transaction was made: its messages are there, wherever that is."""
        self.transactions.remove(made)
        for attempt in made.attempts:
            attempt.places = [None] * len(attempt.messages)
        for place in made.offsets:
            self.committed[place] = self.committed[place][-1:]

    def commit(self, broker: Broker, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets of a group; while that is under way the ones before may stand."""
        known = self.committed.setdefault((topic, group), [{}])
        known.append({**known[-1], **offsets})
        broker.commit_offsets(topic, group, offsets)
        self.committed[topic, group] = [known[-1]]


def read_all(broker: Broker, topic: str) -> dict[Place, Message]:
    """Everything in a topic by partition and offset; offsets are dense."""
    found: dict[Place, Message] = {}
    for partition, (start, end) in broker.offsets(topic).items():
        offset = start
        while offset < end:
            rows = broker.fetch(topic, partition, offset, max_messages=1000).to_pylist()
            assert rows, f"nothing to read at offset {offset} of {topic}/{partition}, which ends at {end}"
            for row in rows:
                assert (row["partition"], row["offset"]) == (partition, offset)
                found[partition, offset] = _message(row)
                offset += 1
        assert offset == end
    return found


def _message(row: Mapping[str, Any]) -> Message:
    return Message(row["value"], row["key"], row["producer_id"], row["message_group_id"], row["seqno"])


def check(broker: Broker, ledger: Ledger, failed: Sequence[str] = ()) -> None:
    """Compare a broker with the book; topics whose log has failed are read, and not asked for more."""
    there = set(broker.list_topics())
    for topic, partitions in ledger.topics.items():
        assert topic in there or topic in ledger.doubtful
        if topic in there:
            assert len(broker.offsets(topic)) >= partitions
            found = read_all(broker, topic)
            _check_topic(broker, ledger, topic, found)
            if topic not in failed:
                _check_sources(broker, ledger, topic, found)
    assert there <= {*ledger.topics, *ledger.doubtful}
    for made in ledger.transactions:
        made.is_there(broker, failed)


def _check_topic(broker: Broker, ledger: Ledger, topic: str, found: Mapping[Place, Message]) -> None:
    attempts = [attempt for attempt in ledger.attempts if attempt.topic == topic]
    _check_content(found, attempts)
    starts = {partition: start for partition, (start, _) in broker.offsets(topic).items()}
    assert topic in ledger.trimmed or not any(starts.values())
    for attempt in attempts:
        if attempt.places is None:
            _check_atomic(found, attempt, attempts, starts)
        else:
            _check_acknowledged(found, attempt.messages, attempt.places, starts)
    _check_order(found, attempts)
    for (other, group), candidates in ledger.committed.items():
        if other == topic:
            assert broker.committed(topic, group) in candidates


def _check_content(found: Mapping[Place, Message], attempts: Sequence[Attempt]) -> None:
    """What is there was sent, is what was sent, and is there once."""
    sent = {message.value: message for attempt in attempts for message in attempt.messages}
    values = [message.value for message in found.values()]
    assert len(values) == len(set(values)), "a message is there twice"
    for (partition, offset), message in found.items():
        assert message.value in sent, f"nobody sent {message.value!r}, at {partition}/{offset}"
        expected = sent[message.value]
        assert (message.key, message.producer_id, message.message_group_id, message.seqno) == (
            expected.key,
            expected.producer_id,
            expected.message_group_id,
            expected.seqno,
        )
        assert expected.partition in (None, partition)


def _check_acknowledged(
    found: Mapping[Place, Message],
    messages: Sequence[Message],
    places: Sequence[Place | None],
    starts: Mapping[int, int],
) -> None:
    """Each message is where its receipt says, and a duplicate is there too; retention may have taken them since."""
    values = {message.value for message in found.values()}
    for message, place in zip(messages, places, strict=True):
        if place is None:
            assert message.value in values or any(starts.values()), f"{message.value!r} was taken for a duplicate"
        elif place[1] >= starts[place[0]]:
            assert place in found, f"{message.value!r} was acknowledged at {place} and is not there"
            assert found[place].value == message.value


def _check_atomic(
    found: Mapping[Place, Message], attempt: Attempt, attempts: Sequence[Attempt], starts: Mapping[int, int]
) -> None:
    """Of what was not acknowledged all is there, or nothing; retention may have taken some of what was there."""
    values = {message.value for message in found.values()}
    others = {message.value for other in attempts if other is not attempt for message in other.messages}
    there = [message.value in values for message in attempt.messages if message.value not in others]
    assert all(there) or not any(there) or any(starts.values()), f"half of a commit is there: {there}"


def _check_order(found: Mapping[Place, Message], attempts: Sequence[Attempt]) -> None:
    """In each partition the messages of a key, and the seqnos of a source, are in the order sent."""
    sent = [message.value for attempt in attempts for message in attempt.messages]
    rank = {value: place for place, value in reversed(list(enumerate(sent)))}
    last: dict[tuple[object, ...], int] = {}
    for (partition, _), message in sorted(found.items()):
        orders: list[tuple[tuple[object, ...], int]] = []
        if message.key:
            orders.append((("key", partition, message.key), rank[message.value]))
        if message.seqno is not None:
            orders.append((("source", partition, message.producer_id, message.message_group_id), message.seqno))
        for name, number in orders:
            assert last.get(name, -1) < number, f"{name} is out of order at {message.value!r}"
            last[name] = number


def _check_sources(broker: Broker, ledger: Ledger, topic: str, found: Mapping[Place, Message]) -> None:
    """`last_seqno` is the highest that is there; what retention took may have been higher."""
    highest: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    acknowledged = [attempt.messages for attempt in ledger.attempts if attempt.topic == topic and attempt.places]
    for message in [*found.values(), *chain.from_iterable(acknowledged)]:
        if message.producer_id and message.seqno is not None:
            source = (message.producer_id, message.message_group_id or "")
            highest[source] = max(highest[source], message.seqno)
    for source, seqno in highest.items():
        assert broker.last_seqno(topic, *source) == seqno


def settle(broker: Broker, ledger: Ledger) -> None:
    """Repeat what was not acknowledged; after it everything is certain again."""
    settle_topics(broker, ledger)
    for made in list(ledger.transactions):
        _repeat_transaction(broker, ledger, made)
    for attempt in list(ledger.attempts):
        if attempt.places is None:
            _repeat(broker, ledger, attempt)
    for key in ledger.committed:
        ledger.committed[key] = [broker.committed(*key)]


def settle_topics(broker: Broker, ledger: Ledger) -> None:
    """Make the topics that were being made, and delete those that were being deleted."""
    for topic, partitions in list(ledger.doubtful.items()):
        if partitions is not None:
            ledger.create_topic(broker, topic, partitions)
            continue
        try:
            broker.delete_topic(topic)
        except TopicNotFound:
            assert topic not in broker.list_topics()
        ledger.forget(topic)


def _repeat(broker: Broker, ledger: Ledger, attempt: Attempt) -> None:
    before = {message.value for message in read_all(broker, attempt.topic).values()}
    missing = sum(message.value not in before for message in attempt.messages)
    if not attempt.repeats:
        if missing:
            ledger.attempts.remove(attempt)
        return
    receipts = broker.publish(attempt.topic, batch_of(attempt.messages), attempt.commit_key)
    assert receipts.written == missing
    attempt.acknowledge(receipts)


def _repeat_transaction(broker: Broker, ledger: Ledger, made: Transaction) -> None:
    """With the same key: it is made now, or was made before."""
    was_there = made.is_there(broker)
    stages = {attempt.topic: [broker.stage(attempt.topic, batch_of(attempt.messages))] for attempt in made.attempts}
    outcome = broker.commit_transaction(stages, made.asked, made.key)
    assert outcome.last_number == (made.key.number if was_there else None)
    assert made.is_there(broker)
    ledger.acknowledge(made)


def extend(broker: Broker, ledger: Ledger, tag: str) -> None:
    """Publish once more to every partition of every topic: it gets the next offset."""
    for topic in ledger.topics:
        ends = {partition: end for partition, (_, end) in broker.offsets(topic).items()}
        messages = [Message(f"{tag}-{topic}-{partition}".encode(), partition=partition) for partition in ends]
        attempt = ledger.publish(broker, topic, messages)
        assert attempt.places == list(ends.items())


def publish_left_stages(broker: Broker, ledger: Ledger) -> int:
    """Publish each stage that was acknowledged: its rows, or an error that it is not whole; how many were there."""
    published = 0
    for number, (topic, staged, messages) in enumerate(ledger.staged):
        key = CommitKey("left", number)
        try:
            totals = broker.publish_staged(topic, [staged], key)
        except StageNotFound:
            continue
        attempt = Attempt(topic, tuple(messages), key)
        attempt.acknowledge_totals(*totals)
        assert totals == (len(messages), 0)
        ledger.attempts.append(attempt)
        published += 1
    ledger.staged = []
    return published


@contextmanager
def opened(
    directory: Path,
    options: DiskOptions = TINY,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    settings: BrokerSettings | None = None,
) -> Iterator[Broker]:
    """A broker on a directory, closed at the end."""
    with Broker(DiskStore(directory, options, files), settings, clock) as broker:
        yield broker


def verify(
    directory: Path,
    ledger: Ledger,
    options: DiskOptions = TINY,
    clock: Clock | None = None,
    keeps_stages: bool = False,
    again: bool = True,
) -> None:
    """Open a store to see that all invariants hold and that work goes on, and again to see that it did."""
    with opened(directory, options, clock=clock) as broker:
        check(broker, ledger)
        settle(broker, ledger)
        stages = len(ledger.staged)
        assert publish_left_stages(broker, ledger) == stages or not keeps_stages
        extend(broker, ledger, "more")
        check_files(directory, broker)
    if again:
        with opened(directory, options, clock=clock) as broker:
            check(broker, ledger)
            check_files(directory, broker)


def check_files(directory: Path, broker: Broker) -> None:
    """Nothing is on the disk but what belongs to a topic that is there."""
    known = {f"{broker.describe_topic(topic).id:09d}" for topic in broker.list_topics()}
    folders = {path.name for path in (directory / "topics").iterdir()}
    assert folders == known
    for path in (directory / "topics").glob("*/*"):
        assert path.suffix in {".log", ".index", ".state", ".watermark"}, f"{path} was left behind"
        assert path.suffix != ".index" or path.with_suffix(".log").exists(), f"{path} is of no use"
    for path in (directory / "stages").iterdir():
        assert f"{int(path.name.split('-')[0]):09d}" in known, f"{path} was left behind"
