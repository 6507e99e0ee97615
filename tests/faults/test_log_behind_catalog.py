"""The log of a topic ends before offsets that were given: groups have committed them, or an index or watermark knows.

Nobody may skip a message then: what is published gets offsets beyond all that were ever known, and the ones between
stay absent, also after the store is opened again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import OffsetOutOfRange
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.broker.messages import read_as_member
from tests.faults.filesystems import PowerCut, SimulatedDisk, SimulatedFileSystem
from tests.faults.invariants import Message, batch_of

UNSYNCED = DiskOptions(durability="os")
SMALL = DiskOptions(segment_bytes=1500, segment_frames=3)


def publish(broker: Broker, tag: str, count: int) -> list[tuple[int, int]]:
    """Publish messages one by one to both partitions; their places."""
    places = []
    for number in range(count):
        messages = [Message(f"{tag}-{number}-{partition}".encode(), partition=partition) for partition in (0, 1)]
        receipts = broker.publish("t", batch_of(messages))
        places += list(zip(receipts.partition.tolist(), receipts.offset.tolist(), strict=True))
    return places


def make(broker: Broker) -> None:
    broker.create_topic("t", 2)
    broker.register_group("t", "readers")
    broker.register_group("t", "late")


def read_by(broker: Broker, group: str) -> list[bytes]:
    """What a member of a group gets until there is no more."""
    values = list(read_as_member(broker, "t", group))
    assert broker.describe_group("t", group).lag_messages == 0
    return values


@pytest.fixture
def cut_short(tmp_path: Path) -> Iterator[Path]:
    """A store that does not sync, after a power cut: the log ends at 5, a group stands at 10."""
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    disk = SimulatedDisk(home)
    store = DiskStore(home / "store", UNSYNCED, SimulatedFileSystem(disk))
    broker = Broker(store)
    make(broker)
    publish(broker, "kept", 5)
    broker.commit_offsets("t", "late", {0: 3, 1: 3})
    # What the operating system has written by now is on the device, what comes after is not.
    for node in disk.folder(home / "store" / "topics" / "000000001").names.values():
        node.sync()
    publish(broker, "lost", 5)
    broker.commit_offsets("t", "readers", {0: 10, 1: 8})
    store.catalog.close()
    left = tmp_path / "left"
    disk.lay_out(PowerCut(), left)
    for path in (home / "store").glob("catalog.sqlite*"):
        shutil.copy(path, left / "store")
    yield left / "store"


def test_a_group_beyond_the_end_of_the_log_gets_every_new_message(
    cut_short: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        assert broker.offsets("t") == {0: (0, 10), 1: (0, 8)}
        assert broker.topics_with_gaps() == {"t": 8}
        places = publish(broker, "new", 7)
        assert places == [place for n in range(7) for place in ((0, 10 + n), (1, 8 + n))]
        assert sorted(read_by(broker, "readers")) == sorted(f"new-{n}-{p}".encode() for n in range(7) for p in (0, 1))
        expected = [f"kept-{n}-{p}".encode() for n in (3, 4) for p in (0, 1)]
        expected += [f"new-{n}-{p}".encode() for n in range(7) for p in (0, 1)]
        assert sorted(read_by(broker, "late")) == sorted(expected)
    assert "the catalog knows offset 10 of partition 0, the log ends at 5" in caplog.text
    assert "offsets 5 to 9 of partition 0 are lost, and are skipped" in caplog.text


def test_raised_ends_survive_opening_again(cut_short: Path) -> None:
    with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        broker.delete_group("t", "readers")
    for _ in range(2):
        with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
            assert broker.offsets("t") == {0: (0, 10), 1: (0, 8)}
    with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        assert publish(broker, "new", 1) == [(0, 10), (1, 8)]
        with pytest.raises(OffsetOutOfRange, match="it must be 10"):
            broker.fetch("t", 0, 6)
        assert broker.fetch("t", 0, 0, max_messages=100).num_rows == 5
    with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        assert broker.offsets("t") == {0: (0, 11), 1: (0, 9)}
        assert broker.fetch("t", 0, 10).column("offset").to_pylist() == [10]


def test_lag_ends_although_nothing_follows_the_gap(cut_short: Path) -> None:
    with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        assert len(read_by(broker, "late")) == 4
        assert broker.describe_group("t", "late").lag_messages == 0


def test_the_doctor_says_so_before_and_after(cut_short: Path) -> None:
    before = examine(cut_short)
    assert before.is_damaged
    assert any("the next opening raises the end" in finding.what for finding in before.findings)
    with Broker(DiskStore(cut_short, UNSYNCED)) as broker:
        publish(broker, "new", 1)
    after = examine(cut_short)
    assert not after.is_damaged
    assert [finding.what for finding in after.findings if finding.kind == "gap"] == [
        "offsets 5 to 9 of partition 0 were lost, and are skipped",
        "offsets 5 to 7 of partition 1 were lost, and are skipped",
    ]


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    """A store with several segments that was closed, opened again, written to and killed."""
    directory = tmp_path / "store"
    with Broker(DiskStore(directory, SMALL)) as broker:
        make(broker)
        publish(broker, "before", 4)
    store = DiskStore(directory, SMALL)
    broker = Broker(store)
    publish(broker, "after", 1)
    killed = tmp_path / "killed"
    shutil.copytree(directory, killed)
    broker.close()
    return killed


def newest(directory: Path) -> Path:
    return max((directory / "topics" / "000000001").glob("*.log"))


@pytest.mark.parametrize("way", ["emptied", "removed", "cut", "emptied without index", "removed without index"])
def test_a_newest_segment_that_is_missing_gives_no_offset_again(
    rolled: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = newest(rolled)
    if way.startswith("emptied"):
        path.write_bytes(b"")
    elif way.startswith("removed"):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    if way.endswith("without index"):
        path.with_suffix(".index").unlink()
    assert examine(rolled).is_damaged
    for _ in range(2):
        with Broker(DiskStore(rolled, SMALL)) as broker:
            ends = broker.offsets("t")
            assert ends[0][1] >= 5 and ends[1][1] >= 5
    assert str(path) in caplog.text
    with Broker(DiskStore(rolled, SMALL)) as broker:
        assert broker.offsets("t") == ends, "opening again raises nothing more"
        assert publish(broker, "new", 1) == [(0, ends[0][1]), (1, ends[1][1])]
        values = read_by(broker, "late")
        assert {b"new-0-0", b"new-0-1"} <= set(values)
        assert values[:2] == [b"before-0-0", b"before-1-0"]
    assert not examine(rolled).is_damaged


def test_a_segment_that_was_just_being_begun_costs_no_offset(rolled: Path) -> None:
    """A process that died while it began a segment: nothing was in it."""
    path = newest(rolled)
    path.with_name(f"{5:020d}.log").write_bytes(b"HRsg")
    with Broker(DiskStore(rolled, SMALL)) as broker:
        assert broker.offsets("t") == {0: (0, 5), 1: (0, 5)}
        assert broker.topics_with_gaps() == {}
