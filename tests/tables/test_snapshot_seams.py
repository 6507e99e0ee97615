"""Snapshots at every seam of every operation: none lacks a message that the topic still has, none has one twice.

Operations run one after another, seeded, on tiny segments and files. Wherever one of them calls the log or the manifest
a snapshot is taken, before and after the call. Its rows are compared with what readers could get before and after the
operation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.settings import ArchiveSettings
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.limits import MICROSECONDS
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.open import open_store
from headrace.tables.snapshot import table_snapshot
from tests.broker.clock import SettableClock
from tests.tables.test_snapshot import rows_of

Rows = set[tuple[int, int]]
STEPS = 100
WEIGHTS = {"publish": 30, "archive": 15, "retain": 20, "trim": 2, "delete": 3, "switch": 12, "settle": 6, "sweep": 3}


class Seams:
    """An archived topic whose operations take snapshots on their way."""

    def __init__(self, url: str, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = SettableClock()
        archive = ArchiveSettings(
            url=str(directory), stray_seconds=1000, file_bytes=self.chance.choice([1, 500, 1 << 30])
        )
        self.broker = Broker(open_store(url), clock=self.clock, archive=archive)
        self.broker.create_topic("orders", partitions=2, archive="on", archive_after_seconds=0)
        found = self.broker.topics.find("orders").topic.log
        assert isinstance(found, TieredLog)
        self.log = found
        self.snapshots: list[tuple[str, ArchiveSnapshot]] = []
        for owner, names in (
            (found.inner, ["drop_outlived"]),
            (found._manifest, ["append", "replace", "expire"]),
            (found, ["reload", "change_manifest", "delete_before"]),
        ):
            for name in names:
                self._watch(owner, name)

    def _watch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def called(*given: Any) -> Any:
            self.snapshots.append((f"before {name}", self.broker.archive("orders")))
            result = original(*given)
            self.snapshots.append((f"after {name}", self.broker.archive("orders")))
            return result

        setattr(owner, name, called)

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            count = self.chance.randint(1, 4)
            columns = {
                "value": pa.array([b"v"] * count, pa.binary()),
                "partition": pa.array([self.chance.randrange(2) for _ in range(count)], pa.int32()),
            }
            self.broker.publish("orders", pa.record_batch(columns))
            self.clock.step(self.chance.choice([0, 1, 5]))

    def archive(self) -> None:
        self.clock.step(1)
        self.broker.archiving.archive()

    def retain(self) -> None:
        self.clock.step(self.chance.choice([0, 3, 30]))
        self.broker.topics.find("orders").groups.drop_outlived(self.clock.now_us())

    def trim(self) -> None:
        self.broker.trim_topic("orders", self.clock.now_us() - self.chance.choice([0, 5, 20]) * MICROSECONDS)

    def delete(self) -> None:
        offsets = self.broker.offsets("orders").items()
        self.broker.delete_messages("orders", {number: self.chance.randint(*bounds) for number, bounds in offsets})

    def switch(self) -> None:
        self.broker.alter_topic("orders", archive=self.chance.choice(["on", "off"]))

    def settle(self) -> None:
        self.broker.alter_topic(
            "orders",
            retention_seconds=self.chance.choice([None, 5, 20]),
            local_retention_seconds=self.chance.choice([None, 1, 10]),
            archive_retention_seconds=self.chance.choice([None, None, None, 15]),
        )

    def sweep(self) -> None:
        self.clock.step(self.chance.choice([0, 2000]))
        self.broker.archiving.sweep()

    def readable(self) -> Rows:
        """What readers can get."""
        offsets = self.log.offsets()
        rows = {(number, at) for number, bounds in offsets.by_partition().items() for at in range(*bounds)}
        return rows - {(gap.partition, at) for gap in offsets.gaps for at in range(gap.first, gap.end)}

    def live(self, steps: int) -> None:
        """Operations, and the judgement of all snapshots on their way."""
        for _ in range(steps):
            name = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            before = self.readable()
            getattr(self, name)()
            after, known = self.readable(), self.snapshots
            self.snapshots = []
            for where, snapshot in known:
                check(snapshot, before, after, f"{name}: {where}")
            check(self.broker.archive("orders"), after, after, name)
            self.snapshots.clear()


def check(snapshot: ArchiveSnapshot, before: Rows, after: Rows, where: str) -> None:
    """A snapshot has what readers could get before and after, and nothing that they could get at neither time."""
    counts = rows_of(table_snapshot(snapshot))
    assert max(counts.values(), default=1) == 1, where
    stayed = {(number, at) for number, at in after if at < snapshot.offsets[number][1]}
    assert stayed <= counts.keys() <= before | after, where


@contextmanager
def seams(engine: str, directory: Path, seed: int) -> Iterator[Seams]:
    url = "memory:" if engine == "memory" else f"file:{directory / 'store'}?segment_frames=2&durability=os"
    opened = Seams(url, directory / "archive", seed)
    try:
        yield opened
    finally:
        opened.broker.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("engine", ["memory", "disk"])
def test_a_snapshot_at_any_seam_is_whole(engine: str, seed: int, tmp_path: Path) -> None:
    with seams(engine, tmp_path, seed) as opened:
        opened.live(STEPS)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_lives(seed: int, tmp_path: Path) -> None:
    with seams("disk" if seed % 2 else "memory", tmp_path, seed) as opened:
        opened.live(3 * STEPS)
