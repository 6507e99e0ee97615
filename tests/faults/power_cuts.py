"""The power is cut at every file-system call of a scenario, also where no publish waits for the device.

After a power cut a store with `durability=os` may have lost what it acknowledged. What it still promises:
- it opens, and what can be read was sent, is there once, and stands where its receipt says;
- committed offsets are those that were acknowledged, since the catalog is always synced;
- no partition ends before an offset that a group has committed, and no group passes over a message that is published
  after that, in this life or in the next.

The catalog is SQLite on the real disk. Two more worlds have it and the log of different times, as a copy of a running
store may: the newest catalog with a log of which everything unsynced is lost, which is the power cut above, and the
catalog of the beginning with the whole log. A store of the latter kind may be refused, with a reason; if it opens,
every acknowledged message is there, and groups have at most gone back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from headrace.broker import Broker
from headrace.core.errors import Damaged, OffsetOutOfRange, StorageError
from headrace.storage.disk.engine import DiskStore
from tests.broker.messages import read_as_member
from tests.faults.crashes import Death, Scenario, Template, is_new, lay_out, prepare, run, seeds
from tests.faults.filesystems import PowerCut, ProcessDeath, ScatteredPowerCut, World
from tests.faults.invariants import Ledger, Message, Place, batch_of

GROUP = "readers"


def cut_everywhere(scenario: Scenario, place: Path) -> int:
    """Cut the power at every call of a scenario and verify each time; the number of calls."""
    template = prepare(scenario, place / "template")
    seen: set[object] = set()
    for crash_at in itertools.count(1):
        death = run(scenario, template, place / "home", crash_at)
        is_another, seen = death.state not in seen, seen | {death.state}
        for name, world in _worlds(death, seeds(scenario, crash_at)) if is_another or not death.crashed else ():
            try:
                lay_out(world, death, place / "world", death.home / "store")
                if is_new(seen, place / "world", death.ledger):
                    verify_after_cut(place / "world" / "store", death)
            except BaseException as error:
                error.add_note(f"world: {name}, after {death.files.calls} calls")
                raise
        if not death.crashed:
            return crash_at - 1
    raise AssertionError("a scenario has an end")


def age_catalog_everywhere(scenario: Scenario, place: Path) -> int:
    """At every call of a scenario put the catalog of its beginning beside the log; how often that could be opened."""
    template = prepare(scenario, place / "template")
    seen: set[object] = set()
    opened = 0
    for crash_at in itertools.count(1):
        death = run(scenario, template, place / "home", crash_at)
        lay_out(ProcessDeath(), death, place / "world", template.directory)
        if is_new(seen, place / "world", death.ledger):
            opened += verify_older_catalog(place / "world" / "store", death, template)
        if not death.crashed:
            return opened
    raise AssertionError("a scenario has an end")


def _worlds(death: Death, seeds: range) -> Iterator[tuple[str, World]]:
    yield "power cut", PowerCut()
    if death.disk.has_unsynced:
        for seed in seeds:
            yield f"scattered power cut, seed {seed}", ScatteredPowerCut(seed)


def read_available(broker: Broker, topic: str) -> dict[Place, bytes]:
    """Everything in a topic that can be read, past gaps and damage."""
    found: dict[Place, bytes] = {}
    for partition, (start, end) in broker.offsets(topic).items():
        offset = start
        while offset < end:
            try:
                rows = broker.fetch(topic, partition, offset, max_messages=1000).to_pylist()
            except OffsetOutOfRange as late:
                assert late.start > offset, "a gap says where to go on"
                offset = late.start
                continue
            except Damaged:
                offset += 1
                continue
            for row in rows:
                assert (row["partition"], row["offset"]) == (partition, offset)
                found[partition, offset] = row["value"]
                offset += 1
    return found


def verify_after_cut(directory: Path, death: Death) -> None:
    """What a store without syncs promises after a power cut; twice, so that it holds in the next life too."""
    ledger = death.ledger
    for life in ("first", "second"):
        with Broker(DiskStore(directory, death.options), clock=death.clock) as broker:
            for topic in set(ledger.topics) - set(ledger.doubtful):
                check_topic(broker, ledger, topic)
                check_nobody_skips(broker, topic, life)


def check_topic(broker: Broker, ledger: Ledger, topic: str) -> None:
    attempts = [attempt for attempt in ledger.attempts if attempt.topic == topic]
    sent = {message.value for attempt in attempts for message in attempt.messages}
    places = {
        message.value: place
        for attempt in attempts
        for message, place in zip(attempt.messages, attempt.places or (), strict=False)
    }
    found = read_available(broker, topic)
    older = {place: value for place, value in found.items() if not value.startswith(b"life-")}
    assert len(set(older.values())) == len(older), "a message is there twice"
    for place, value in older.items():
        assert value in sent
        assert places.get(value) in (None, place), "a message is not where its receipt says"
    ends = {partition: end for partition, (_, end) in broker.offsets(topic).items()}
    for (other, group), candidates in ledger.committed.items():
        if other == topic:
            committed = broker.committed(topic, group)
            assert all(offset <= ends[partition] for partition, offset in committed.items())
            assert life_of(committed, candidates)


def life_of(committed: dict[int, int], candidates: list[dict[int, int]]) -> bool:
    """Whether offsets are at least those that were acknowledged: what is read here is committed too."""
    return any(
        all(committed.get(partition, 0) >= offset for partition, offset in known.items()) for known in candidates
    )


def check_nobody_skips(broker: Broker, topic: str, life: str) -> None:
    """Every message that is published now is given to the group, whatever it has committed before."""
    broker.register_group(topic, GROUP)
    before = broker.committed(topic, GROUP)
    partitions = range(len(broker.offsets(topic)))
    new = {partition: f"life-{life}-{partition}".encode() for partition in partitions}
    messages = [Message(value, partition=partition) for partition, value in new.items()]
    receipts = broker.publish(topic, batch_of(messages))
    offsets = dict(zip(receipts.partition.tolist(), receipts.offset.tolist(), strict=True))
    assert all(offsets[partition] >= before.get(partition, 0) for partition in partitions)
    got: list[bytes] = []
    try:
        got += read_as_member(broker, topic, GROUP)
    except Damaged:
        # Told, not skipped: the group goes on behind it by itself.
        broker.seek(topic, GROUP, offsets)
        return
    assert set(new.values()) <= set(got), f"{topic}: {set(new.values()) - set(got)} was passed over"


def verify_older_catalog(directory: Path, death: Death, template: Template) -> bool:
    """Whether a store with the catalog of an earlier time opens; if so, nothing that was acknowledged is lost."""
    try:
        store = DiskStore(directory, death.options)
    except StorageError as error:
        assert "catalog" in str(error)
        return False
    with Broker(store, clock=death.clock) as broker:
        failing = broker.failing_topics()
        assert all("catalog" in reason for reason in failing.values())
        for topic in set(template.ledger.topics) - set(failing) - set(death.ledger.doubtful):
            if topic not in death.ledger.topics:
                continue
            found = read_available(broker, topic)
            starts = {partition: start for partition, (start, _) in broker.offsets(topic).items()}
            for attempt in death.ledger.attempts:
                for message, place in zip(attempt.messages, attempt.places or (), strict=False):
                    if attempt.topic == topic and place is not None and place[1] >= starts[place[0]]:
                        assert found.get(place) == message.value
            if GROUP in broker.list_groups(topic):
                check_nobody_skips(broker, topic, "older")
        return not failing
