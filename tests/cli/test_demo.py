"""`make demo` and `make run`, without the installation that they begin with."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.processes import PATIENCE_SECONDS, ROOT, environment


def test_the_demo_ends_well() -> None:
    ended = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    for told in ("written", "duplicate", "balances", "audit", "12,500", "as it must be", "no damage"):
        assert told in ended.stdout


def test_the_makefile_runs_them() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    for target, command in (("demo", "examples/demo.py"), ("run", "headrace serve")):
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{target}: install  ##"))
        assert command in lines[place + 1]
