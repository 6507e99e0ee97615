"""`python -m tests.campaign.spark_kills`: Spark's driver is killed in the commit window, again and again.

Four queries copy one topic. One reads with the data source and one with `headrace.spark.read_stream`, each into a topic
of its own. One writes to three topics, where chance routes each row anew whenever it is read. A pipeline writes to a
topic, a directory of Parquet files and a Delta table with the newest row of each key. In every round the driver, its
Java and its workers are killed once all queries have reached a chosen moment of a chosen batch, and another driver goes
on from the checkpoints:

    planned    Spark has written offsets/N, and tasks may run
    staged     all rows of the batch are in stages, nothing is published
    published  the batch is published, Spark has not recorded it
    written    only of a pipeline: one of its sinks has noted that it published the batch, Spark has not recorded it
    recorded   Spark has written commits/N

A moment is told by a file: one of Spark's checkpoint, or one that the sink writes and then waits to be killed. At the
end everything is read, and each message must have arrived once in each topic and in the Parquet files. The Delta table
must have the newest message of each key, and its log each batch once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from headrace.client import Client, connect
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess
from tests.spark import faulty_pipeline
from tests.spark.driver_process import Driver
from tests.spark.topics import numbers, publish, values_of

MOMENTS: Final = ("published", "staged", "planned", "recorded")
SOURCE: Final = "source"
PIPELINE: Final = "pipeline"
ROUTED: Final = "routed"
READINGS: Final = ("data-source", "read_stream", ROUTED, PIPELINE)
STORES: Final = ("disk", "postgres")
MESSAGES_PER_ROUND: Final = 250
_PARTITIONS: Final = 4
_KEYS: Final = 40
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

    @property
    def sinks(self) -> list[str]:
        """The topics that it writes to."""
        return [f"{self.reading}-{number}" for number in range(3)] if self.reading == ROUTED else [self.reading]

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    def options(self, fault: str, pauses: Path, forever: str = "yes") -> dict[str, str]:
        """What the driver is asked for."""
        named = {"url": self.url, "source": SOURCE, "sink": " ".join(self.sinks), "forever": forever}
        named["reading"] = self.reading
        places = {"directory": str(pauses), "checkpoint": str(self.checkpoint), "tables": str(self.tables)}
        return {**named, **places, "fault": fault}

    def spark_file(self, kind: str, batch: int) -> Path:
        """What Spark writes when it has planned (`offsets`) or recorded (`commits`) a batch."""
        of_spark = self.checkpoint / "spark" if self.reading == PIPELINE else self.checkpoint
        return of_spark / kind / str(batch)

    def last(self, kind: str) -> int:
        """The last batch that Spark has planned or recorded, or -1."""
        names = [file.name for file in self.spark_file(kind, 0).parent.glob("*") if file.name.isdecimal()]
        return max(map(int, names), default=-1)

    def aim(self, chance: random.Random) -> tuple[str, int, str]:
        """A moment, a batch, and the fault that stops the query there; none if a file of Spark's tells the moment."""
        is_pipeline = self.reading == PIPELINE
        moment = chance.choice((*MOMENTS, "written") if is_pipeline else MOMENTS)
        # The batch that is repeated, or the one after it; Spark plans a batch only once.
        batch = self.last("commits") + 1 + chance.randrange(2)
        if moment == "planned":
            return moment, max(batch, self.last("offsets") + 1), "none"
        if moment == "recorded":
            return moment, batch, "none"
        if is_pipeline:
            return moment, batch, f"{moment} {batch} {chance.choice(faulty_pipeline.FIELDS)}"
        return moment, batch, f"{moment}-{batch}"


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
            f"{self.kills} kills ({moments}), {self.messages} messages into {len(self.missing)} places: "
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


def play(url: str, directory: Path, kills: int, seed: int, readings: Sequence[str] = READINGS) -> Outcome:
    """Copy, and kill the driver so many times; then copy the rest, and compare."""
    chance, outcome = random.Random(seed), Outcome()
    queries = [Query(url, directory, reading) for reading in readings]
    with connect(url, timeout_seconds=120.0) as client, ThreadPoolExecutor(1) as starter:
        for topic in (SOURCE, *(sink for query in queries for sink in query.sinks)):
            client.create_topic(topic, partitions=_PARTITIONS)
        # The next driver starts while the last one works.
        spare = starter.submit(Driver, _MASTER)
        for number in range(kills):
            driver, spare = spare.result(), starter.submit(Driver, _MASTER)
            values = numbers(outcome.messages, outcome.messages + MESSAGES_PER_ROUND)
            publish(client, SOURCE, values, [_key(value) for value in values])
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
                driver.finish(" ".join(query.sinks))
        finally:
            driver.kill()
        _compare(client, queries, outcome)
    return outcome


def _run_until_killed(
    driver: Driver, queries: list[Query], pauses: Path, chance: random.Random, outcome: Outcome
) -> None:
    """Start all queries, and wait until each has reached its moment."""
    awaited: list[Path] = []
    for query in queries:
        (pauses / query.reading).mkdir(parents=True)
        moment, batch, fault = query.aim(chance)
        outcome.moments[moment] += 1
        driver.begin(**query.options(fault, pauses / query.reading))
        spark_file = query.spark_file("offsets" if moment == "planned" else "commits", batch)
        awaited.append(spark_file if fault == "none" else pauses / query.reading / f"reached-{fault}")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not all(file.exists() for file in awaited):
        driver.check_running()
        assert time.monotonic() < deadline, f"not reached: {[str(file) for file in awaited if not file.exists()]}"
        time.sleep(0.005)


def _key(value: bytes) -> bytes:
    return b"%d" % (int(value) % _KEYS)


def _compare(client: Client, queries: list[Query], outcome: Outcome) -> None:
    wanted = numbers(0, outcome.messages)
    found = {query.reading: [value for sink in query.sinks for value in values_of(client, sink)] for query in queries}
    tables = queries[0].tables
    if PIPELINE in found:
        found["parquet"] = pq.read_table(tables / "landed")["value"].to_pylist()
        _compare_newest(tables / "newest", wanted, outcome)
    for place, values in found.items():
        arrived = Counter(values)
        outcome.missing[place] = sum(value not in arrived for value in wanted)
        outcome.doubled[place] = arrived.total() - len(arrived)


def _compare_newest(table: Path, wanted: list[bytes], outcome: Outcome) -> None:
    """Missing are keys whose newest message is not in the table, doubled rows of one key and batches in the log."""
    from deltalake import DeltaTable

    newest = {_key(value).decode(): int(value) for value in wanted}
    rows = DeltaTable(str(table)).to_pyarrow_table().select(["key", "id"]).to_pylist()
    arrived = {row["key"]: row["id"] for row in rows}
    logs = [file.read_text() for file in (table / "_delta_log").glob("*.json")]
    entries = [json.loads(line) for log in logs for line in log.splitlines()]
    batches = [entry["txn"]["version"] for entry in entries if "txn" in entry]
    outcome.missing["delta"] = sum(arrived.get(key) != value for key, value in newest.items())
    outcome.doubled["delta"] = len(rows) - len(arrived) + len(batches) - len(set(batches))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="for each store")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one")
    parser.add_argument("--query", choices=READINGS, action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="to repeat a run")
    given = parser.parse_args()
    is_good = True
    for store in given.store or STORES:
        with tempfile.TemporaryDirectory(prefix="headrace-kills-") as made, server_on(store, Path(made)) as server:
            outcome = play(server.url, Path(made), given.kills, given.seed, given.query or READINGS)
        print(f"{store}, seed {given.seed}: {outcome}", flush=True)
        is_good &= outcome.is_good
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
