"""What a table is made of: every offset that is asked for in exactly one place, and no other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange, ArchiveSnapshot
from headrace.core.errors import StoreUnavailable
from headrace.tables.snapshot import TableSnapshot, table_snapshot


def archive_of(chance: random.Random) -> ArchiveSnapshot:
    """An archive of three partitions, cut at random, with a start that is within a file, and lost offsets."""
    ends = dict.fromkeys(range(3), 0)
    files = []
    for number in range(chance.randint(0, 4)):
        ranges = []
        for partition in ends:
            first, ends[partition] = ends[partition], ends[partition] + chance.randint(0, 5)
            if ends[partition] > first:
                rows = (ends[partition] - first) * chance.choice([0, 1, 1])
                ranges.append(ArchiveRange(partition, first, ends[partition], rows, 0, 0))
        if ranges:
            files.append(ArchiveFile(f"{number}", sum(part.rows for part in ranges), 1, "", 0, 0, ranges))
    offsets = {partition: (chance.randint(0, end), end + chance.randint(0, 4)) for partition, end in ends.items()}
    return ArchiveSnapshot("t", 1, "file:///a", files, ends, offsets)


def rows_of(table: TableSnapshot) -> Counter[tuple[int, int]]:
    """The rows that an engine gives for it: of files within the clips, and of the tail."""
    rows: Counter[tuple[int, int]] = Counter()
    for part in (part for file in table.files for part in file.ranges if part.rows):
        start, end = table.clips.get(part.partition, (0, 1 << 62))
        rows.update((part.partition, offset) for offset in range(part.first_offset, part.end_offset)
                    if start <= offset < end)  # fmt: skip
    rows.update((partition, offset) for partition, bounds in table.tail.items() for offset in range(*bounds))
    return rows


@pytest.mark.parametrize("seed", range(300))
def test_every_offset_is_in_one_place(seed: int) -> None:
    chance = random.Random(seed)
    archive = archive_of(chance)
    lost = {
        (part.partition, offset)
        for file in archive.files for part in file.ranges if not part.rows
        for offset in range(part.first_offset, part.end_offset)
    }  # fmt: skip
    bounds = None if seed % 2 else {partition: tuple(sorted(chance.choices(range(20), k=2))) for partition in range(2)}
    expected = {
        (partition, offset)
        for partition, (start, end) in archive.offsets.items() for offset in range(start, end)
        if bounds is None or (partition in bounds and bounds[partition][0] <= offset < bounds[partition][1])
    }  # fmt: skip
    table = table_snapshot(archive, bounds)  # type: ignore[arg-type]
    assert rows_of(table) == Counter(expected - lost)


def test_a_server_without_its_archive_is_named() -> None:
    file = ArchiveFile("0", 1, 1, "", 0, 0, [ArchiveRange(0, 0, 1, 1, 0, 0)])
    table = table_snapshot(ArchiveSnapshot("orders", 1, None, [file], {0: 1}, {0: (0, 1)}))
    with pytest.raises(StoreUnavailable, match=r"'orders'.*archive\.url"):
        assert table.url
