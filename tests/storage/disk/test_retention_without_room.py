"""Retention on a disk without a free byte: it has to write a snapshot before it may drop anything."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.storage.disk.files import watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.options import DiskOptions
from tests.storage.builders import NOW_US, batch_of, values, values_in
from tests.storage.contract import SECOND_US, settings_of
from tests.storage.disk.builders import DiskTopic

OPTIONS = DiskOptions(segment_bytes=4096, segment_frames=4)
OUTLIVED = settings_of(retention_seconds=1)
LATER_US = NOW_US + 100 * SECOND_US


class QuotaFiles(FileSystem):
    """The operating system with so much room and no more, counted in whole bytes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.bytes_max: int | None = None

    @property
    def used(self) -> int:
        return sum(path.stat().st_size for path in self._directory.rglob("*") if "catalog" not in path.name)

    def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
        length = sum(memoryview(part).nbytes for part in parts)
        if self.bytes_max is not None and self.used + length > self.bytes_max:
            raise OSError(errno.ENOSPC, "no room")
        super().write(handle, position, parts)


def filled(tmp_path: Path) -> tuple[DiskTopic, QuotaFiles]:
    """Several segments of many sources with two older snapshots: the log is too young to write one when it rolls."""
    files = QuotaFiles(tmp_path / "store")
    topic = DiskTopic(tmp_path / "store", options=OPTIONS, settings=OUTLIVED, files=files)
    topic.publish(batch_of([{"producer_id": f"p{n}", "seqno": 0} for n in range(400)]))
    for number in range(20):
        topic.publish(batch_of([{"producer_id": "p0", "seqno": number + 1}]))
        if number in (2, 4):
            topic.reopen()
    return topic, files


def test_old_segments_go_although_there_is_no_room_for_a_snapshot(tmp_path: Path) -> None:
    topic, files = filled(tmp_path)
    assert len(topic.paths("state")) == 2 and len(topic.paths()) > 2
    files.bytes_max = files.used
    newest = topic.paths("state")[-1]
    assert topic.log.drop_outlived(OUTLIVED, None, LATER_US) > 0
    assert int(topic.log.offsets().start[0]) > 0
    assert topic.paths("state")[-1] > newest, "a snapshot was written"
    before = len(topic.log.state.sources)
    topic.publish(values(b"new"), now_us=LATER_US)
    files.bytes_max = None
    topic.kill()
    log = topic.open(LATER_US)
    assert len(log.state.sources) == before and log.damage == []
    assert values_in(log)[-1] == b"new"


def test_other_failures_of_the_snapshot_drop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, files = filled(tmp_path)

    def fail(handle: int, position: int, parts: Sequence[Any]) -> None:
        raise OSError(errno.EIO, "broken")

    before = topic.paths()
    monkeypatch.setattr(files, "write", fail)
    with pytest.raises(OSError, match="broken"):
        topic.log.drop_outlived(OUTLIVED, None, LATER_US)
    monkeypatch.undo()
    assert topic.paths() == before


def test_what_is_archived_goes_although_there_is_no_room_for_a_watermark(tmp_path: Path) -> None:
    topic, files = filled(tmp_path)
    archived = OUTLIVED.change(archive="on")
    assert topic.log.drop_outlived(archived, np.array([405]), LATER_US) > 0
    files.bytes_max = files.used
    marked = watermark.read(files, topic.directory)
    assert marked is not None and 400 <= marked.archived[0] <= 405
    assert topic.log.drop_outlived(archived, np.array([415]), LATER_US) > 0
    topic.kill()
    marked = watermark.read(files, topic.directory)
    assert marked is not None and 405 < marked.archived[0] <= 415
