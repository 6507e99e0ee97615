"""Reports the progress of a run to the broker, so that `headrace pipeline list` and the console show it.

A pipeline reports to the topic it reads, or else to the one it writes; one without a topic reports nothing. A thread of
its own sends the newest report, at most every few seconds, and repeats it while nothing happens, so that a run that is
killed is noticed. Nothing here may slow or fail a pipeline: a report that cannot be sent is dropped, with one line in
the log. A broker that refuses reports, or does not know them, is not asked again.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Any, Final

import msgspec

from headrace.client import Client
from headrace.core.errors import HeadraceError
from headrace.core.reports.pipelines import PipelineReport, RunState
from headrace.core.retry import is_transient
from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    DeadTopic,
    Description,
    ReportSink,
    Sink,
    Source,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.run.preflight import connected, selected_topics
from headrace.spark.pipeline.run.progress import Progress, Summary

INTERVAL_SECONDS: Final = 5.0
# How long the end of a run waits for its last report.
_LAST_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class Reporter:
    """The reports of one run; a context manager around it. Its methods may be called by any thread."""

    def __init__(self, description: Description, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._name = description.name
        self._interval_seconds = interval_seconds
        self._description, self._part = description, _topic_of(description)
        dead = description.dead_letters
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._has_ended = False
        self._has_warned = False
        self._report = PipelineReport(
            run_id=uuid.uuid4().hex[:12],
            state="starting",
            started_us=time.time_ns() // 1000,
            host=socket.gethostname(),
            source=_shown(description.source),
            sink=_shown(description.sink),
            dead_letter_topic=dead.topic if isinstance(dead, DeadTopic) else None,
        )
        self._thread = threading.Thread(target=self._run, name="headrace-pipeline-report", daemon=True)

    def __enter__(self) -> Reporter:
        if self._part is not None and self._description.run.report:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run is over; without `ended` it failed."""
        if not self._has_ended:
            text = "interrupted" if error is None else " ".join(str(error).split()) or type(error).__name__
            self._change(state="failed", error=text, messages_per_second=0.0)
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)

    def progressed(self, progress: Progress) -> None:
        """A batch was processed."""
        self._change(
            state="running",
            batch=progress.batch,
            messages=progress.messages,
            messages_per_second=progress.rate,
            lag_messages=progress.lag,
            dead_letters=progress.dead_letters,
            batch_seconds=progress.batch_seconds,
            duplicates=progress.duplicates,
        )

    def ended(self, summary: Summary, is_stopped: bool) -> None:
        """The run came to its end, or was asked to stop."""
        state: RunState = "stopped" if is_stopped else "finished"
        self._change(
            state=state,
            messages=summary.messages,
            messages_per_second=0.0,
            dead_letters=summary.dead_letters,
            duplicates=summary.duplicates,
        )
        self._has_ended = True

    def _change(self, **fields: Any) -> None:
        with self._lock:
            self._report = msgspec.structs.replace(self._report, **fields)

    def _run(self) -> None:
        """The top of the thread."""
        assert self._part is not None, "it is started for a pipeline with a topic"
        try:
            with connected(self._description, self._part) as client:
                part = self._part
                topics = selected_topics(client, part) if isinstance(part, TopicSource) else [part.topic]
                if topics:
                    self._send_all(client, topics[0])
        except Exception:
            logger.debug("cannot report the progress of %s", self._name, exc_info=True)

    def _send_all(self, client: Client, topic: str) -> None:
        is_last = False
        while self._send(client, topic) and not is_last:
            is_last = self._ending.wait(self._interval_seconds)
            with self._lock:
                if not is_last and self._report.state == "starting":
                    # It is past its checks, and has not finished a batch yet.
                    self._report = msgspec.structs.replace(self._report, state="running")

    def _send(self, client: Client, topic: str) -> bool:
        """Send the newest report; whether to send more."""
        try:
            client.report_pipeline(topic, self._name, self._report)
        except HeadraceError as error:
            will_retry = is_transient(error)
            what_next = "will retry" if will_retry else "this run will not be in the list of pipelines"
            logger.log(
                logging.DEBUG if self._has_warned else logging.WARNING,
                "cannot report the progress of %s, %s: %s",
                self._name,
                what_next,
                error,
            )
            self._has_warned = True
            return will_retry
        return True


def _topic_of(description: Description) -> TopicSource | TopicSink | None:
    """The part whose topic the pipeline reports to."""
    parts = (description.source, description.sink)
    return next((part for part in parts if isinstance(part, TopicSource | TopicSink)), None)


def _shown(part: Source | Sink) -> str:
    if isinstance(part, TopicSource):
        return str(part)
    if isinstance(part, TopicSink):
        return f"topic {part.topic}"
    if isinstance(part, DatabaseSink):
        return f"database table {part.table}"
    if isinstance(part, ReportSink):
        return "a report"
    return f"{part.format} {part.path}" if part.path else part.format
