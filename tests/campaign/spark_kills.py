"""`python -m tests.campaign.spark_kills`: Spark's driver is killed in the commit window, again and again.

Two queries copy one topic, each into a topic of its own, one with the data source and one with
`headrace.spark.read_stream`. In every round the driver, its Java and its workers are killed once both queries have
reached a chosen moment of a chosen batch, and another driver goes on from the checkpoints:

    planned    Spark has written offsets/N, and tasks may run
    staged     all rows of the batch are in stages, nothing is published
    published  the broker has published the batch, Spark has not recorded it
    recorded   Spark has written commits/N

A moment is told by a file: one of Spark's checkpoint, or one that the sink writes and then waits to be killed. At the
end everything is read, and each message must have arrived once in each of the two topics.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.client import Client, connect
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess
from tests.spark.driver_process import Driver
from tests.spark.topics import numbers, publish, values_of

MOMENTS: Final = ("published", "staged", "planned", "recorded")
SOURCE: Final = "source"
STORES: Final = ("disk", "postgres")
MESSAGES_PER_ROUND: Final = 250
_PARTITIONS: Final = 4
_PATIENCE_SECONDS: Final = 600.0
_MASTER: Final = "local[2]"


@dataclass(frozen=True)
class Query:
    """A copy of the source: its topic is named after how the source is read."""

    url: str
    directory: Path
    reading: str

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoints" / self.reading

    def options(self, fault: str, pauses: Path, forever: str = "yes") -> dict[str, str]:
        """What the driver is asked for."""
        named = {"url": self.url, "source": SOURCE, "sink": self.reading, "reading": self.reading, "forever": forever}
        return {**named, "fault": fault, "directory": str(pauses), "checkpoint": str(self.checkpoint)}

    def last(self, kind: str) -> int:
        """The last batch that Spark has planned (`offsets`) or recorded (`commits`), or -1."""
        names = [file.name for file in (self.checkpoint / kind).glob("*") if file.name.isdecimal()]
        return max(map(int, names), default=-1)


@dataclass
class Outcome:
    """What a run did, and what arrived."""

    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        return not self.missing.total() and not self.doubled.total()

    def __str__(self) -> str:
        moments = ", ".join(f"{moment} {count}" for moment, count in sorted(self.moments.items()))
        return (
            f"{self.kills} kills ({moments}), {self.messages} messages into {len(self.missing)} topics: "
            f"{self.missing.total()} missing, {self.doubled.total()} doubled"
        )


@contextmanager
def server_on(store: str, directory: Path) -> Iterator[ServerProcess]:
    """A server on a new store."""
    postgres = PostgresServer() if store == "postgres" else None
    server = ServerProcess(f"file:{directory / 'store'}" if postgres is None else postgres.fresh_url())
    try:
        yield server
    finally:
        server.close()
        if postgres is not None:
            postgres.stop()


def play(url: str, directory: Path, kills: int, seed: int) -> Outcome:
    """Copy, and kill the driver so many times; then copy the rest, and compare."""
    chance, outcome = random.Random(seed), Outcome()
    queries = [Query(url, directory, reading) for reading in ("data-source", "read_stream")]
    with connect(url, timeout_seconds=120.0) as client, ThreadPoolExecutor(1) as starter:
        for topic in (SOURCE, *(query.reading for query in queries)):
            client.create_topic(topic, partitions=_PARTITIONS)
        # The next driver starts while the last one works.
        spare = starter.submit(Driver, _MASTER)
        for number in range(kills):
            driver, spare = spare.result(), starter.submit(Driver, _MASTER)
            publish(client, SOURCE, numbers(outcome.messages, outcome.messages + MESSAGES_PER_ROUND))
            outcome.messages += MESSAGES_PER_ROUND
            try:
                _run_until_killed(driver, queries, directory / f"round-{number}", chance, outcome)
            finally:
                driver.kill()
            outcome.kills += 1
            print(f"kill {outcome.kills} of {kills}", file=sys.stderr, flush=True)
        driver = spare.result()
        try:
            for query in queries:
                driver.begin(**query.options("none", directory, forever=""))
            for query in queries:
                driver.finish(query.reading)
        finally:
            driver.kill()
        _compare(client, queries, outcome)
    return outcome


def _run_until_killed(
    driver: Driver, queries: list[Query], pauses: Path, chance: random.Random, outcome: Outcome
) -> None:
    """Start both queries, and wait until each has reached its moment."""
    awaited: list[Path] = []
    for query in queries:
        (pauses / query.reading).mkdir(parents=True)
        moment = chance.choice(MOMENTS)
        outcome.moments[moment] += 1
        # The batch that is repeated, or the one after it; Spark plans a batch only once.
        batch = query.last("commits") + 1 + chance.randrange(2)
        batch = max(batch, query.last("offsets") + 1) if moment == "planned" else batch
        fault = f"{moment}-{batch}" if moment in ("staged", "published") else "none"
        driver.begin(**query.options(fault, pauses / query.reading))
        spark_file = query.checkpoint / ("offsets" if moment == "planned" else "commits") / str(batch)
        awaited.append(spark_file if fault == "none" else pauses / query.reading / f"reached-{fault}")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not all(file.exists() for file in awaited):
        driver.check_running()
        assert time.monotonic() < deadline, f"not reached: {[str(file) for file in awaited if not file.exists()]}"
        time.sleep(0.005)


def _compare(client: Client, queries: list[Query], outcome: Outcome) -> None:
    wanted = numbers(0, outcome.messages)
    for query in queries:
        arrived = Counter(values_of(client, query.reading))
        outcome.missing[query.reading] = sum(value not in arrived for value in wanted)
        outcome.doubled[query.reading] = arrived.total() - len(arrived)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="for each store")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="to repeat a run")
    given = parser.parse_args()
    is_good = True
    for store in given.store or STORES:
        with tempfile.TemporaryDirectory(prefix="headrace-kills-") as made, server_on(store, Path(made)) as server:
            outcome = play(server.url, Path(made), given.kills, given.seed)
        print(f"{store}, seed {given.seed}: {outcome}", flush=True)
        is_good &= outcome.is_good
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
