"""A short campaign as `make campaign` runs it, on disk, with some of the faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What happens in a few seconds depends on the machine.
pytestmark = pytest.mark.campaign


def test_a_round_under_faults(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaign", "--seconds", "8", "--seed", "5", "--store", "disk", "--no-seeks"]
    command += ["--directory", str(tmp_path), "--faults", "kill,stop,backup"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended
    assert "campaign with seed 5" in ended.stdout and "violations: none" in ended.stdout
    assert "0 messages acknowledged" not in ended.stdout
    # Nothing of a good round is left behind.
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.stderr"]
