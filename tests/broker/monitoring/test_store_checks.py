"""Checks of the store that a running server does: one at a time, with what they found."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.broker.clock import SystemClock
from headrace.broker.monitoring.store_checks import StoreChecks
from headrace.core.errors import StoreUnavailable
from headrace.core.reports.store_check import StoreCheck, StoreReport
from headrace.storage.memory.engine import MemoryStore

PATIENCE_SECONDS = 60.0


def ended(checks: Broker | StoreChecks) -> StoreCheck:
    """The check once it no longer runs."""
    last = checks.last_store_check if isinstance(checks, Broker) else checks.last
    deadline = time.monotonic() + PATIENCE_SECONDS
    while last().state == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    return last()


def test_a_disk_store_is_checked_while_it_is_open(tmp_path: Path) -> None:
    with Broker.open(f"file:{tmp_path}/store") as broker:
        broker.create_topic("orders")
        assert broker.last_store_check().state == "never"
        assert broker.check_store().topics == 1
        found = ended(broker)
        assert (found.state, found.report.topics, found.report.findings) == ("finished", 1, [])
        assert found.started_us is not None and found.ended_us is not None and found.started_us <= found.ended_us


def test_a_store_in_memory_cannot_be_checked() -> None:
    with Broker.open("memory:") as broker:
        assert broker.check_store() == broker.last_store_check()
        assert broker.last_store_check().state == "impossible"
        assert "pg_amcheck" in broker.last_store_check().problem


class Examined(MemoryStore):
    """A store whose check ends as a test wants."""

    def __init__(self, reports: Iterator[StoreReport]) -> None:
        super().__init__()
        self._reports = reports

    def examine(self) -> Iterator[StoreReport]:  # type: ignore[override]
        return self._reports


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreUnavailable("store", "it is gone"), "it is gone"),
        (OSError("no disk"), "no disk"),
        (KeyError("x"), "KeyError"),
    ],
)
def test_a_check_that_fails_says_why(error: Exception, told: str) -> None:
    def fail() -> Iterator[StoreReport]:
        yield StoreReport(topics=1)
        raise error

    checks = StoreChecks(Examined(fail()), SystemClock())
    checks.start()
    failed = ended(checks)
    assert (failed.state, failed.report.topics) == ("failed", 1) and told in failed.problem
    assert failed.started_us is not None


def test_a_check_is_not_started_twice_and_ends_with_its_server() -> None:
    is_open, began = threading.Event(), threading.Event()

    def wait() -> Iterator[StoreReport]:
        began.set()
        is_open.wait(PATIENCE_SECONDS)
        yield StoreReport(topics=1)
        raise AssertionError("it goes on after its end")

    checks = StoreChecks(Examined(wait()), SystemClock())
    first = checks.start()
    assert began.wait(PATIENCE_SECONDS)
    assert checks.start() is first
    checks._stopping.set()
    is_open.set()
    checks.close(PATIENCE_SECONDS)
    assert checks.last().report.topics == 1
