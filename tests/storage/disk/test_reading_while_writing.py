"""Readers that meet a writer or retention in the middle: each meeting is brought about, not hoped for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import OffsetOutOfRange
from headrace.core.topics.settings import TopicSettings
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex
from tests.storage.builders import EVERYTHING, NOW_US, values
from tests.storage.disk.builders import ROOMY_OPTIONS, DiskTopic


class InterruptedFiles(FileSystem):
    """The operating system, which lets something else happen once, just before or after it maps a file."""

    def __init__(self) -> None:
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None

    def map(self, path: Path) -> memoryview:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before is not None:
            before()
        view = super().map(path)
        if after is not None:
            after()
        return view


def read(topic: DiskTopic, offset: int) -> list[bytes]:
    rows: pa.RecordBatch = topic.log.read(0, offset, 100, EVERYTHING)
    found: list[bytes] = rows.column("value").to_pylist()
    return found


def test_asking_an_empty_segment_for_a_time_leaves_the_writer_its_index(tmp_path: Path) -> None:
    files = InterruptedFiles()
    topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS, files=files)
    files.after = lambda: topic.publish(values(b"a"))
    assert topic.log.first_at(0, NOW_US + 10**9) == 0
    if files.after is not None:
        # It did not even look at the file.
        files.after()
    topic.publish(values(b"b"))
    assert read(topic, 0) == [b"a", b"b"]
    topic.close()


def test_a_reader_that_sees_an_entry_finds_its_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS)
    topic.publish(values(b"a"))
    index = topic.log._segments[-1].growing
    assert isinstance(index, GrowingIndex)
    append = index._entries.append
    seen: list[list[bytes]] = []

    def append_and_look(count: int, **columns: Any) -> None:
        append(count, **columns)
        seen.append(read(topic, 0))

    monkeypatch.setattr(index._entries, "append", append_and_look)
    topic.publish(values(b"b"))
    # The message is not visible yet, and its entry disturbs nobody.
    assert seen == [[b"a"]]
    assert read(topic, 0) == [b"a", b"b"]
    topic.close()


@pytest.mark.parametrize("ask", ["read", "first_at", "time_of"])
def test_a_reader_that_retention_overtakes_gets_the_valid_range(tmp_path: Path, ask: str) -> None:
    files = InterruptedFiles()
    topic = DiskTopic(tmp_path / "store", files=files)
    for number in range(7):
        topic.publish(values(b"%d" % number), now_us=NOW_US + number)
    for segment in topic.log._segments:
        segment.release()
    files.before = lambda: topic.log.drop_outlived(TopicSettings.make(retention_bytes=1), None, NOW_US)
    if ask == "read":
        with pytest.raises(OffsetOutOfRange) as caught:
            read(topic, 0)
        assert (caught.value.start, caught.value.end) == (6, 7)
    elif ask == "first_at":
        assert topic.log.first_at(0, 0) == 6
    else:
        assert topic.log.time_of(0, 0) is None
    assert read(topic, 6) == [b"6"]
    topic.close()
