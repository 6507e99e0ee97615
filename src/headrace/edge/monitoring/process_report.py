"""The process from inside, for a bug report: the stacks of its threads, and its last log lines. Thread-safe.

Log lines are kept as the formatter writes them, which removes the secrets of tokens; they never contain payloads.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import traceback
from collections import deque
from importlib.metadata import version
from typing import Final

import pyarrow as pa

from headrace.core.limits import LOG_CHARACTERS_KEPT, LOGS_KEPT
from headrace.core.reports.process import ProcessReport

# Appending to a deque and copying it are atomic.
_recent: Final[deque[str]] = deque(maxlen=LOGS_KEPT)


class RecentLogs(logging.Handler):
    """Keeps the last log lines of this process in memory."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; a very long one is cut."""
        _recent.append(self.format(record)[:LOG_CHARACTERS_KEPT])


def report(server_id: str) -> ProcessReport:
    """What this process is and does now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = {
        f"{names.get(number, 'unknown')} ({number})": "".join(traceback.format_stack(frame))
        for number, frame in sys._current_frames().items()
    }
    versions = {
        "headrace": version("headrace"),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "platform": platform.platform(),
    }
    return ProcessReport(server_id, os.getpid(), versions, stacks, list(_recent.copy()))
