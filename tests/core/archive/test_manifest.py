"""What a manifest says: ranges that are joined, and gaps and overlaps that are found."""

from __future__ import annotations

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange, joined, misfits


def file_of(path: str, *ranges: ArchiveRange) -> ArchiveFile:
    return ArchiveFile(path, sum(each.rows for each in ranges), 100, "crc32c:00000000", 1, 9, list(ranges))


def rows(partition: int, first: int, end: int, time_us: int = 5) -> ArchiveRange:
    return ArchiveRange(partition, first, end, end - first, time_us, time_us + 1)


def lost(partition: int, first: int, end: int) -> ArchiveRange:
    return ArchiveRange(partition, first, end, 0, 0, 0)


def test_ranges_that_touch_become_one() -> None:
    files = [file_of("a", rows(0, 0, 5), rows(1, 0, 2)), file_of("b", rows(0, 5, 9, time_us=20)), file_of("c")]
    assert joined(files) == [ArchiveRange(0, 0, 9, 9, 5, 21), rows(1, 0, 2)]


def test_lost_offsets_stay_ranges_of_their_own() -> None:
    files = [file_of("a", rows(0, 0, 5), lost(0, 5, 7)), file_of("b", lost(0, 7, 8), rows(0, 8, 9))]
    assert joined(files) == [rows(0, 0, 5), lost(0, 5, 8), rows(0, 8, 9)]


def test_files_that_fit_have_no_misfits() -> None:
    assert list(misfits([file_of("a", rows(0, 3, 5), lost(0, 5, 7)), file_of("b", rows(0, 7, 8), rows(1, 0, 1))])) == []


def test_gaps_overlaps_and_impossible_ranges_are_named() -> None:
    found = list(
        misfits(
            [
                file_of("a", rows(0, 0, 5), rows(1, 0, 5)),
                file_of("b", rows(0, 6, 8), rows(1, 4, 8)),
                file_of("c", ArchiveRange(2, 4, 8, 3, 1, 1), ArchiveRange(3, 4, 4, 0, 0, 0)),
            ]
        )
    )
    assert found == [
        "c: the range (2, 4, 8, 3, 1, 1) is impossible",
        "c: the range (3, 4, 4, 0, 0, 0) is impossible",
        "a and b leave a gap in partition 0: the first ends before offset 5, the second starts at 6",
        "a and b overlap in partition 1: the first ends before offset 5, the second starts at 4",
    ]
