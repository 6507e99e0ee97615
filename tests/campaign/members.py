"""`python -m tests.campaign.members`: members join and leave a group at random while messages are written.

    no exception        in the plain loop of any member: poll and commit, auto-commit, message by message, asyncio
    no message missing  every message is given to a member
    few twice           less than 0.1 % is given twice, since nobody crashes
    always an owner     the server names an owner of every partition in every look

Also printed: how long a partition was read by nobody when it changed hands, from the moment its owner let it go (or
left) until the next one was assigned it. It depends on the machine, so it decides nothing here.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import headrace
from headrace import aio
from headrace.client import Client, Consumer
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess

TOPIC: Final = "orders"
GROUP: Final = "billing"
REDELIVERED_MAX: Final = 0.001
_LOOK_SECONDS: Final = 0.05
_DRAIN_SECONDS: Final = 120.0


@dataclass
class Record:
    """What members were given, and what went wrong. Thread-safe."""

    partitions: int
    given: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    let_go_at: dict[int, float] = field(default_factory=dict)
    gaps_seconds: list[float] = field(default_factory=list)
    unowned_seconds: float = 0.0
    joins: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, batch: pa.RecordBatch) -> None:
        """A member was given these messages."""
        partitions, offsets = np.asarray(batch.column("partition")), np.asarray(batch.column("offset"))
        for partition in np.unique(partitions).tolist():
            own = offsets[partitions == partition]
            self.give_run(partition, int(own[0]), int(own[-1]) + 1)

    def give_run(self, partition: int, start: int, end: int) -> None:
        """A member was given these offsets of a partition."""
        with self.lock:
            self.given.setdefault(partition, []).append((start, end))

    def let_go(self, partitions: list[int]) -> None:
        """A member does not read these any more."""
        with self.lock:
            self.let_go_at |= dict.fromkeys(partitions, time.monotonic())

    def assign(self, partitions: list[int]) -> None:
        """A member reads these from now on."""
        with self.lock:
            for partition in partitions:
                if (since := self.let_go_at.pop(partition, None)) is not None:
                    self.gaps_seconds.append(time.monotonic() - since)

    def fail(self, what: str, error: BaseException) -> None:
        """Something raised that must not."""
        with self.lock:
            self.failures.append(f"{what}: {type(error).__name__}: {error}")

    def tally(self, ends: dict[int, tuple[int, int]]) -> tuple[int, int, int]:
        """How many messages were given, given twice, and given to nobody."""
        total = twice = missing = 0
        for partition, (_, end) in ends.items():
            counts = np.zeros(end + 1, np.int64)
            for start, stop in self.given.get(partition, []):
                counts[start] += 1
                counts[stop] -= 1
            times = np.cumsum(counts)[:end]
            total += int(times.sum())
            twice += int((times[times > 1] - 1).sum())
            missing += int((times == 0).sum())
        return total, twice, missing


class Member:
    """A member in a thread, from joining to leaving."""

    def __init__(self, url: str, record: Record, style: str) -> None:
        self._url = url
        self._record = record
        self._style = style
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._top, name=f"member-{style}")
        self._thread.start()

    def leave(self) -> None:
        """End the loop; `join` waits for it."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has left."""
        self._thread.join()

    def _top(self) -> None:
        try:
            STYLES[self._style](self)
        except BaseException as error:
            self._record.fail(self._style, error)

    @contextmanager
    def _consumer(self, auto_commit: bool = False) -> Iterator[Consumer]:
        record, made = self._record, list[Consumer]()

        def revoked(partitions: list[int]) -> None:
            for consumer in made:
                consumer.commit()
            record.let_go(partitions)

        with headrace.connect(self._url) as client:
            consumer = client.consumer(
                TOPIC, GROUP, auto_commit=auto_commit, on_assigned=record.assign, on_revoked=revoked
            )
            made.append(consumer)
            try:
                yield consumer
            finally:
                held = consumer.assignment
                consumer.close()
                record.let_go(held)

    def poll(self) -> None:
        """The loop of the README."""
        with self._consumer() as consumer:
            while not self._stop.is_set():
                batch = consumer.poll(max_messages=500, timeout=0.5)
                if batch.num_rows:
                    self._record.give(batch)
                consumer.commit()

    def auto(self) -> None:
        """As above, with auto-commit."""
        with self._consumer(auto_commit=True) as consumer:
            while not self._stop.is_set():
                batch = consumer.poll(max_messages=500, timeout=0.5)
                if batch.num_rows:
                    self._record.give(batch)

    def messages(self) -> None:
        """Message by message; a commit now and then, and when partitions are revoked."""
        with self._consumer() as consumer:
            while not self._stop.is_set():
                for count, message in enumerate(consumer.messages(idle_seconds=0.5)):
                    self._record.give_run(message.partition, message.offset, message.offset + 1)
                    if count % 50 == 0:
                        consumer.commit()
                    if self._stop.is_set():
                        break
                consumer.commit()

    def asyncio(self) -> None:
        """The loop of the README for asyncio."""
        asyncio.run(self._asyncio())

    async def _asyncio(self) -> None:
        record = self._record
        async with (
            aio.connect(self._url) as client,
            await client.consumer(TOPIC, GROUP, on_assigned=record.assign, on_revoked=record.let_go) as consumer,
        ):
            while not self._stop.is_set():
                batch = await consumer.poll(max_messages=500, timeout=0.5)
                if batch.num_rows:
                    record.give(batch)
                await consumer.commit()
            record.let_go(consumer.assignment)


STYLES: Final[dict[str, Callable[[Member], None]]] = {
    "poll": Member.poll,
    "auto": Member.auto,
    "messages": Member.messages,
    "asyncio": Member.asyncio,
}


def write(url: str, stop: threading.Event, rate: int, record: Record) -> None:
    """Write messages, ten batches a second."""
    try:
        with headrace.connect(url) as client, client.producer(TOPIC) as producer:
            values = pa.array([b"x" * 100] * (rate // 10))
            while not stop.wait(0.1):
                producer.send_batch(pa.record_batch({"value": values}))
    except BaseException as error:
        record.fail("the producer", error)


def watch(client: Client, stop: threading.Event, record: Record) -> None:
    """Look for partitions that the server names no owner of."""
    since: dict[int, float] = {}
    try:
        while not stop.wait(_LOOK_SECONDS):
            looked_at = time.monotonic()
            progress = client.describe_group(TOPIC, GROUP).progress
            unowned = {partition for partition, at in progress.items() if at.consumer is None}
            since = {each: since.get(each, looked_at) for each in unowned}
            longest = max((time.monotonic() - began for began in since.values()), default=0.0)
            record.unowned_seconds = max(record.unowned_seconds, longest)
    except BaseException as error:
        record.fail("the watcher", error)


def play(
    urls: list[str], seconds: float, seed: int, members_range: tuple[int, int], partitions: int, rate: int
) -> Record:
    """Let members come and go for a time, then let those who are left read everything."""
    chance, record, ended = random.Random(seed), Record(partitions), threading.Event()
    least, most = members_range
    with headrace.connect(urls) as client:
        client.create_topic(TOPIC, partitions=partitions)
        styles = list(STYLES)
        members: list[Member] = []

        def join() -> None:
            members.append(Member(chance.choice(urls), record, styles[record.joins % len(styles)]))
            record.joins += 1

        for _ in range(least):
            join()
        while not client.list_groups(TOPIC) or len(client.describe_group(TOPIC, GROUP).members) < least:
            time.sleep(_LOOK_SECONDS)
        others = [
            threading.Thread(target=write, args=(urls[0], ended, rate, record)),
            threading.Thread(target=watch, args=(client, ended, record)),
        ]
        for other in others:
            other.start()
        ends_at, left = time.monotonic() + seconds, list[Member]()
        while time.monotonic() < ends_at and not record.failures:
            time.sleep(chance.uniform(0.2, 3.0))
            if len(members) < most and (len(members) <= least or chance.random() < 0.5):
                # Often several at once, as in a deploy.
                for _ in range(min(chance.choice([1, 1, 3]), most - len(members))):
                    join()
            elif len(members) > least:
                left.append(members.pop(chance.randrange(len(members))))
                left[-1].leave()
        ended.set()
        for other in others:
            other.join()
        drained_by = time.monotonic() + _DRAIN_SECONDS
        while client.describe_group(TOPIC, GROUP).lag_messages and time.monotonic() < drained_by:
            time.sleep(_LOOK_SECONDS)
        for member in members:
            member.leave()
        for member in [*members, *left]:
            member.join()
        ends = client.offsets(TOPIC)
    total, twice, missing = record.tally(ends)
    gaps = sorted(record.gaps_seconds) or [0.0]
    median, late = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
    print(
        f"{seconds:g} s, seed {seed}: {record.joins} members joined, {total:,} messages in {partitions} partitions\n"
        f"  exceptions: {len(record.failures)}, given to nobody: {missing}, "
        f"given twice: {twice} ({twice / max(1, total):.4%})\n"
        f"  longest without an owner: {record.unowned_seconds:.2f} s; {len(gaps)} hand-overs, "
        f"read by nobody for {median:.2f} s (median), {late:.2f} s (99 %), {gaps[-1]:.2f} s (most)"
    )
    for failure in record.failures:
        print(f"  {failure}")
    if missing:
        record.failures.append(f"{missing} messages were given to nobody")
    if twice > total * REDELIVERED_MAX:
        record.failures.append(f"{twice} of {total} messages were given twice")
    if record.unowned_seconds:
        record.failures.append(f"a partition had no owner for {record.unowned_seconds:.2f} s")
    return record


@contextmanager
def servers(store: str) -> Iterator[list[str]]:
    """Addresses of a server on a disk, or of two on one PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="members-") as directory:
        if store == "disk":
            started = [ServerProcess(f"file:{Path(directory) / 'store'}")]
            database = None
        else:
            database = PostgresServer()
            url = database.fresh_url()
            started = [ServerProcess(url), ServerProcess(url)]
        try:
            yield [server.url for server in started]
        finally:
            for server in started:
                server.close()
            if database is not None:
                database.stop()


def main() -> int:
    """Run it; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.members", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long, for each store")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of another run")
    parser.add_argument("--store", choices=["disk", "postgres", "both"], default="both")
    parser.add_argument("--members", type=int, nargs=2, default=[3, 10], metavar=("LEAST", "MOST"))
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    is_broken = False
    for store in ["disk", "postgres"] if arguments.store == "both" else [arguments.store]:
        with servers(store) as urls:
            print(f"{store}:", flush=True)
            record = play(urls, arguments.seconds, seed, tuple(arguments.members), arguments.partitions, arguments.rate)
            is_broken |= bool(record.failures)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
