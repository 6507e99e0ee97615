"""The rules of reports: what is valid, what is cut, and when a run is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    MICROSECONDS,
    NAME_CHARACTERS_MAX,
    PIPELINE_ERROR_CHARACTERS_MAX,
    PIPELINE_SILENT_SECONDS,
)
from headrace.core.reports.pipelines import PipelineReport, RunState, check_report, listed_state

REPORT = PipelineReport(run_id="1", state="running", started_us=1)


def test_long_texts_are_cut_and_nothing_else_changes() -> None:
    assert check_report(REPORT) == REPORT
    long = msgspec.structs.replace(REPORT, sink="s" * 1_000, error="e" * 10_000, dead_letter_topic="d")
    cut = check_report(long)
    assert (len(cut.sink), len(cut.error or "")) == (NAME_CHARACTERS_MAX, PIPELINE_ERROR_CHARACTERS_MAX)
    assert (cut.dead_letter_topic, cut.host) == ("d", "")


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", "happy"), ("messages", -1), ("batch", 1 << 63), ("messages_per_second", float("nan")), ("host", 7)],
)
def test_a_wrong_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"\$\.{field}|nan"):
        check_report(msgspec.structs.replace(REPORT, **{field: value}))


def test_something_else_is_no_report() -> None:
    with pytest.raises(InvalidInput, match="it must be a PipelineReport"):
        check_report({"state": "running"})


@pytest.mark.parametrize(
    ("state", "seconds", "listed"),
    [
        ("running", PIPELINE_SILENT_SECONDS, "running"),
        ("running", PIPELINE_SILENT_SECONDS + 1, "lost"),
        ("starting", PIPELINE_SILENT_SECONDS + 1, "lost"),
        ("failed", PIPELINE_SILENT_SECONDS + 1, "failed"),
        ("running", -10, "running"),
    ],
)
def test_a_running_pipeline_that_is_silent_is_lost(state: RunState, seconds: int, listed: str) -> None:
    report = msgspec.structs.replace(REPORT, state=state)
    assert listed_state(report, 0, seconds * MICROSECONDS) == listed
