"""A segment: its header, and reading its frames with whatever index there is."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from headrace.core.errors import Damaged, UnknownFormat
from headrace.core.limits import PARTITIONS_MAX
from headrace.storage.disk.files import segment as segment_module
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex, SealedIndex
from headrace.storage.disk.files.segment import Segment, SegmentHeader, file_name, file_names, header_bytes, load_index
from tests.storage.builders import EVERYTHING, NOW_US, batch_of, values
from tests.storage.disk.builders import ROOMY_OPTIONS, DiskTopic, flip, frame_positions

FILES = FileSystem()
HEADER = SegmentHeader(7, 42, -3, np.array([5, 0, 1 << 62], np.int64))


def written(tmp_path: Path, commits: int = 4) -> Path:
    """A closed segment with two messages of one partition in each frame."""
    topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS)
    for number in range(commits):
        topic.publish(values(b"%da" % number, b"%db" % number), now_us=NOW_US + number)
    topic.close()
    (path,) = topic.paths()
    return path


def opened(path: Path) -> Segment:
    header = SegmentHeader.read(FILES, path)
    assert header is not None
    return Segment(FILES, path, header)


def values_from(segment: Segment, offset: int, messages_max: int = 100) -> list[bytes]:
    rows, times = segment.read(0, offset, messages_max, EVERYTHING)
    assert len(times) == rows.num_rows
    found: list[bytes] = rows["value"].to_pylist()
    return found


class TestHeader:
    @pytest.mark.parametrize("partitions", [1, 2, 3, 4, 11, 12, PARTITIONS_MAX])
    def test_comes_back_as_it_was(self, tmp_path: Path, partitions: int) -> None:
        header = SegmentHeader(7, 42, -3, np.arange(partitions, dtype=np.int64) << 40)
        data = header.encode()
        assert len(data) == header_bytes(partitions)
        assert len(data) % 64 == 0
        (tmp_path / "file").write_bytes(data + b"frames")
        found = SegmentHeader.read(FILES, tmp_path / "file")
        assert found is not None
        assert (found.topic_id, found.first_number, found.created_us) == (7, 42, -3)
        assert found.base_offsets.tolist() == header.base_offsets.tolist()

    def test_has_the_layout_of_the_format(self) -> None:
        data = HEADER.encode()
        magic, checksum, version, partitions, topic_id, number, created_us = struct.unpack_from("<4sIIIQQq", data)
        assert (magic, version, partitions, topic_id, number, created_us) == (b"HRsg", 1, 3, 7, 42, -3)
        assert struct.unpack_from("<qqq", data, 40) == (5, 0, 1 << 62)
        assert checksum == crc32c(data[8:])

    @pytest.mark.parametrize("place", [0, 4, 8, 12, 16, 24, 32, 40, 56, 63])
    def test_is_none_if_a_byte_changed(self, tmp_path: Path, place: int) -> None:
        path = tmp_path / "file"
        path.write_bytes(HEADER.encode())
        flip(path, place)
        assert SegmentHeader.read(FILES, path) is None

    @pytest.mark.parametrize("length", [0, 39, 40, 63])
    def test_is_none_if_it_is_cut_short(self, tmp_path: Path, length: int) -> None:
        (tmp_path / "file").write_bytes(HEADER.encode()[:length])
        assert SegmentHeader.read(FILES, tmp_path / "file") is None

    def test_of_more_partitions_than_there_can_be_is_none(self, tmp_path: Path) -> None:
        header = SegmentHeader(7, 42, -3, np.zeros(PARTITIONS_MAX + 1, np.int64))
        (tmp_path / "file").write_bytes(header.encode())
        assert SegmentHeader.read(FILES, tmp_path / "file") is None

    def test_of_a_newer_version_is_refused_by_name(self, tmp_path: Path) -> None:
        data = bytearray(HEADER.encode())
        struct.pack_into("<I", data, 8, 2)
        struct.pack_into("<I", data, 4, crc32c(bytes(data[8:])))
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(UnknownFormat) as caught:
            SegmentHeader.read(FILES, tmp_path / "file")
        assert (caught.value.file, caught.value.version) == (str(tmp_path / "file"), 2)


def test_names_of_others_are_left_out() -> None:
    names = [file_name(7, "log"), "notes.log", file_name(0, "log"), file_name(0, "index"), file_name(1, "log") + ".tmp"]
    names += ["0" * 19 + ".log", "٠" * 20 + ".log", file_name(3, "logs")]
    assert file_names(names, "log") == ["00000000000000000000.log", "00000000000000000007.log"]


def test_a_sealed_segment_is_read_by_its_index(tmp_path: Path) -> None:
    segment = opened(written(tmp_path))
    assert values_from(segment, 0) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b", b"3a", b"3b"]
    assert isinstance(segment.index, SealedIndex)
    assert segment.growing is None
    segment.seal()
    assert (segment.first_at(0, NOW_US + 1), segment.first_at(0, NOW_US + 4)) == (2, None)
    assert [segment.time_of(0, offset) for offset in (-1, 0, 7, 8)] == [None, NOW_US, NOW_US + 3, None]
    segment.release()
    assert values_from(segment, 7) == [b"3b"]


@pytest.mark.parametrize("fault", ["missing", "damaged", "empty", "of a shorter log"])
def test_without_its_index_a_segment_is_read_by_a_rebuilt_one(tmp_path: Path, fault: str) -> None:
    path = written(tmp_path)
    index = path.with_suffix(".index")
    if fault == "missing":
        index.unlink()
    elif fault == "damaged":
        flip(index, 50)
    elif fault == "empty":
        index.write_bytes(b"")
    else:
        index.write_bytes(written(tmp_path / "other", commits=3).with_suffix(".index").read_bytes())
    segment = opened(path)
    assert values_from(segment, 5) == [b"2b", b"3a", b"3b"]
    assert isinstance(segment.index, GrowingIndex)
    segment.seal()
    found = load_index(FILES, index)
    assert found is not None
    assert found.covered_bytes == path.stat().st_size
    assert values_from(segment, 5) == [b"2b", b"3a", b"3b"]
    assert isinstance(segment.index, SealedIndex)


def test_a_damaged_frame_costs_only_itself(tmp_path: Path) -> None:
    path = written(tmp_path)
    position = frame_positions(path)[1]
    flip(path, position + 100)
    segment = opened(path)
    assert values_from(segment, 0) == [b"0a", b"0b"]
    for offset in (2, 3):
        with pytest.raises(Damaged, match=r"offsets 2 to 3 of partition 0") as caught:
            values_from(segment, offset)
        assert (caught.value.file, caught.value.position) == (str(path), position)
    assert values_from(segment, 4) == [b"2a", b"2b", b"3a", b"3b"]
    assert segment.time_of(0, 3) == NOW_US + 1


def test_a_frame_that_no_index_knows_is_missed_by_its_offsets(tmp_path: Path) -> None:
    path = written(tmp_path, commits=5)
    path.with_suffix(".index").unlink()
    for number in (0, 2, 4):
        flip(path, frame_positions(path)[number] + 100)
    segment = opened(path)
    for offset, following in ((0, 2), (1, 2), (4, 6), (5, 6)):
        expected = f"offset {offset} of partition 0 is missing; the next offset that can be read here is {following}"
        with pytest.raises(Damaged, match=re.escape(expected)):
            values_from(segment, offset)
        assert segment.time_of(0, offset) is None
    with pytest.raises(Damaged, match="offset 8 of partition 0 is missing; nothing follows it here"):
        values_from(segment, 8)
    with pytest.raises(Damaged, match="offset 0 of partition 1 is missing; nothing follows it here"):
        segment.read(1, 0, 1, EVERYTHING)
    # What lies before a gap is read up to it, and nothing behind it takes the lost offsets.
    assert values_from(segment, 2) == [b"1a", b"1b"]
    assert values_from(segment, 7) == [b"3b"]
    # Sealed without the lost frames, it is just as careful.
    segment.seal()
    assert values_from(opened(path), 2) == [b"1a", b"1b"]


def test_a_frame_is_verified_only_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    segment = opened(path)
    assert values_from(segment, 0, 2) == [b"0a", b"0b"]
    data = path.read_bytes()
    flip(path, data.index(b"0a0b"))
    flip(path, data.index(b"1a1b"))
    assert values_from(segment, 0) == [b"1a", b"0b"]
    segment.release()
    assert values_from(segment, 0) == [b"1a", b"0b"]
    with pytest.raises(Damaged):
        values_from(opened(path), 0)


def test_a_file_that_is_missing_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path)
    unread, read = opened(path), opened(path)
    assert values_from(read, 0, 1) == [b"0a"]
    path.unlink()
    assert values_from(read, 7) == [b"3b"]
    read.release()
    for segment in (unread, read):
        with pytest.raises(Damaged, match="the file does not exist"):
            values_from(segment, 0)


@pytest.mark.parametrize("joined_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("small_frame_rows", [0, 64])
def test_small_frames_joined_in_any_way_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined_bytes: int, small_frame_rows: int
) -> None:
    monkeypatch.setattr(segment_module, "_JOINED_BYTES", joined_bytes)
    monkeypatch.setattr(segment_module, "_SMALL_FRAME_ROWS", small_frame_rows)
    topic = DiskTopic(tmp_path / "store", partitions=2, options=ROOMY_OPTIONS)
    sent = []
    for number in range(9):
        rows = [{"value": b"%d" % (3 * number + row), "partition": 1} for row in range(3)]
        if number % 4 > 1:
            rows = [{**row, "key": b"k"} for row in rows]
        sent += [(row["value"], row.get("key")) for row in rows]
        topic.publish(batch_of([{"value": b"other", "partition": 0}, *rows, {"partition": 0}]))
    topic.close()
    segment = opened(topic.paths()[0])
    for offset in range(len(sent)):
        for messages_max in (1, 2, 5, 100):
            rows, _ = segment.read(1, offset, messages_max, EVERYTHING)
            keys = rows["key"].to_pylist() if "key" in rows.schema.names else [None] * rows.num_rows
            found = list(zip(rows["value"].to_pylist(), keys, strict=True))
            assert found == sent[offset : offset + messages_max]


def test_a_read_of_few_bytes_touches_few_frames(tmp_path: Path) -> None:
    segment = opened(written(tmp_path, commits=20))
    rows, _ = segment.read(0, 0, 1_000, 1)
    assert rows.num_rows == 2
    rows, _ = segment.read(0, 1, 1_000, 700)
    assert 1 < rows.num_rows < 10
