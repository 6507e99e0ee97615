"""Histories as files, and what is taken from a real batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.verify.checks.groups import Intervals
from headrace.verify.history.events import Began, Event, Note
from headrace.verify.history.file import Recorder, read_history
from headrace.verify.members import runs_of
from headrace.verify.workload import Workload
from tests.verify.test_checks import GOOD


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    events: list[Event] = [Began("orders", seed=7), *GOOD]
    with Recorder(tmp_path / "history") as recorder:
        for event in events:
            recorder.record(event)
    assert list(read_history(tmp_path / "history")) == events


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    Recorder(tmp_path / "history").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "history")


def test_what_comes_after_the_end_is_not_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    recorder.record(Began("orders"))
    recorder.close()
    recorder.record(Note("too late", 5))
    assert list(read_history(tmp_path / "history")) == [Began("orders")]


def test_the_half_line_of_a_killed_process_is_ignored(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history") as recorder:
        recorder.record(Began("orders"))
        recorder.record(Note("a kill", 5))
    whole = (tmp_path / "history").read_bytes()
    (tmp_path / "history").write_bytes(whole[:-3])
    assert list(read_history(tmp_path / "history")) == [Began("orders")]


@pytest.mark.parametrize("content", [b"{}\n", b"nonsense\n", b'{"op":"note","text":"","at_ns":1}\n'])
def test_what_is_no_history_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history").write_bytes(content)
    with pytest.raises(InvalidInput):
        list(read_history(tmp_path / "history"))


def test_a_history_of_another_format_is_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history") as recorder:
        recorder.record(Began("orders", format=99))
    with pytest.raises(InvalidInput, match="format 1"):
        list(read_history(tmp_path / "history"))


def test_runs_of_a_batch() -> None:
    batch = pa.record_batch(
        {
            "partition": pa.array([0, 0, 0, 1, 1], pa.int32()),
            "offset": pa.array([5, 6, 8, 9, 10], pa.int64()),
            "value": [b"a:0 x", b"a:1 x", b"b:0", b"a:2 x x", b"\xff y"],
        }
    )
    assert runs_of(batch) == [(0, 5, ["a:0", "a:1"]), (0, 8, ["b:0"]), (1, 9, ["a:2", "\ufffd"])]


def test_intervals() -> None:
    offsets = Intervals()
    assert offsets.missing(0) == [] and offsets.missing(2) == [(0, 2)]
    for start, end in ((4, 6), (0, 2), (8, 8), (6, 7)):
        offsets.add(start, end)
    assert offsets.missing(9) == [(2, 4), (7, 9)] and offsets.missing(1) == []
    offsets.add(1, 5)
    assert offsets.missing(7) == [] and offsets.missing(8) == [(7, 8)]


@pytest.mark.parametrize("field", ["seconds", "producers", "consumers", "groups", "rate", "partitions"])
def test_a_workload_that_cannot_be_done(field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        Workload(**{field: 0}).check()  # type: ignore[arg-type]
