"""What all tests stand on, however and wherever they were started: Ctrl-C works, files are in memory where there is
room, and generated examples are the same each time, but in `make campaign`, and may take as long as they like.

A process that was started in the background by a shell without job control ignores SIGINT, and so do all its
children. Tests send that signal, so here it means again what it means in a terminal.

Waiting for a busy disk shows nothing, and makes tests slow at the wrong moment. Fixtures that tests of several
packages share are here too.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.docs.counts import pytest_terminal_summary
from tests.postgres_server import postgres

__all__ = ["postgres", "pytest_terminal_summary"]

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(shutil.disk_usage(MEMORY).free, available) >= MEMORY_BYTES_MIN


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _has_room():
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)
settings.register_profile(
    "headrace",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("campaign", settings.get_profile("headrace"), derandomize=False)
settings.load_profile("headrace")
