"""A process is killed while it publishes in every way it can, again and again, and nothing acknowledged is lost."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from headrace.broker import Broker
from tests.faults import load
from tests.faults.invariants import Message, Place, check_files, opened, read_all

# A server that has imported everything forks the processes, so that they are at work at once.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([load.__name__])
PATIENCE_SECONDS = 60.0
COMMITS_PER_LIFE = 15


class Witness:
    """What the parent heard of the processes it killed."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int], tuple[Place | None, ...]] = {}
        self.offsets: list[dict[int, int]] = [{}]

    def hear(self, pipe: Connection) -> None:
        """Take in all that was sent; what is cut off by the end of the process was not heard."""
        while True:
            try:
                report: load.Report = pipe.recv()
            except EOFError:
                return
            self.note(report)

    def note(self, report: load.Report) -> None:
        """Take in one report."""
        assert not isinstance(report, load.Failed), report.error
        if isinstance(report, load.Acknowledged):
            self.acknowledged[report.worker, report.number] = report.places
        else:
            self.offsets = [report.offsets] if report.is_stored else [*self.offsets, report.offsets]

    def begin(self) -> dict[str, int]:
        """The first commit of each worker that was not acknowledged."""
        after: dict[str, int] = {}
        for worker, number in self.acknowledged:
            after[worker] = max(after.get(worker, 0), number + 1)
        return after


def kill_once(directory: Path, witness: Witness, chance: random.Random) -> None:
    """Let a process work for a while and kill it; now and then it is killed before it has opened the store.

    However slow the machine is, one that has begun to work gets something done.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=load.run, args=(directory, sender, witness.begin()))
    process.start()
    sender.close()
    wanted = 0
    if chance.random() < 0.8:
        assert receiver.poll(PATIENCE_SECONDS)
        wanted = len(witness.acknowledged) + COMMITS_PER_LIFE
    deadline = time.monotonic() + chance.choice([0.03, 0.3, 1.2]) * chance.random()
    while (missing := len(witness.acknowledged) < wanted) or time.monotonic() < deadline:
        if receiver.poll(PATIENCE_SECONDS if missing else max(0.0, deadline - time.monotonic())):
            witness.note(receiver.recv())
        else:
            assert not missing, "it does nothing"
    process.kill()
    witness.hear(receiver)
    process.join()
    receiver.close()


def check(broker: Broker, witness: Witness) -> None:
    """Everything acknowledged is there once and in its place, and what is there is whole and in order."""
    topics = set(broker.list_topics())
    assert set(load.TOPICS) <= topics <= {*load.TOPICS, "passing"}
    found = {topic: read_all(broker, topic) for topic in load.TOPICS}
    for topic in load.TOPICS:
        check_whole(found[topic], is_trimmed=any(start for start, _ in broker.offsets(topic).values()))
        check_order(found[topic])
    check_acknowledged(broker, found, witness)
    offsets = broker.committed("plain", "readers")
    assert offsets in witness.offsets
    # If it was the one that was under way, it counts from now on.
    witness.offsets = [offsets]


def check_whole(found: Mapping[Place, Message], is_trimmed: bool) -> None:
    """Each row once, and of each commit all rows; retention may have taken the first ones."""
    rows: dict[tuple[bytes, bytes], set[int]] = defaultdict(set)
    expected = {}
    for message in found.values():
        worker, number, row, count = message.value.split(b".")
        assert int(row) not in rows[worker, number], f"{message.value!r} is there twice"
        rows[worker, number].add(int(row))
        expected[worker, number] = int(count)
    for commit, all_rows in expected.items():
        there = rows[commit]
        assert len(there) == all_rows or is_trimmed, f"of the {all_rows} rows of {commit!r} there are {there}"


def check_order(found: Mapping[Place, Message]) -> None:
    """In each partition the seqnos of a source, and the commits of a worker, rise."""
    last: dict[tuple[object, ...], int] = {}
    for (partition, _), message in sorted(found.items()):
        worker, number, row, _ = message.value.split(b".")
        orders: dict[tuple[object, ...], int] = {(partition, worker, message.key): int(number) * 1000 + int(row)}
        if message.seqno is not None:
            orders[partition, message.producer_id, message.message_group_id, "source"] = message.seqno
        for name, order in orders.items():
            assert last.get(name, -1) < order
            last[name] = order


def check_acknowledged(broker: Broker, found: Mapping[str, Mapping[Place, Message]], witness: Witness) -> None:
    values = {topic: {message.value for message in rows.values()} for topic, rows in found.items()}
    for (worker, number), places in witness.acknowledged.items():
        topic = worker.split("-")[0] if worker.split("-")[0] in load.TOPICS else "plain"
        starts = {partition: start for partition, (start, _) in broker.offsets(topic).items()}
        for value, place in zip(load.values_of(worker, number, len(places)), places, strict=True):
            if place is None:
                assert value in values[topic] or any(starts.values()), f"{value!r} was taken for a duplicate"
            elif place[1] >= starts[place[0]]:
                assert place in found[topic], f"{value!r} was acknowledged at {place} and is not there"
                assert found[topic][place].value == value


def kill_many(directory: Path, kills: int, seed: int) -> int:
    """Kill that often and check each time; how many commits were acknowledged."""
    chance = random.Random(seed)
    witness = Witness()
    for _ in range(kills):
        kill_once(directory, witness, chance)
        with opened(directory, load.SMALL) as broker:
            for topic, settings in load.TOPICS.items():
                broker.create_topic(topic, load.PARTITIONS, **settings)
            broker.register_group("plain", "readers")
            check(broker, witness)
            check_files(directory, broker)
            shutil.copytree(directory, directory.with_name("unclosed"))
        if chance.random() < 0.5:
            # The next process finds a store that was not closed.
            shutil.rmtree(directory)
            directory.with_name("unclosed").rename(directory)
        else:
            shutil.rmtree(directory.with_name("unclosed"))
    return len(witness.acknowledged)


def test_killed_process(place: Path) -> None:
    assert kill_many(place / "store", kills=12, seed=1) > 100


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 120))
def test_killed_process_many_times(tmp_path: Path, seed: int) -> None:
    assert kill_many(tmp_path / "store", kills=10, seed=seed) > 100
