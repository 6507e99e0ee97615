"""Checks of the store that a server does while it runs: one at a time, in a thread of its own, on request.

The last result is kept until the next check, or the end of the process. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from headrace.broker.clock import Clock
from headrace.core.errors import HeadraceError
from headrace.core.reports.store_check import StoreCheck, StoreReport
from headrace.storage.interface import Store

logger = logging.getLogger(__name__)

_IMPOSSIBLE: Final = "the store is not on a disk of this server; a database has tools of its own, such as pg_amcheck"


class StoreChecks:
    """The check that runs, or the last one."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._last = StoreCheck(state="never", report=StoreReport())

    def last(self) -> StoreCheck:
        """How far the check is that runs, or what the last one found."""
        return self._last

    def start(self) -> StoreCheck:
        """Begin a check, unless one runs."""
        with self._starting:
            if self._last.state != "running":
                progress = self._store.examine()
                if progress is None:
                    self._last = StoreCheck(state="impossible", report=StoreReport(), problem=_IMPOSSIBLE)
                else:
                    self._begin(progress)
            return self._last

    def _begin(self, progress: Iterator[StoreReport]) -> None:
        topics, now_us = len(self._store.catalog.topics()), self._clock.now_us()
        self._last = StoreCheck(state="running", started_us=now_us, topics=topics, report=StoreReport())
        self._thread = threading.Thread(target=self._run, args=(progress,), name="headrace-check", daemon=True)
        self._thread.start()

    def _run(self, progress: Iterator[StoreReport]) -> None:
        try:
            for report in progress:
                self._last = structs.replace(self._last, report=structs.replace(report, findings=[*report.findings]))
                if self._stopping.is_set():
                    return
        except (HeadraceError, OSError) as error:
            self._end(StoreCheck(state="failed", report=self._last.report, problem=str(error)))
        except Exception as error:
            logger.exception("the check of the store failed")
            self._end(StoreCheck(state="failed", report=self._last.report, problem=f"{type(error).__name__}: {error}"))
        else:
            self._end(structs.replace(self._last, state="finished"))

    def _end(self, ended: StoreCheck) -> None:
        last = self._last
        self._last = structs.replace(
            ended, started_us=last.started_us, ended_us=self._clock.now_us(), topics=last.topics
        )

    def close(self, stop_seconds: float) -> None:
        """End the check that runs, after the topic it is at; one that takes longer is abandoned."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(stop_seconds)
