"""Which query a checkpoint belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.load import describe
from headrace.spark.pipeline.run.checkpoint import Checkpoint


def checkpoint(directory: Path, **parts: Any) -> Checkpoint:
    tables = {
        "source": {"topic": "in", "schema": "a INT"},
        "steps": [{"name": "one", "sql": "SELECT a FROM source"}],
        "sink": {"topic": "out", "value": "a"},
        "run": {"checkpoint": str(directory)},
    }
    return Checkpoint(describe(tables | parts, {}))


def test_the_same_query_goes_on_under_the_same_id(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "cp")
    first.check()
    assert first.is_new and not (tmp_path / "cp").exists(), "checking writes nothing"
    first.store()
    assert checkpoint(tmp_path / "cp").is_new, "Spark has not run"
    (tmp_path / "cp" / "spark").mkdir()
    again = checkpoint(
        tmp_path / "cp",
        server={"url": "headrace://127.0.0.1:9"},
        source={"topic": "IN", "schema": "a INT", "group": "g", "max_messages_per_trigger": 5},
        steps=[{"name": "one", "sql": "SELECT a\n  FROM source"}],
        run={"checkpoint": str(tmp_path / "cp"), "trigger_seconds": 5},
    )
    again.check()
    assert not again.is_new and again.sink_id == first.sink_id and again.spark == str(tmp_path / "cp" / "spark")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("source", {"topic": "other", "schema": "a INT"}),
        ("source.schema", {"topic": "in", "schema": "a BIGINT"}),
        ("deduplicate", {"by": "payload"}),
        ("steps.one", [{"name": "one", "sql": "SELECT a + 1 AS a FROM source"}]),
        ("steps", []),
        ("sink", {"topic": "elsewhere", "value": "a"}),
        ("dead_letters", {"topic": "dead"}),
    ],
)
def test_a_changed_query_is_refused_by_what_changed(tmp_path: Path, part: str, value: Any) -> None:
    checkpoint(tmp_path).store()
    changed = checkpoint(tmp_path, **{part.split(".")[0]: value})
    with pytest.raises(InvalidInput) as refused:
        changed.check()
    assert refused.value.field == "run.checkpoint" and part in refused.value.rule.split(" changed")[0]
    changed.check(accept_change=True)
    changed.store()
    checkpoint(tmp_path, **{part.split(".")[0]: value}).check()


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(InvalidInput, match="not a checkpoint of a pipeline"):
        checkpoint(tmp_path).check()


def test_a_file_that_cannot_be_read_or_is_newer(tmp_path: Path) -> None:
    file = tmp_path / "headrace-pipeline.json"
    file.write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        checkpoint(tmp_path)
    file.write_text('{"version": 2, "sink_id": "x", "parts": {}}')
    with pytest.raises(InvalidInput, match="upgrade"):
        checkpoint(tmp_path)


def test_a_sink_id_of_the_users_own(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, sink={"topic": "out", "value": "a", "sink_id": "mine"})
    assert made.sink_id == "mine"
