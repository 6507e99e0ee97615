"""`headrace spark checkpoint`: positions out of the files that Spark writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.spark.reader.splits import Offsets, PartitionKey
from headrace.spark.reader.stream_offsets import encode
from tests.cli.processes import headrace

ORDERS, OTHER, SALES = PartitionKey(3, "orders", 0), PartitionKey(3, "orders", 1), PartitionKey(4, "sales", 0)
# As Spark writes it.
ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":1784900000000,"conf":{}}'


def planned(checkpoint: Path, batch: int, *sources: Offsets | str, is_complete: bool = True) -> Path:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, str) else json.dumps(encode(each)) for each in sources]
    file = checkpoint / "offsets" / str(batch)
    file.write_text("\n".join(["v1", ABOUT, *lines]))
    (checkpoint / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    if is_complete:
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return file


def test_the_last_complete_batch_counts(tmp_path: Path) -> None:
    planned(tmp_path, 9, {ORDERS: 5})
    planned(tmp_path, 10, {ORDERS: 7, OTHER: 2}, '{"logOffset":3}', "-", {SALES: 4})
    first = planned(tmp_path, 11, {ORDERS: 8, OTHER: 2}, is_complete=False)
    shown = headrace("spark", "checkpoint", str(tmp_path))
    assert json.loads(shown.out) == {"orders": {"0": 7, "1": 2}, "sales": {"0": 4}}
    assert "Batch 11 was begun and is not complete" in shown.err
    shown = headrace("spark", "checkpoint", str(first))
    assert json.loads(shown.out) == {"orders": {"0": 8, "1": 2}} and shown.err == ""


def test_branches_of_a_pipeline_count_as_the_one_that_is_behind(tmp_path: Path) -> None:
    planned(tmp_path / "spark", 0, {ORDERS: 5, OTHER: 9}, {ORDERS: 6, OTHER: 8})
    assert json.loads(headrace("spark", "checkpoint", str(tmp_path)).out) == {"orders": {"0": 5, "1": 8}}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["v2", ABOUT], "format v1"),
        (["v1", ABOUT, '{"logOffset":3}'], "none of its sources is a topic"),
        (["v1", ABOUT, '{"version":9,"topics":{}}'], "upgrade it"),
    ],
)
def test_files_of_something_else_are_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    (tmp_path / "7").write_text("\n".join(lines))
    assert said in headrace("spark", "checkpoint", str(tmp_path / "7")).refused(2)


def test_directories_without_a_complete_batch_are_refused(tmp_path: Path) -> None:
    assert "with a folder offsets" in headrace("spark", "checkpoint", str(tmp_path)).refused(2)
    planned(tmp_path, 0, {ORDERS: 5}, is_complete=False)
    assert "start where its query did" in headrace("spark", "checkpoint", str(tmp_path)).refused(2)
    (tmp_path / "commits" / "1").touch()
    assert "it cannot be read" in headrace("spark", "checkpoint", str(tmp_path)).refused(2)
