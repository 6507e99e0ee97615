"""What pipelines report of themselves: the report, its bounds, and what a listing says of it.

A report is what a run claims; nothing but listings depends on it. Texts that are too long are cut, since a report must
not fail for what an error message says. A run that claims to be running and has been silent for a while is `lost`: its
process was killed, or cannot reach the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import (
    MICROSECONDS,
    NAME_CHARACTERS_MAX,
    PIPELINE_ERROR_CHARACTERS_MAX,
    PIPELINE_SILENT_SECONDS,
    SEQNO_MAX,
)

RunState = Literal["starting", "running", "finished", "stopped", "failed"]
ListedState = Literal["starting", "running", "finished", "stopped", "failed", "lost"]

_ALIVE: Final = ("starting", "running")
_TEXTS: Final = ("run_id", "host", "source", "sink", "dead_letter_topic")
_Count = Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)]


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one run of a pipeline.

    source, sink: what it reads and writes, for people. messages, dead_letters: since the run started. batch: the number
    of the last batch, batch_seconds: how long it took. duplicates: messages that topics dropped because they had them.
    lag_messages: unread messages of its topic; None if it reads no topic. error: why it failed.
    """

    run_id: str
    state: RunState
    started_us: _Count
    host: str = ""
    source: str = ""
    sink: str = ""
    batch: _Count | None = None
    messages: _Count = 0
    messages_per_second: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    lag_messages: _Count | None = None
    dead_letters: _Count = 0
    dead_letter_topic: str | None = None
    batch_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    duplicates: _Count = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineDescription:
    """A pipeline as it last reported to a topic: the one it reads, or else writes."""

    topic: str
    name: str
    state: ListedState
    reported_us: int
    report: PipelineReport


def check_report(report: object) -> PipelineReport:
    """A valid report, with texts of bounded length."""
    if not isinstance(report, PipelineReport):
        raise InvalidInput("report", repr(report)[:100], "it must be a PipelineReport")
    try:
        checked = msgspec.convert(msgspec.structs.asdict(report), PipelineReport)
    except msgspec.ValidationError as error:
        raise InvalidInput("report", "invalid", str(error)) from None
    cut = {field: text[:NAME_CHARACTERS_MAX] for field in _TEXTS if (text := getattr(checked, field))}
    error_text = None if checked.error is None else checked.error[:PIPELINE_ERROR_CHARACTERS_MAX]
    return msgspec.structs.replace(checked, **cut, error=error_text)


def listed_state(report: PipelineReport, reported_us: int, now_us: int) -> ListedState:
    """The state of a run now."""
    is_silent = now_us - reported_us > PIPELINE_SILENT_SECONDS * MICROSECONDS
    return "lost" if is_silent and report.state in _ALIVE else report.state
