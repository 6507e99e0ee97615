"""A seeded life of an archived topic against the memory engine without an archive: whatever is published, archived,
merged, dropped, swept, expired or interrupted, readers see the same messages, and the files hold each of them once.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.storage.archive.files import DirectoryFiles
from tests.faults.filesystems import EVERY_CHANGE, Crash, FailingFileSystem
from tests.postgres_server import PostgresServer
from tests.storage.archive.builders import ArchivedTopic, doctor, no_rest
from tests.storage.builders import (
    EVERYTHING,
    NOW_US,
    DiskPlace,
    MemoryPlace,
    Place,
    PostgresPlace,
    Topic,
    batch_of,
    read_all,
)

STEPS = 40
SECOND_US = 1_000_000


class Life:
    """An archived topic, and one of the memory engine that gets the same messages and forgets nothing."""

    def __init__(self, place: Place, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = FailingFileSystem()
        self.place = place
        self.model = Topic(MemoryPlace(), partitions=3)
        self.topic = ArchivedTopic(place, directory, partitions=3, files=DirectoryFiles(directory, self.disk))
        self.now_us = NOW_US
        self.written = 0

    def publish(self) -> None:
        rows = []
        for _ in range(self.chance.randint(1, 12)):
            self.written += 1
            row = {"value": b"%d" % self.written, "partition": self.chance.randrange(3)}
            rows.append(row | ({"key": b"k"} if self.chance.random() < 0.5 else {}))
        self.now_us += self.chance.choice([0, 1, SECOND_US])
        for topic in (self.topic, self.model):
            topic.publish(batch_of(rows), now_us=self.now_us)

    def archive(self) -> None:
        self.topic.archive(file_bytes=self.chance.choice([1, 2000, EVERYTHING]), now_us=self.now_us)

    def merge(self) -> None:
        self.topic.archiver().merge(self.topic.record, self.topic.tiered(), self.topic.epoch(), lambda: self.now_us)

    def drop(self) -> None:
        self.topic.drop_local(self.now_us)

    def delete(self) -> None:
        """Messages below some offset, on both; maintenance frees what it can."""
        offsets = self.model.log.offsets()
        partition = self.chance.randrange(3)
        before = self.chance.randint(int(offsets.start[partition]), int(offsets.end[partition]))
        for topic in (self.topic, self.model):
            topic.delete_before({partition: before})
            topic.log.drop_outlived(topic.record.settings, None, self.now_us)

    def sweep(self) -> None:
        self.topic.archiver().sweep(self.topic.record, self.now_us + 1)

    def reopen(self) -> None:
        self.place.reopen(self.now_us)

    def fail(self) -> None:
        """Anything of the above while the disk of the archive fails at some call."""
        step = self.chance.choice([self.archive, self.merge, self.sweep])
        calls = EVERY_CHANGE | {"map"}
        with self.disk.failing(5, calls, skip=self.chance.randrange(12), times=1), suppress(OSError):
            step()

    def crash(self) -> None:
        """The process dies between two row groups, or before it adds its file to the manifest."""
        manifest = self.place.store.catalog.manifest
        lost = self.chance.choice(["append", "replace", "rest"])

        def die(*_: object) -> None:
            raise Crash

        archiver = self.topic.archiver(rest=die if lost == "rest" else no_rest)
        original = getattr(manifest, lost, None)
        if original is not None:
            setattr(manifest, lost, die)
        try:
            archiver.archive(self.topic.record, self.topic.tiered(), self.topic.epoch(), self.now_us)
            archiver.merge(self.topic.record, self.topic.tiered(), self.topic.epoch(), lambda: self.now_us)
        except Crash:
            pass
        finally:
            if original is not None:
                setattr(manifest, lost, original)
        self.reopen()

    def check(self) -> None:
        """A few reads of every kind."""
        log, model = self.topic.tiered(), self.model.log
        offsets = log.offsets()
        assert offsets.by_partition() == model.offsets().by_partition() and not offsets.gaps
        for partition in range(3):
            start, end = int(offsets.start[partition]), int(offsets.end[partition])
            position = self.chance.randint(start, end)
            count = self.chance.randint(1, 40)
            got = log.read(partition, position, count, EVERYTHING).to_pylist()
            assert got == model.read(partition, position, len(got) or count, EVERYTHING).to_pylist()
            assert got or position == end
            assert log.time_of(partition, position) == model.time_of(partition, position)
            time_us = self.chance.randint(NOW_US - 1, self.now_us + 1)
            assert log.first_at(partition, time_us) == model.first_at(partition, time_us)

    def check_table(self) -> None:
        """The files hold what was archived, each message once."""
        table = self.topic.table()
        starts = self.model.log.offsets().start
        expected = [row for row in self.rows() if row["offset"] < self.complete(row["partition"])]
        assert [row for row in table if row["offset"] >= starts[row["partition"]]] == expected

    def complete(self, partition: int) -> int:
        view = self.topic.tiered().view
        return 0 if view is None else int(view.ends(3)[partition])

    def rows(self) -> list[dict[str, Any]]:
        return [row for number in range(3) for row in read_all(self.model.log, number).to_pylist()]

    def live(self, steps: int) -> None:
        """Steps of all kinds, a check after each, and a look at all files now and then."""
        kinds = {"publish": 30, "archive": 12, "merge": 8, "drop": 8, "sweep": 6, "fail": 12, "crash": 8, "reopen": 2}
        kinds["delete"] = 5
        for number in range(steps):
            getattr(self, self.chance.choices(list(kinds), list(kinds.values()))[0])()
            self.check()
            if number % 8 == 0:
                self.check_table()
        self.archive()
        self.sweep()
        self.check()
        self.check_table()
        assert doctor(self.topic) == []
        assert self.topic.rows() == self.rows()


def place_of(engine: str, directory: Path, postgres: PostgresServer) -> Place:
    if engine == "memory":
        return MemoryPlace()
    return DiskPlace(directory, killed=True) if engine == "disk" else PostgresPlace(postgres.fresh_url())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("engine", ["memory", "disk", "postgres"])
def test_an_archived_topic_reads_like_one_that_keeps_everything(
    engine: str, seed: int, tmp_path: Path, postgres: PostgresServer
) -> None:
    place = place_of(engine, tmp_path / "store", postgres)
    Life(place, tmp_path / "archive", seed).live(STEPS)
    place.close()


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.parametrize("engine", ["disk", "postgres"])
def test_many_lives(engine: str, seed: int, tmp_path: Path, postgres: PostgresServer) -> None:
    place = place_of(engine, tmp_path / "store", postgres)
    Life(place, tmp_path / "archive", seed).live(5 * STEPS)
    place.close()
    shutil.rmtree(tmp_path / "archive")
