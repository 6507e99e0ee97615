"""`make demo-postgres`, without the installation that it begins with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.processes import ROOT, environment

PATIENCE_SECONDS = 600.0
# Longer than any other test may take.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60.0)


def test_the_sums_agree_after_a_kill() -> None:
    ended = subprocess.run(
        [sys.executable, "examples/demo_postgres.py"],
        cwd=ROOT,
        env=environment(PYTHONWARNINGS="default"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    for told in ("killed the server", "20,000 in the topic, 20,000 read", "the same"):
        assert told in ended.stdout
    assert "flood" not in ended.stdout + ended.stderr, "the password is shown"
    lines = (ROOT / "Makefile").read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("demo-postgres: install  ##"))
    assert "examples/demo_postgres.py" in lines[place + 1]
