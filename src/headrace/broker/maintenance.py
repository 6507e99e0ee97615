"""Maintenance: one thread runs periodic tasks, each at its own interval.

A task that fails is logged and runs again at its next interval; it never stops the others. Tests call `run_all`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from headrace.core.limits import STOP_SECONDS

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class Maintenance:
    """Runs tasks at their intervals until it is closed."""

    def __init__(self, tasks: Mapping[Task, float], name: str = "maintenance") -> None:
        self._tasks = dict(tasks)
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def run_all(self) -> None:
        """Run every task once, now."""
        for task in self._tasks:
            task()

    def close(self, stop_seconds: float = STOP_SECONDS) -> None:
        """Finish the current task and stop; a task that takes longer is abandoned."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(stop_seconds)
            if self._thread.is_alive():
                logger.warning("%s did not stop within %g s and was abandoned", self._name, stop_seconds)

    def _run(self) -> None:
        due = {task: time.monotonic() + interval for task, interval in self._tasks.items()}
        while not self._stopping.wait(max(0.0, min(due.values()) - time.monotonic())):
            now = time.monotonic()
            for task, interval in self._tasks.items():
                if due[task] <= now:
                    due[task] = now + interval
                    self._attempt(task)

    def _attempt(self, task: Task) -> None:
        try:
            task()
        except Exception:
            logger.exception("maintenance task %s failed", getattr(task, "__name__", task))
