"""Ctrl-C at any moment of a publisher leaves no other one waiting.

In memory: on disk a write that was interrupted ends the log until it is opened again, which has tests of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 240.0


def test_a_hundred_interrupts_leave_the_broker_whole() -> None:
    command = [sys.executable, "-m", "tests.faults.interrupted_publisher"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (told.stdout, told.returncode) == ("100 True\n", 0), told.stderr[-2000:]
