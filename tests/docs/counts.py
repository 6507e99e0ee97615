"""How many code blocks of the pages were run: each test of a page records it, and the end of a run prints the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

# What the fixture `record_property` is; with several processes, only plain values arrive.
Record = Callable[[str, object], None]
BLOCKS_RUN: Final = "blocks_run"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sum over the pages whose tests passed; tests/conftest.py has it as a hook."""
    passed = terminalreporter.getreports("passed")
    pages = [counts for report in passed for name, counts in report.user_properties if name == BLOCKS_RUN]
    if pages:
        kinds = sum(map(Counter, pages), Counter[str]())
        told = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        terminalreporter.write_line(f"blocks of {len(pages)} pages: {told}")
