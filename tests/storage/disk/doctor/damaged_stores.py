"""Stores for the doctor: made, closed, and hurt in one place."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from crc32c import crc32c

from headrace.core.reports.store_check import StoreReport
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import header_bytes
from headrace.storage.disk.opening.scan import scan
from tests.storage.builders import NOW_US, DiskPlace, Topic, batch_of

PARTITIONS = 2
OPTIONS = "segment_frames=3"
START = header_bytes(PARTITIONS)


class Patient:
    """A store with the topic `Orders`, of which every commit has a message in each of two partitions.

    Segments hold three commits. It is closed cleanly, or, if `killed`, left as a process that died leaves it.
    """

    def __init__(self, directory: Path, commits: int, killed: bool = False) -> None:
        place = DiskPlace(directory / "first", OPTIONS)
        topic = Topic(place, partitions=PARTITIONS)
        for number in range(commits):
            rows = [
                {
                    "value": b"%d" % number,
                    "partition": partition,
                    "producer_id": "till",
                    "seqno": 2 * number + partition,
                }
                for partition in range(PARTITIONS)
            ]
            topic.publish(batch_of(rows), now_us=NOW_US + number)
        if killed:
            shutil.copytree(directory / "first", directory / "store")
        place.close()
        if not killed:
            (directory / "first").rename(directory / "store")
        self.directory = directory / "store"
        self.topic = self.directory / "topics" / f"{topic.record.id:09d}"

    def file(self, number: int, ending: str = "log") -> Path:
        return self.topic / f"{number:020d}.{ending}"

    def frames(self, number: int) -> list[tuple[int, int]]:
        """Position and length of the frames of a segment."""
        path = self.file(number)
        return [(at, header.bytes) for at, header in scan(FileSystem().map(path), START, 1, str(path)).frames]

    def flip(self, path: Path, position: int) -> None:
        content = bytearray(path.read_bytes())
        content[position] ^= 0xFF
        path.write_bytes(content)

    def forge(self, number: int, place: int, edit: Callable[[bytearray], None]) -> None:
        """Change a frame and give it a right checksum."""
        path = self.file(number)
        position, length = self.frames(number)[place]
        content = bytearray(path.read_bytes())
        forged = content[position : position + length]
        edit(forged)
        checksum = crc32c(bytes(forged[8:]), crc32c(struct.pack("<QQ", 1, position)))
        forged[4:8] = struct.pack("<I", checksum)
        content[position : position + length] = forged
        path.write_bytes(content)

    def sql(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.directory / "catalog.sqlite")) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    def examine(self, repair: bool = False) -> StoreReport:
        return examine(self.directory, repair)

    def found(self, repair: bool = False) -> list[tuple[str, int, str, str]]:
        """File name, position, kind and repair of every finding."""
        return [
            (Path(finding.file).name, finding.position, finding.kind, finding.repair)
            for finding in self.examine(repair).findings
        ]

    def told(self) -> str:
        """What all findings say."""
        return "\n".join(finding.what for finding in self.examine().findings)

    def content(self) -> dict[str, bytes]:
        """Every file but those that tell processes of each other, to see that nothing has changed."""
        passing = ("LOCK", "catalog.sqlite-shm")
        files = [path for path in self.directory.rglob("*") if path.is_file() and path.name not in passing]
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in files}

    def values(self) -> list[list[bytes]]:
        """What can be read of each partition once the store is open again."""
        place = DiskPlace(self.directory, OPTIONS)
        try:
            log = place.opened(place.store.catalog.topics()[0], NOW_US)
            ends = log.offsets().end.tolist()
            return [log.read(partition, 0, 1000, 1 << 20)["value"].to_pylist() if end else []
                    for partition, end in enumerate(ends)]  # fmt: skip
        finally:
            place.close()
