"""Opening a topic's directory as a crash, an operator or a bad disk left it."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Damaged, OffsetOutOfRange
from headrace.core.publish.state import CommitKey
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.segment import SegmentHeader, file_name, header_bytes
from headrace.storage.disk.opening.recovery import recover
from headrace.storage.ranges import Gap
from tests.storage.builders import (
    EVERYTHING,
    NOW_US,
    batch_of,
    numbered,
    publish,
    scratch_directory,
    state_of,
    values,
    values_in,
)
from tests.storage.contract import SECOND_US, settings_of
from tests.storage.disk.builders import (
    ROOMY_OPTIONS,
    BareLog,
    DiskTopic,
    FailingFiles,
    flip,
    frame_positions,
)


def filled(tmp_path: Path, commits: int, **options: Any) -> DiskTopic:
    """A topic with one message per commit."""
    topic = DiskTopic(tmp_path / "store", **options)
    for value in numbered(commits):
        topic.publish(values(value))
    return topic


def reasons(damage: list[Damaged]) -> list[tuple[str, int, str]]:
    return [(Path(error.file).name, error.position, error.reason) for error in damage]


class TestTail:
    def test_a_torn_frame_is_cut_and_is_no_damage(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 2)
        topic.kill()
        (path,) = topic.paths()
        whole = path.read_bytes()
        path.write_bytes(whole + whole[frame_positions(path)[-1] :][:100])
        log = topic.open()
        assert (values_in(log), log.damage) == (numbered(2), [])
        assert path.read_bytes() == whole
        topic.publish(values(b"2"))
        assert values_in(topic.reopen()) == numbered(3)

    def test_a_commit_without_its_last_frame_is_cut(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 1, options=ROOMY_OPTIONS)
        topic.publish(values(b"x"), values(b"y"), values(b"z"))
        topic.kill()
        (path,) = topic.paths()
        path.write_bytes(path.read_bytes()[: frame_positions(path)[-1]])
        log = topic.open()
        assert (values_in(log), log.damage) == ([b"0"], [])
        topic.publish(values(b"1"), values(b"2"))
        topic.kill()
        assert values_in(topic.open()) == numbered(3)

    def test_what_is_found_is_synced_before_it_counts(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = filled(tmp_path, 1, files=files)
        topic.kill()
        files.calls.clear()
        topic.open()
        assert "sync" in files.calls

    def test_what_the_watermark_covers_is_on_the_device(self, tmp_path: Path) -> None:
        files = FailingFiles()
        topic = filled(tmp_path, 1, files=files)
        topic.close()
        files.calls.clear()
        assert values_in(topic.open()) == numbered(1)
        assert "sync" not in files.calls
        topic.publish(values(b"1"))
        topic.kill()
        files.calls.clear()
        assert values_in(topic.open()) == numbered(2)
        assert "sync" in files.calls

    def test_a_segment_that_was_being_begun_is_removed(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 3)
        header = SegmentHeader(topic.record.id, 3, NOW_US, topic.log.offsets().end).encode()
        topic.close()
        path = topic.directory / file_name(3, "log")
        for left in (b"", header[:20], header[:-1], bytes(len(header)), header[:50] + b"rubbish"):
            path.write_bytes(left)
            log = topic.open()
            assert (values_in(log), log.damage) == (numbered(3), [])
            assert not path.exists()
            topic.close()
        path.write_bytes(header)
        assert values_in(topic.open()) == numbered(3)
        assert path.exists()
        topic.publish(values(b"3"))
        assert values_in(topic.reopen()) == numbered(4)

    def test_what_no_segment_owns_is_swept_and_what_people_left_is_not(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 4)
        topic.close()
        swept = [file_name(0, "index.tmp"), file_name(9, "state.tmp"), file_name(99, "index")]
        kept = ["README", "notes.log", "old.state", "0.log", "backup"]
        for name in swept + kept:
            (topic.directory / name).write_bytes(b"x")
        assert values_in(topic.open()) == numbered(4)
        names = {path.name for path in topic.directory.iterdir()}
        assert names.isdisjoint(swept)
        assert names.issuperset(kept)


class TestDamage:
    def test_a_hole_in_the_newest_segment_is_reported_and_the_rest_is_read(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = filled(tmp_path, 5, options=ROOMY_OPTIONS)
        topic.kill()
        (path,) = topic.paths()
        positions = frame_positions(path)
        flip(path, positions[1] + 70)
        with caplog.at_level(logging.ERROR):
            log = topic.open()
        assert reasons(log.damage) == [(path.name, positions[1], f"no intact frame up to byte {positions[2]}")]
        assert str(path) in caplog.text
        assert log.read(0, 0, 100, EVERYTHING)["value"].to_pylist() == [b"0"]
        with pytest.raises(Damaged, match="the next offset that can be read here is 2"):
            log.read(0, 1, 100, EVERYTHING)
        assert log.read(0, 2, 100, EVERYTHING)["value"].to_pylist() == [b"2", b"3", b"4"]
        assert log.time_of(0, 1) is None
        topic.publish(values(b"5"))
        assert topic.reopen().read(0, 4, 100, EVERYTHING)["offset"].to_pylist() == [4, 5]

    def test_the_offsets_of_messages_that_only_the_index_knows_stay_taken(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 3, options=ROOMY_OPTIONS, partitions=2)
        topic.close()
        (path,) = topic.paths()
        for place in topic.paths("state"):
            place.unlink()
        positions = frame_positions(path)
        for position in positions[1:]:
            flip(path, position + 70)
        log = topic.open()
        assert reasons(log.damage) == [
            (path.name, positions[1], f"no intact frame up to byte {path.stat().st_size}"),
        ]
        assert log.offsets().end.tolist() == [3, 0]
        assert log.state.next_number == 3
        with pytest.raises(Damaged, match="offset 1 of partition 0 is missing; nothing follows it here"):
            log.read(0, 1, 1, EVERYTHING)
        assert topic.publish(values(b"3"))[0].offset.tolist() == [3]
        log = topic.reopen()
        assert log.read(0, 3, 1, EVERYTHING)["value"].to_pylist() == [b"3"]

    def test_a_file_that_was_longer_is_reported(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 3, options=ROOMY_OPTIONS)
        topic.close()
        (path,) = topic.paths()
        length, cut = path.stat().st_size, frame_positions(path)[2] + 10
        path.write_bytes(path.read_bytes()[:cut])
        log = topic.open()
        assert reasons(log.damage) == [(path.name, cut, f"the file was {length} bytes long and is shorter now")]
        assert log.read(0, 0, 10, EVERYTHING)["value"].to_pylist() == numbered(2)
        # The index knows of offset 2; nobody knows what was written after it.
        end = 3 + ROOMY_OPTIONS.segment_bytes // 4
        assert log.offsets().gaps == (Gap(0, 2, end),)
        assert topic.publish(values(b"new"))[0].offset.tolist() == [end]
        assert topic.reopen().damage == []

    def test_a_newest_segment_with_a_wrong_header_is_read_by_its_frames(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        newest = topic.paths()[-1]
        flip(newest, 20)
        log = topic.open()
        expected = "the segment's header is wrong, what it said was found elsewhere"
        assert reasons(log.damage) == [(newest.name, 0, expected)]
        assert values_in(log) == numbered(5)
        topic.publish(values(b"5"))
        assert values_in(topic.reopen()) == numbered(6)

    def test_a_newest_segment_without_header_and_frames_is_never_given_up(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 5)
        topic.close()
        newest = topic.paths()[-1]
        before = newest.read_bytes()
        for position in [20, *(position + 70 for position in frame_positions(newest))]:
            flip(newest, position)
        for _ in range(2):
            with pytest.raises(Damaged, match="restore the file") as caught:
                topic.open()
            assert caught.value.file == str(newest)
            topic.store.close()
        newest.write_bytes(before)
        assert values_in(topic.open()) == numbered(5)

    def test_a_short_newest_segment_with_messages_in_it_is_never_given_up(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store")
        for value in numbered(4):
            topic.publish(values(value))
        # With so many partitions in the catalog a header would be longer than the whole file.
        topic.store.catalog.change_topic(topic.record, lambda record: replace(record, partitions=500))
        topic.close()
        newest = topic.paths()[-1]
        assert newest.stat().st_size < header_bytes(500)
        flip(newest, 0)
        assert values_in(topic.open()) == numbered(4)

    def test_an_only_segment_with_a_wrong_header_is_read_by_its_frames(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 1, partitions=3)
        topic.close()
        flip(topic.paths()[0], 45)
        log = topic.open()
        assert values_in(log) == numbered(1)
        assert log.offsets().end.tolist() == [1, 0, 0]

    def test_an_only_segment_with_a_wrong_header_and_no_frames_is_named(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 0)
        topic.close()
        flip(topic.paths()[0], 45)
        with pytest.raises(Damaged, match="newest segment's header is wrong"):
            topic.open()

    def test_a_wrong_header_after_retention_is_made_up_from_frames_and_the_next_segment(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 3, partitions=2)
        for number in range(3, 9):
            topic.publish(values(b"%d" % number, partition=number % 2))
        before = topic.log.offsets()
        topic.close()
        first, oldest, newest = topic.paths()
        first.unlink()
        flip(oldest, 50)
        log = topic.open()
        assert log.offsets().start.tolist() == [3, 0]
        assert log.offsets().end.tolist() == before.end.tolist()
        assert values_in(log, 1) == [b"3", b"5", b"7"]
        topic.close()
        oldest.unlink()
        flip(newest, 50)
        log = topic.open()
        assert log.offsets().start.tolist() == [4, 2]
        assert values_in(log, 0) == [b"6", b"8"]

    def test_a_wrong_header_is_not_made_up_if_nothing_says_where_a_partition_stood(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 4, partitions=2)
        topic.close()
        first, newest = topic.paths()
        first.unlink()
        flip(newest, 50)
        with pytest.raises(Damaged, match="newest segment's header is wrong"):
            topic.open()

    def test_a_directory_without_segments_is_named(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 1)
        topic.close()
        topic.paths()[0].unlink()
        with pytest.raises(Damaged, match="the topic has no segment") as caught:
            topic.open()
        assert caught.value.file == str(topic.directory)

    def test_a_wrong_header_in_the_middle_costs_nothing(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 9)
        topic.close()
        flip(topic.paths()[1], 30)
        log = topic.open()
        expected = "the segment's header is wrong, what it said was found elsewhere"
        assert reasons(log.damage) == [(file_name(3, "log"), 0, expected)]
        assert values_in(log) == numbered(9)

    def test_a_segment_without_header_and_frames_costs_that_segment(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 9)
        topic.close()
        path = topic.paths()[1]
        for position in [30, *(position + 70 for position in frame_positions(path))]:
            flip(path, position)
        log = topic.open()
        expected = "the segment's header is wrong, none of its messages can be read"
        assert reasons(log.damage) == [(file_name(3, "log"), 0, expected)]
        assert log.read(0, 0, 100, EVERYTHING)["value"].to_pylist() == numbered(3)
        with pytest.raises(Damaged, match="offset 4 of partition 0 is missing"):
            log.read(0, 4, 1, EVERYTHING)
        assert log.read(0, 6, 100, EVERYTHING)["value"].to_pylist() == numbered(3, 6)

    def test_a_wrong_header_at_the_beginning_costs_nothing(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 7)
        topic.close()
        flip(topic.paths()[0], 30)
        log = topic.open()
        assert [name for name, _, _ in reasons(log.damage)] == [file_name(0, "log")]
        assert values_in(log) == numbered(7)

    def test_a_first_segment_without_header_and_frames_moves_the_start(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 7)
        topic.close()
        path = topic.paths()[0]
        for position in [30, *(position + 70 for position in frame_positions(path))]:
            flip(path, position)
        log = topic.open()
        assert [name for name, _, _ in reasons(log.damage)] == [file_name(0, "log")]
        assert values_in(log) == numbered(4, 3)
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 2, 1, EVERYTHING)

    def test_offsets_that_a_damaged_frame_may_have_held_stay_taken(self, tmp_path: Path) -> None:
        topic = filled(tmp_path, 3, options=ROOMY_OPTIONS, partitions=3)
        topic.publish(values(b"x", partition=1))
        topic.kill()
        (path,) = topic.paths()
        positions = frame_positions(path)
        flip(path, positions[2] + 70)
        log = topic.open()
        bound = (positions[3] - positions[2]) // 4
        assert log.offsets().end.tolist() == [2 + bound, 1, bound]
        with pytest.raises(Damaged, match="offset 2 of partition 0 is missing; nothing follows it here"):
            log.read(0, 2, 1, EVERYTHING)
        # The index that is written now knows nothing of the frame either.
        assert topic.reopen().offsets().end.tolist() == [2 + bound, 1, bound]
        assert topic.publish(values(b"y"))[0].offset.tolist() == [2 + bound]
        assert topic.reopen().offsets().end.tolist() == [3 + bound, 1, bound]

    def test_files_of_another_topic_are_not_taken_for_ones_own(self, tmp_path: Path) -> None:
        topic, other = filled(tmp_path / "a", 4), filled(tmp_path / "b", 4)
        topic.close()
        other.close()
        record = replace(topic.record, id=2)
        with pytest.raises(Damaged, match="newest segment's header is wrong"):
            recover(FileSystem(), topic.directory, record, NOW_US)
        assert values_in(topic.open()) == numbered(4)

    @pytest.mark.parametrize("is_header_wrong", [False, True])
    def test_a_catalog_that_is_older_than_the_log_is_reported(self, tmp_path: Path, is_header_wrong: bool) -> None:
        topic = filled(tmp_path, 3, partitions=3)
        topic.publish(values(b"x", partition=2))
        topic.store.catalog.change_topic(topic.record, lambda record: replace(record, partitions=2))
        topic.close()
        if is_header_wrong:
            flip(topic.paths()[-1], 20)
        with pytest.raises(Damaged, match="it has 3 partitions, the catalog 2: the catalog is older than the log"):
            topic.open()


class TestSnapshots:
    @staticmethod
    def with_sources(tmp_path: Path, **options: Any) -> DiskTopic:
        topic = DiskTopic(tmp_path / "store", **options)
        for number in range(8):
            rows = [{"value": b"%d" % number, "producer_id": "p", "seqno": number}]
            topic.publish(batch_of(rows), now_us=NOW_US + number * SECOND_US, keys=(CommitKey("w", number),))
        return topic

    def test_without_any_the_whole_log_is_replayed(self, tmp_path: Path) -> None:
        topic = self.with_sources(tmp_path)
        before = state_of(topic.log)
        topic.close()
        for path in topic.paths("state"):
            path.unlink()
        log = topic.open()
        assert (state_of(log), log.damage) == (before, [])

    def test_a_damaged_one_is_reported_and_costs_only_time(self, tmp_path: Path) -> None:
        topic = self.with_sources(tmp_path)
        before = state_of(topic.log)
        topic.close()
        newest = topic.paths("state")[-1]
        flip(newest, 40)
        log = topic.open()
        assert state_of(log) == before
        assert reasons(log.damage) == [(newest.name, 0, "the snapshot's checksum is wrong")]

    def test_what_is_forgotten_for_good_is_reported(self, tmp_path: Path) -> None:
        topic = self.with_sources(tmp_path)
        assert topic.log.drop_outlived(settings_of(retention_seconds=1), None, NOW_US + 100 * SECOND_US) == 3
        topic.close()
        for path in topic.paths("state"):
            path.unlink()
        log = topic.open()
        lost = "no intact snapshot: what sources wrote in commits 0 to 7 is forgotten"
        assert reasons(log.damage) == [(topic.directory.name, 0, lost)]
        assert log.state.sources.last_seqno(("p", "")) is None
        assert log.offsets().end.tolist() == [8]
        assert log.state.next_number == 8

    def test_damage_that_the_replay_meets_is_reported(self, tmp_path: Path) -> None:
        topic = self.with_sources(tmp_path)
        topic.close()
        for path in topic.paths("state"):
            path.unlink()
        first, second, _ = topic.paths()
        middle, last = frame_positions(first)[1], frame_positions(second)[2]
        flip(first, middle + 70)
        flip(second, last + 70)
        log = topic.open()
        assert reasons(log.damage) == [
            (first.name, middle, f"no intact frame up to byte {frame_positions(first)[2]}"),
            (second.name, last, f"no intact frame up to byte {second.stat().st_size}"),
        ]
        assert log.state.sources.last_seqno(("p", "")) == 7

    def test_only_payloads_within_the_window_are_remembered(self, tmp_path: Path) -> None:
        payload = settings_of(deduplication="payload", deduplication_window_seconds=3)
        topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS, settings=payload)
        for number, value in enumerate(numbered(8)):
            topic.publish(values(value), now_us=NOW_US + number * SECOND_US)
        topic.kill()
        log = topic.open(now_us=NOW_US + 7 * SECOND_US)
        times = [time_us for _, _, time_us in state_of(log)["window"]]
        assert sorted(times) == [NOW_US + number * SECOND_US for number in (5, 6, 7)]
        assert log.state.next_number == 8

    def test_payloads_are_remembered_only_if_they_were_when_they_were_written(self, tmp_path: Path) -> None:
        topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS)
        topic.publish(values(b"before"))
        payload = replace(topic.record, settings=settings_of(deduplication="payload"))
        topic.store.catalog.change_topic(payload, lambda _: payload)
        topic.record = payload
        topic.publish(values(b"after"))
        before = state_of(topic.log)
        topic.kill()
        assert state_of(topic.open()) == before
        assert [receipts.outcome.tolist() for receipts in topic.publish(values(b"before", b"after"))] == [[0, 2]]

    def test_a_snapshot_behind_several_segments_is_caught_up(self, tmp_path: Path) -> None:
        topic = self.with_sources(tmp_path)
        before = state_of(topic.log)
        topic.close()
        kept = topic.paths("state")[0]
        assert kept.name == file_name(6, "state")
        for path in topic.paths("state")[1:]:
            path.unlink()
        assert state_of(topic.open()) == before
        topic.publish(values(b"x"))
        before = state_of(topic.log)
        topic.kill()
        assert state_of(topic.open()) == before


ROWS = st.lists(
    st.fixed_dictionaries(
        {"value": st.sampled_from([b"a", b"b", b"c", b"dd" * 30])},
        optional={
            "key": st.sampled_from([b"", b"k", b"l"]),
            "producer_id": st.sampled_from(["p", "q", "r"]),
            "partition": st.integers(0, 2),
        },
    ).flatmap(
        lambda row: (
            st.fixed_dictionaries({**{name: st.just(cell) for name, cell in row.items()}, "seqno": st.integers(0, 9)})
            if "producer_id" in row
            else st.just(row)
        )
    ),
    max_size=5,
)
STEPS = st.lists(
    st.tuples(
        st.lists(ROWS, min_size=1, max_size=3),
        st.none() | st.builds(CommitKey, st.sampled_from("xyz"), st.integers(0, 5)),
        st.sampled_from(["go on", "go on", "close", "kill", "lose snapshots", "grow"]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, deduplication=st.sampled_from(["producer", "payload", "off"]))
def test_what_is_recovered_is_what_was_known(steps: list[Any], deduplication: str) -> None:
    with scratch_directory() as root:
        directory = root / "log"
        directory.mkdir()
        chosen = settings_of(deduplication=deduplication)
        bare = BareLog(directory, partitions=3, settings=chosen)
        for number, (frames, key, ending) in enumerate(steps):
            keys = () if key is None or bare.log.state.is_repeated(key) else (key,)
            batches = [batch_of(rows, partitions=3) for rows in frames]
            publish(bare.log, *batches, now_us=NOW_US + number, settings=chosen, keys=keys)
            if ending == "grow":
                bare.grow(bare.record.partitions + 1)
            before = state_of(bare.log)
            contents = [values_in(bare.log, partition) for partition in range(bare.record.partitions)]
            if ending == "lose snapshots":
                bare.log.close()
                for path in bare.directory.glob("*.state"):
                    path.unlink()
            if ending != "go on":
                bare.reopen(now_us=NOW_US + number, killed=ending == "kill")
            assert state_of(bare.log) == before
            assert [values_in(bare.log, partition) for partition in range(bare.record.partitions)] == contents
            assert bare.log.damage == []
        bare.log.close()
        shutil.rmtree(directory)
