"""How many code blocks of the pages were run: each test of a page records it, and the end of a run prints the sum.

A block that fails ends its page: the blocks after it are counted as not reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from headrace.core.text import counted

# What the fixture `record_property` is; with several processes, only plain values arrive.
Record = Callable[[str, object], None]
BLOCKS_RUN: Final = "blocks_run"
BLOCKS_LEFT: Final = "blocks_left"


@contextmanager
def counting(languages: Iterable[str], record: Record) -> Iterator[Counter[str]]:
    """Record how many blocks of a page succeeded, which the caller counts, and how many did not."""
    succeeded, planned = Counter[str](), Counter(languages)
    try:
        yield succeeded
    finally:
        record(BLOCKS_RUN, dict(succeeded))
        record(BLOCKS_LEFT, planned.total() - succeeded.total())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sum over all pages; tests/conftest.py has it as a hook."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    recorded = [dict(report.user_properties) for report in reports]
    line = summary([(each[BLOCKS_RUN], each[BLOCKS_LEFT]) for each in recorded if BLOCKS_RUN in each])
    if line:
        terminalreporter.write_line(line)


def summary(pages: list[tuple[dict[str, int], int]]) -> str:
    """One line about the blocks of all pages: how many succeeded by language, failed, and were not reached."""
    if not pages:
        return ""
    kinds = sum((Counter(succeeded) for succeeded, _ in pages), Counter[str]())
    told = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    failed, left = sum(left > 0 for _, left in pages), sum(left for _, left in pages)
    return (
        f"{kinds.total()} blocks of {counted(len(pages), 'page')}: {told}; {failed} failed, {left - failed} not reached"
    )
