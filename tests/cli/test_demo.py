"""`make demo` and `make run`, without the installation that they begin with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.processes import ROOT, environment

# Spark is started twice, on a machine that may be busy.
PATIENCE_SECONDS = 1_800.0
# Longer than any other test may take.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60.0)


def test_the_demo_ends_well() -> None:
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
    for told in ("written", "duplicate", "balances", "audit", "12,500", "as it must be", "no damage"):
        assert told in ended.stdout
    for told in ("killed", "Started again", "each answered once", "what a plain loop gives", "Both say the same"):
        assert told in " ".join(ended.stdout.split())


def test_the_makefile_runs_them() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    for target, command in (("demo", "examples/demo.py"), ("run", "headrace serve")):
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{target}: install  ##"))
        assert command in lines[place + 1]
