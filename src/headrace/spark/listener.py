"""Reports every streaming query of a session to the broker: `spark.streams.addListener(QueryReports())`.

    Spark ── events ──► the newest report of each query ── a thread, every few seconds ──► report_pipeline

So `headrace pipeline list`, the console, metrics and alerts show queries as they show pipelines: messages behind, rate,
last batch, and why a query failed. A query is reported to the first of the topics that it reads, under its name, or its
id if it has none. One that reads no topic is not reported, and nothing is known of the topics of one that fails before
its first batch.

A report is repeated while nothing happens, so that a driver that is killed is noticed. Nothing here slows or fails a
query: a report that cannot be sent is dropped, with one line in the log for each query. Events arrive in a thread of
Spark's, which only writes down what they say.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.client import connect
from headrace.client.connection import TOKEN_VARIABLE
from headrace.core.errors import HeadraceError
from headrace.core.reports.pipelines import PipelineReport
from headrace.core.retry import is_transient
from headrace.spark.connection import default_url
from headrace.spark.progress import messages_behind, messages_read

_INTERVAL_SECONDS: Final = 5.0
# How long a driver that exits waits for its last reports.
_LAST_SECONDS: Final = 10.0
_ATTEMPT_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


@dataclass
class _Query:
    """A query that runs, or whose last report has not been sent."""

    name: str
    report: PipelineReport
    topic: str | None = None
    is_over: bool = False
    has_warned: bool = False


class QueryReports(StreamingQueryListener):
    """A listener for `spark.streams.addListener`.

    url, token, ca: the broker, by default that of `HEADRACE_URL` and `HEADRACE_TOKEN`. ca: a PEM file.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: Path | None = None,
        interval_seconds: float = _INTERVAL_SECONDS,
    ) -> None:
        self._client = connect(
            url or default_url(),
            token if token is not None else os.environ.get(TOKEN_VARIABLE),
            root_certificates=None if ca is None else ca.read_bytes(),
            timeout_seconds=_ATTEMPT_SECONDS,
        )
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-query-reports", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Send what is left to send, and stop."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)
        atexit.unregister(self.close)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """A query is about to start."""
        report = PipelineReport(
            run_id=event.runId.hex[:12], state="starting", started_us=time.time_ns() // 1000, host=socket.gethostname()
        )
        with self._lock:
            self._queries[str(event.runId)] = _Query(event.name or str(event.id), report)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A query has finished a batch, or has looked for one."""
        progress = event.progress
        behind = messages_behind(progress)
        with self._lock:
            query = self._queries.get(str(progress.runId))
            if query is None or behind is None:
                # It began before this listener was added, or it reads no topic.
                return
            query.topic = query.topic or min(behind.by_topic)
            query.report = msgspec.structs.replace(
                query.report,
                source=f"topic {', '.join(sorted(behind.by_topic))}",
                sink=str(progress.sink.description),
                state="running",
                lag_messages=behind.total,
                **_batch(query.report, progress),
            )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing new: the last report still holds, and is repeated."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended, by itself, by `stop()` or by an error."""
        error = None if event.exception is None else " ".join(event.exception.split())
        with self._lock:
            query = self._queries.get(str(event.runId))
            if query is not None:
                state: Any = "finished" if error is None else "failed"
                query.report = msgspec.structs.replace(query.report, state=state, error=error, messages_per_second=0.0)
                query.is_over = True

    def _run(self) -> None:
        """The top of the thread."""
        is_last = False
        while not is_last:
            is_last = self._is_closing.wait(self._interval_seconds)
            with self._lock:
                waiting = [(run, query, query.report, query.is_over) for run, query in self._queries.items()]
            for run, query, report, is_over in waiting:
                is_kept = query.topic is None or self._send(query, query.topic, report)
                if is_over or not is_kept:
                    with self._lock:
                        self._queries.pop(run, None)
        self._client.close()

    def _send(self, query: _Query, topic: str, report: PipelineReport) -> bool:
        """Send a report; whether to send more of this query."""
        try:
            self._client.report_pipeline(topic, query.name, report)
        except HeadraceError as error:
            will_retry = is_transient(error)
            what_next = "will retry" if will_retry else "it will not be in the list of pipelines"
            level = logging.DEBUG if query.has_warned else logging.WARNING
            logger.log(level, "cannot report the query %s, %s: %s", query.name, what_next, error)
            query.has_warned = True
            return will_retry
        except Exception:
            logger.warning("cannot report the query %s", query.name, exc_info=True)
            return False
        return True


def _batch(report: PipelineReport, progress: Any) -> Mapping[str, Any]:
    """What a progress report says of a batch; of one without rows, that nothing was read."""
    messages = messages_read(progress)
    seconds = int((progress.durationMs or {}).get("triggerExecution", 0)) / 1000
    if messages == 0 or seconds == 0:
        return {"messages_per_second": 0.0, "messages": report.messages + messages}
    return {
        "batch": int(progress.batchId),
        "batch_seconds": seconds,
        "messages": report.messages + messages,
        "messages_per_second": messages / seconds,
    }
