"""What all tests stand on, however and wherever they were started: Ctrl-C works, files are in memory where there is
room, and generated examples are the same each time, but in `make campaign`, and may take as long as they like.

A process that was started in the background by a shell without job control ignores SIGINT, and so do all its
children. Tests send that signal, so here it means again what it means in a terminal.

Waiting for a busy disk shows nothing, and makes tests slow at the wrong moment. Fixtures that tests of several
packages share are here too, and how every Spark is started, in this process or another.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.docs.counts import pytest_terminal_summary
from tests.java import QUICK_JAVA
from tests.postgres_server import postgres

__all__ = ["postgres", "pytest_terminal_summary"]

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
# They take longest, so they begin first: what is left for the end is short, and all processes end at about one time.
LONGEST = (
    "spark/test_cluster.py",
    "spark/test_pages.py",
    "cli/test_demo.py",
    "pipeline/test_pages.py",
    "campaign/test_spark_kills.py",
    "spark/test_connect.py",
    "pipeline/test_command.py",
    "hostile/test_kafka_cost.py",
    "faults/test_crash_at_every_call.py",
    "faults/test_power_cut.py",
    "faults/test_failing_call.py",
    "faults/test_flipped_bit.py",
    "faults/test_killed_process.py",
    "docs/test_blocks.py",
    "hostile/test_attacks.py",
    "protocols/kafka/clients/test_every_client.py",
    "protocols/http/test_openapi.py",
    "protocols/http/test_events.py",
    "examples/test_examples.py",
    "broker/test_model.py",
)


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(shutil.disk_usage(MEMORY).free, available) >= MEMORY_BYTES_MIN


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    rank = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _has_room():
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
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
