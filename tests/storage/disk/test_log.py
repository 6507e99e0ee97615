"""The log: reads against a naive model, segments that roll, and what a failing system leaves."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import (
    Damaged,
    DiskFull,
    LogFailed,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfMemory,
    TooManyOpenFiles,
)
from headrace.core.messages import message_sizes
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import MAPPED_SEGMENTS_MAX, file_name
from headrace.storage.disk.options import DiskOptions
from headrace.storage.interface import Fences
from tests.storage.builders import (
    EVERYTHING,
    NOW_US,
    batch_of,
    commit_of,
    numbered,
    publish,
    read_all,
    scratch_directory,
    values,
    values_in,
)
from tests.storage.contract import SECOND_US, settings_of
from tests.storage.disk.builders import (
    BROKEN,
    NO_SPACE,
    ROOMY_OPTIONS,
    BareLog,
    DiskTopic,
    FailingFiles,
    flip,
    frame_positions,
)
from tests.storage.disk.files.test_filesystem import file_size_limit


def mapped(directory: Path, ending: str = ".log") -> int:
    """How many files of a directory this process has mapped, deleted ones included."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split(maxsplit=5)[5] for line in lines if f"{directory}/" in line and ending in line})


class TestModel:
    """Reads of random commits, in random pieces, with the log reopened in between."""

    CELLS = st.fixed_dictionaries(
        {"value": st.integers(0, 60).map(bytes), "partition": st.integers(0, 2)},
        optional={"key": st.sampled_from([b"", b"key"]), "attributes": st.just([("name", b"text")])},
    )
    STEPS = st.lists(
        st.tuples(
            st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=3),
            st.sampled_from(["go on", "go on", "go on", "close", "kill"]),
        ),
        min_size=1,
        max_size=10,
    )
    READS = st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 30), st.integers(1, 12), st.sampled_from([1, 50, 300, 2_000, 1 << 20])
        ),
        min_size=1,
        max_size=6,
    )

    @settings(max_examples=100, deadline=None)
    @given(steps=STEPS, reads=READS, frames=st.integers(1, 4))
    def test_a_read_is_a_part_of_what_was_written(self, steps: list[Any], reads: list[Any], frames: int) -> None:
        with scratch_directory() as root:
            directory = root / "log"
            directory.mkdir()
            bare = BareLog(directory, partitions=3, options=DiskOptions(segment_bytes=2048, segment_frames=frames))
            model: list[list[dict[str, Any]]] = [[], [], []]
            for number, (batches, ending) in enumerate(steps):
                for row in (row for batch in batches for row in batch):
                    model[row["partition"]].append({**row, "commit": number})
                # Frames of one commit rise by a microsecond each, so commits are further apart.
                now_us = NOW_US + number * SECOND_US
                publish(bare.log, *(batch_of(batch, partitions=3) for batch in batches), now_us=now_us)
                if ending != "go on":
                    bare.reopen(killed=ending == "kill")
                for partition, offset, messages_max, bytes_max in reads:
                    self.check_read(bare, model[partition], partition, offset, messages_max, bytes_max)
                    self.check_times(bare, model[partition], partition, offset)
            bare.log.close()

    @staticmethod
    def check_read(
        bare: BareLog, rows: list[dict[str, Any]], partition: int, offset: int, messages_max: int, bytes_max: int
    ) -> None:
        if offset > len(rows):
            with pytest.raises(OffsetOutOfRange):
                bare.log.read(partition, offset, messages_max, bytes_max)
            return
        batch = bare.log.read(partition, offset, messages_max, bytes_max)
        batch.validate(full=True)
        assert batch.num_rows <= messages_max
        assert (batch.num_rows > 0) == (offset < len(rows))
        sizes = message_sizes(batch["value"], batch["key"], batch["attributes"])
        assert batch.num_rows <= 1 or sizes.sum() <= bytes_max
        if bytes_max == 1 << 20:
            assert batch.num_rows == min(messages_max, len(rows) - offset)
        for place, found in enumerate(batch.to_pylist()):
            assert (found["partition"], found["offset"]) == (partition, offset + place)
            for name in ("value", "key", "attributes"):
                assert found[name] == rows[offset + place].get(name)

    @staticmethod
    def check_times(bare: BareLog, rows: list[dict[str, Any]], partition: int, number: int) -> None:
        """The offset of commit `number`'s time, and the time of offset `number`."""
        before = sum(row["commit"] < number for row in rows)
        assert bare.log.first_at(partition, NOW_US + number * SECOND_US) == before
        found = bare.log.time_of(partition, number)
        if number < len(rows):
            assert found is not None
            assert (found - NOW_US) // SECOND_US == rows[number]["commit"]
        else:
            assert found is None


class TestSegments:
    def test_they_roll_by_frames_and_by_bytes(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(7):
            topic.publish(values(value))
        assert [path.name for path in topic.paths()] == [file_name(number, "log") for number in (0, 3, 6)]
        topic.publish(values(b"x" * 2000))
        topic.publish(values(b"y"))
        assert [path.name for path in topic.paths()][-1] == file_name(8, "log")
        assert topic.log.seal() == 3
        assert values_in(topic.reopen()) == [*numbered(7), b"x" * 2000, b"y"]

    def test_a_commit_of_many_frames_stays_in_one(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(*(values(value) for value in numbered(10)))
        assert len(topic.paths()) == 1
        assert values_in(topic.log) == numbered(10)
        topic.kill()
        assert values_in(topic.open()) == numbered(10)

    def test_few_stay_mapped_and_none_after_the_close(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store", partitions=2)
        for value in numbered(40):
            topic.publish(values(value))
        assert len(topic.paths()) == 14
        assert read_all(topic.log, messages_max=2).num_rows == 40
        assert mapped(topic.directory) == MAPPED_SEGMENTS_MAX
        # A partition without messages is looked for in all of them.
        assert (topic.log.first_at(0, 0), topic.log.first_at(1, 0)) == (0, 0)
        assert mapped(topic.directory, ".index") <= MAPPED_SEGMENTS_MAX
        assert None not in [topic.log.time_of(0, offset) for offset in range(40)]
        assert mapped(topic.directory) <= MAPPED_SEGMENTS_MAX
        assert 1 <= mapped(topic.directory, ".index") <= MAPPED_SEGMENTS_MAX
        log = topic.log
        topic.close()
        assert mapped(topic.directory) == mapped(topic.directory, ".index") == 0
        assert log.offsets().end.tolist() == [40, 0]

    def test_dropped_ones_are_not_mapped_once_their_readers_are_done(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(9):
            topic.publish(values(value))
        first = topic.log.read(0, 0, 3, EVERYTHING)
        before = topic.log.bytes_stored()
        topic.log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US)
        assert topic.log.offsets().start.tolist() == [6]
        assert topic.log.bytes_stored() < before
        assert first["value"].to_pylist() == numbered(3)
        del first
        assert mapped(topic.directory) == 0
        assert [path.name for path in topic.directory.iterdir() if "00000000.log" in path.name] == []
        assert values_in(topic.reopen()) == numbered(3, 6)

    def test_an_index_that_could_not_be_written_is_made_up_for(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(3):
            topic.publish(values(value))
        files.fail("replace", BROKEN)
        topic.publish(values(b"3"))
        assert topic.paths("index") == []
        assert values_in(topic.log) == numbered(4)
        files.fail("replace", BROKEN)
        with pytest.raises(OSError, match="replace"):
            topic.log.seal()
        assert topic.log.seal() == 1
        assert [path.name for path in topic.paths("index")] == [file_name(0, "index")]
        assert topic.log.seal() == 0
        assert values_in(topic.reopen()) == numbered(4)

    def test_a_descriptor_that_cannot_be_closed_is_no_obstacle(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(3):
            topic.publish(values(value))
        files.fail("close", BROKEN)
        topic.publish(values(b"3"))
        assert values_in(topic.log) == numbered(4)
        assert values_in(topic.reopen()) == numbered(4)


class TestSnapshots:
    def test_one_is_written_when_a_segment_is_complete(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(8):
            topic.publish(values(value))
        assert [path.name for path in topic.paths("state")] == [file_name(number, "state") for number in (3, 6)]

    def test_one_is_not_written_again_before_the_log_has_grown_by_its_size(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        sources = [{"producer_id": f"p{number}", "seqno": 1, "partition": 0} for number in range(50)]
        topic.publish(batch_of(sources))
        written = set()
        for value in numbered(60):
            topic.publish(values(value * 20))
            written |= {path.name for path in topic.paths("state")}
        assert len(topic.paths()) > 15
        assert 0 < len(written) <= 5

    def test_closing_writes_one_only_if_something_was_written(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"a"))
        topic.close()
        before = {path: path.stat().st_mtime_ns for path in topic.paths("state")}
        assert [path.name for path in before] == [file_name(1, "state")]
        topic.open()
        topic.close()
        assert {path: path.stat().st_mtime_ns for path in topic.paths("state")} == before


class TestFailures:
    def test_without_room_nothing_is_accepted_and_the_log_continues(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"0"))
        (path,) = topic.paths()
        before = path.read_bytes()
        # The system writes a part of the frame before it fails.
        with file_size_limit(len(before) + 100), pytest.raises(DiskFull) as caught:
            topic.publish(values(b"x" * 500))
        assert caught.value.topic == "Orders"
        assert path.read_bytes() == before
        assert values_in(topic.log) == [b"0"]
        topic.publish(values(b"1"))
        topic.kill()
        log = topic.open()
        assert (values_in(log), log.damage) == (numbered(2), [])

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
    @pytest.mark.parametrize("call", ["open", "write", "sync_directory"])
    def test_without_room_for_a_segment_nothing_is_accepted_and_the_log_continues(
        self, tmp_path: Path, call: str, number: int
    ) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(3):
            topic.publish(values(value))
        files.fail(call, number)
        with pytest.raises(DiskFull):
            topic.publish(values(b"x"))
        assert [path.name for path in topic.paths()] == [file_name(0, "log")]
        topic.publish(values(b"3"))
        assert values_in(topic.reopen()) == numbered(4)

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
    @pytest.mark.parametrize("call", ["open", "sync_directory"])
    def test_too_few_means_are_named_logged_and_cost_nothing(
        self, tmp_path: Path, call: str, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(3):
            topic.publish(values(value))
        files.fail(call, number)
        expected = OutOfMemory if number == errno.ENOMEM else TooManyOpenFiles
        with pytest.raises(expected) as caught:
            topic.publish(values(b"x"))
        assert caught.value.retry and str(caught.value) in caplog.text
        topic.publish(values(b"3"))
        assert values_in(topic.reopen()) == numbered(4)

    def test_a_plan_without_memory_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        topic.publish(values(b"0"))

        def decide(state: TopicState, fences: Fences) -> Iterator[Commit]:
            commits, _ = commit_of([values(b"x")], state, NOW_US, DEFAULT_SETTINGS, ())
            yield replace(commits[0], continues=True)
            raise MemoryError

        with pytest.raises(OutOfMemory):
            topic.log.commit(decide)
        assert topic.log.failure is None
        topic.publish(values(b"1"))
        assert values_in(topic.reopen()) == numbered(2)

    def test_a_segment_that_can_neither_be_begun_nor_removed_ends_writing(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(3):
            topic.publish(values(value))
        files.fail("sync_directory", NO_SPACE)
        files.fail("remove", NO_SPACE)
        with pytest.raises(OutcomeUnknown, match="could not be begun"):
            topic.publish(values(b"x"))
        with pytest.raises(LogFailed):
            topic.publish(values(b"x"))
        assert values_in(topic.log) == numbered(3)
        topic.reopen()
        topic.publish(values(b"3"))
        assert values_in(topic.reopen()) == numbered(4)

    def test_retention_that_cannot_begin_a_segment_drops_nothing(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))
        files.fail("open", NO_SPACE)
        outlived = settings_of(retention_seconds=1)
        later_us = NOW_US + 100 * SECOND_US
        with pytest.raises(OSError, match="open"):
            topic.log.drop_outlived(outlived, None, later_us)
        assert values_in(topic.log) == [b"0"]
        topic.publish(values(b"1"))
        assert topic.log.drop_outlived(outlived, None, later_us) == 1

    def test_retention_that_cannot_write_a_snapshot_drops_nothing(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(4):
            topic.publish(batch_of([{"value": value, "producer_id": "p", "seqno": int(value)}]))
        for path in topic.paths("state"):
            path.unlink()
        topic.close()
        for path in topic.paths("state"):
            path.unlink()
        log = topic.open()
        files.fail("replace", BROKEN)
        with pytest.raises(OSError, match="replace"):
            log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US)
        assert values_in(log) == numbered(4)
        assert log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US) == 1
        topic.kill()
        assert topic.open().state.sources.last_seqno(("p", "")) == 3

    @pytest.mark.parametrize("removed", [0, 1, 2, 3])
    def test_retention_that_cannot_remove_a_file_leaves_no_gap_and_is_made_up_for(
        self, tmp_path: Path, removed: int
    ) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        for value in numbered(9):
            topic.publish(values(value))
        files.fail("remove", *[None] * removed, BROKEN)
        with pytest.raises(OSError, match="remove"):
            topic.log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US)
        # An index and a log are removed for each segment; one that could not be removed stays with all after it.
        start = removed // 2 * 3
        assert topic.log.offsets().start.tolist() == [start]
        assert values_in(topic.log) == numbered(9 - start, start)
        assert values_in(topic.reopen()) == numbered(9 - start, start)
        topic.log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US)
        assert values_in(topic.log) == numbered(3, 6)

    @pytest.mark.parametrize("second", [None, BROKEN])
    def test_after_a_broken_write_nothing_more_is_accepted(self, tmp_path: Path, second: int | None) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))
        assert topic.log.failure is None
        files.fail("write", BROKEN)
        files.fail("truncate", second)
        with pytest.raises(OutcomeUnknown, match="write"):
            topic.publish(values(b"1"))
        with pytest.raises(LogFailed, match="write"):
            topic.publish(values(b"1"))
        assert "write" in str(topic.log.failure)
        with pytest.raises(LogFailed):
            topic.log.drop_outlived(settings_of(retention_seconds=1), None, NOW_US + 100 * SECOND_US)
        assert values_in(topic.log) == [b"0"]
        topic.reopen()
        topic.publish(values(b"1"))
        assert values_in(topic.log) == numbered(2)

    def test_frames_that_cannot_be_cut_off_after_failed_planning_end_the_log(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))

        def fail(state: TopicState, fences: Fences) -> Iterator[Commit]:
            yield from commit_of([values(b"x"), values(b"y")], state)[0][:1]
            raise MemoryError

        files.fail("truncate", BROKEN)
        with pytest.raises(OutcomeUnknown, match=r"planning.*truncate"):
            topic.log.commit(fail)
        with pytest.raises(LogFailed, match="planning"):
            topic.publish(values(b"1"))
        topic.reopen()
        topic.publish(values(b"1"))
        assert values_in(topic.log) == numbered(2)

    def test_after_a_failed_sync_the_message_exists_whole_or_not_at_all(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))
        files.fail("sync", BROKEN)
        with pytest.raises(OutcomeUnknown, match="sync"):
            topic.publish(values(b"1", b"2"))
        assert values_in(topic.log) == [b"0"]
        with pytest.raises(LogFailed, match="sync"):
            topic.publish(values(b"3"))
        topic.close()
        assert topic.paths("index") == topic.paths("state") == []
        assert values_in(topic.open()) == numbered(3)

    def test_a_commit_of_many_frames_counts_only_once_all_are_synced(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files, options=ROOMY_OPTIONS)
        topic.publish(values(b"0"))
        files.calls.clear()
        topic.publish(values(b"1"), values(b"2"))
        assert files.calls == ["write", "sync", "write", "sync"]
        files.fail("write", None, NO_SPACE)
        with pytest.raises(DiskFull):
            topic.publish(values(b"x"), values(b"y"))
        assert values_in(topic.log) == numbered(3)
        topic.publish(values(b"3"))
        topic.kill()
        assert values_in(topic.open()) == numbered(4)

    @pytest.mark.parametrize("call", ["write", "sync"])
    def test_an_interrupt_in_the_middle_ends_writing(self, tmp_path: Path, call: str) -> None:
        class Interrupted(FileSystem):
            armed = False

            def write(self, handle: int, position: int, parts: Sequence[Any]) -> None:
                super().write(handle, position, parts)
                if self.armed and call == "write":
                    raise KeyboardInterrupt

            def sync(self, handle: int) -> None:
                if self.armed and call == "sync":
                    raise KeyboardInterrupt
                super().sync(handle)

        files = Interrupted()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))
        files.armed = True
        with pytest.raises(KeyboardInterrupt):
            topic.publish(values(b"1"))
        with pytest.raises(LogFailed, match="KeyboardInterrupt"):
            topic.publish(values(b"1"))
        files.armed = False
        assert values_in(topic.reopen()) == numbered(2)

    def test_a_close_that_cannot_write_its_index_is_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files)
        topic.publish(values(b"0"))
        files.fail("replace", NO_SPACE)
        with caplog.at_level(logging.WARNING):
            topic.close()
        assert "'Orders' was closed without index or snapshot" in caplog.text
        assert values_in(topic.open()) == [b"0"]

    def test_a_closed_log_accepts_nothing_and_seals_nothing(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(4):
            topic.publish(values(value))
        topic.close()
        (index,) = (path for path in topic.paths("index") if path.name == file_name(0, "index"))
        index.unlink()
        assert topic.log.read(0, 0, 3, EVERYTHING)["value"].to_pylist() == numbered(3)
        assert topic.log.seal() == 1
        assert not index.exists()
        with pytest.raises(LogFailed, match="closed"):
            topic.publish(values(b"x"))
        with pytest.raises(LogFailed, match="closed"):
            topic.log.drop_outlived(settings_of(retention_seconds=1), None, NOW_US + 100 * SECOND_US)

    def test_without_durability_a_commit_is_not_synced(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = DiskTopic(tmp_path / "store", files=files, options=DiskOptions(durability="os"))
        files.calls.clear()
        topic.publish(values(b"0"), keys=(CommitKey("w", 1),))
        assert files.calls == ["write"]


class TestDamage:
    def test_a_read_stops_before_damage_and_an_error_begins_with_it(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(9):
            topic.publish(values(value))
        topic.close()
        second = topic.paths()[1]
        position = frame_positions(second)[0]
        flip(second, position + 70)
        log = topic.open()
        assert (log.damage, log.damaged_segments) == ([], 0)
        assert log.read(0, 0, 100, EVERYTHING)["value"].to_pylist() == numbered(3)
        with pytest.raises(Damaged, match="offsets 3 to 3 of partition 0") as caught:
            log.read(0, 3, 100, EVERYTHING)
        assert (caught.value.file, caught.value.position) == (str(second), position)
        assert log.damaged_segments == 1
        assert log.read(0, 4, 100, EVERYTHING)["value"].to_pylist() == numbered(5, 4)
        assert log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US) == 2
        assert log.damaged_segments == 0, "it was deleted"

    def test_a_segment_that_someone_removed_is_damage(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(9):
            topic.publish(values(value))
        log = topic.reopen()
        topic.paths()[1].unlink()
        reads: Sequence[Callable[[], object]] = (
            lambda: log.read(0, 4, 1, EVERYTHING),
            lambda: log.time_of(0, 4),
            lambda: log.first_at(0, NOW_US + 4),
        )
        for read in reads:
            with pytest.raises(Damaged, match="the file does not exist"):
                read()
        assert log.read(0, 0, 100, EVERYTHING)["value"].to_pylist() == numbered(3)
        assert log.read(0, 6, 100, EVERYTHING)["value"].to_pylist() == numbered(3, 6)


class TestRetentionInTheMiddle:
    """Retention that removes a segment between the moment a reader chose it and the moment it opens it."""

    class Hastening(FileSystem):
        """Does something once, when a file is about to be mapped."""

        before: Callable[[], object] | None = None

        def map(self, path: Path) -> memoryview:
            if (before := self.before) is not None:
                self.before = None
                before()
            return super().map(path)

    @pytest.fixture
    def topic(self, tmp_path: Path) -> DiskTopic:
        files = self.Hastening()
        topic = DiskTopic(tmp_path / "store", files=files)
        for number, value in enumerate(numbered(9)):
            topic.publish(values(value), now_us=NOW_US + number)
        topic.reopen()
        files.before = lambda: topic.log.drop_outlived(settings_of(retention_bytes=1), None, NOW_US)
        return topic

    def test_a_read_gets_the_valid_range(self, topic: DiskTopic) -> None:
        with pytest.raises(OffsetOutOfRange) as caught:
            topic.log.read(0, 1, 10, EVERYTHING)
        assert (caught.value.start, caught.value.end) == (6, 9)

    def test_the_offset_of_a_time_is_the_first_that_is_kept(self, topic: DiskTopic) -> None:
        assert topic.log.first_at(0, NOW_US + 1) == 6

    def test_the_time_of_a_deleted_message_is_none(self, topic: DiskTopic) -> None:
        assert topic.log.time_of(0, 1) is None
        assert topic.log.time_of(0, 7) == NOW_US + 7
