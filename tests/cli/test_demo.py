"""`make demo` and `make run`, without the installation that they begin with."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.cli.processes import PATIENCE_SECONDS, ROOT, environment


def test_the_demo_ends_well() -> None:
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert time.monotonic() - started < 40
    for told in ("written", "duplicate", "balances", "audit", "12,500", "as it must be", "no damage"):
        assert told in ended.stdout


def test_the_makefile_runs_them() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    for target, command in (("demo", "examples/demo.py"), ("run", "headrace serve")):
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{target}: install  ##"))
        assert command in lines[place + 1]
