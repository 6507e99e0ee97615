"""Progress of a running pipeline: Spark's reports per batch, summed up into at most one line per second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.core.text import counted
from headrace.spark.pipeline.frame.parse import METRICS
from headrace.spark.progress import messages_behind

LINE_SECONDS: Final = 1.0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a pipeline at one moment.

    messages, dead_letters: since the pipeline was started. duplicates: messages that topics dropped by seqno or
    payload; a repeated batch does not count. rate: messages per second since the last report. lag: unread messages of
    the topic; None if the source has no lag. batch_seconds: duration of the last batch.
    """

    pipeline: str
    batch: int
    messages: int
    rate: float
    lag: int | None
    batch_seconds: float
    dead_letters: int
    duplicates: int = 0

    def line(self) -> str:
        """For people."""
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        return (
            f"{self.pipeline}: batch {self.batch}, {counted(self.messages, 'message')}, {self.rate:,.0f}/s{lag}, "
            f"{self.batch_seconds:.2f} s per batch"
            f"{_not_written(self.dead_letters, self.duplicates)}"
        )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline did in one run; `is_repeated` if it was a load that an earlier run had done."""

    pipeline: str
    batches: int
    messages: int
    dead_letters: int
    duplicates: int = 0
    is_refused: bool = False
    is_repeated: bool = False

    def line(self) -> str:
        """For people."""
        if self.is_repeated:
            return f"{self.pipeline}: done, nothing written: the same input was loaded before"
        lost = _not_written(self.dead_letters, self.duplicates)
        return f"{self.pipeline}: done, {counted(self.messages, 'message')} in {counted(self.batches, 'batch')}{lost}"


def _not_written(dead_letters: int, duplicates: int) -> str:
    """The rows that are not in the sink, if any."""
    dead = f", {counted(dead_letters, 'dead letter')}" if dead_letters else ""
    return dead + (f", {duplicates:,} dropped as duplicates" if duplicates else "")


@dataclass
class Tally:
    """Adds up the reports of a query. Not thread-safe: the loop that waits for the query has it."""

    pipeline: str
    tell: Callable[[Progress], None]
    clock: Callable[[], float]
    duplicates: Callable[[], int] = lambda: 0
    batches: int = 0
    messages: int = 0
    dead_letters: int = 0
    _batch: int = -1
    _told_messages: int = 0
    _told_at: float | None = None
    _last: Any = None

    def take(self, reports: Iterable[Any], at_end: bool = False) -> None:
        """Add the new reports of a query, and report progress at most once a second."""
        for report in reports:
            if report.batchId > self._batch and report.numInputRows > 0:
                self._add(report)
        now = self.clock()
        is_due = self._told_at is None or now - self._told_at >= LINE_SECONDS
        if self._last is not None and (is_due or at_end):
            self._tell(now)

    def _add(self, report: Any) -> None:
        rows, dead = _counted(report)
        self._batch, self._last = report.batchId, report
        self.batches += 1
        self.messages += rows
        self.dead_letters += dead

    def _tell(self, now: float) -> None:
        since = None if self._told_at is None else now - self._told_at
        seconds = self._last.durationMs.get("triggerExecution", 0) / 1000
        elapsed = since or seconds or 1.0
        self.tell(
            Progress(
                pipeline=self.pipeline,
                batch=self._batch,
                messages=self.messages,
                rate=round((self.messages - self._told_messages) / elapsed, 1),
                lag=_lag(self._last),
                batch_seconds=seconds,
                dead_letters=self.dead_letters,
                duplicates=self.duplicates(),
            )
        )
        self._told_at, self._told_messages, self._last = now, self.messages, None


def _counted(report: Any) -> tuple[int, int]:
    """Rows and dead rows; counted by ourselves, since Spark counts rows that are read for two ends twice."""
    metrics = report.observedMetrics.get(METRICS)
    if metrics is None:
        return report.numInputRows, 0
    if "rows" not in metrics:
        # On Spark Connect a row of metrics comes as its schema and its values.
        names = [field["name"] for field in metrics["schema"]["fields"]]
        metrics = dict(zip(names, metrics["values"], strict=True))
    return metrics["rows"], metrics["dead"]


def _lag(report: Any) -> int | None:
    """How many messages of the topics the last batch left."""
    behind = messages_behind(report)
    return None if behind is None else behind.total
