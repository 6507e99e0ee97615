"""A short campaign as `make campaign` runs it, on disk, with one kind of fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("faults", ["kill,stop", "backup,kill"])
def test_a_round_under_faults(tmp_path: Path, faults: str) -> None:
    command = [sys.executable, "-m", "tests.campaign", "--seconds", "8", "--seed", "5", "--store", "disk", "--no-seeks"]
    command += ["--directory", str(tmp_path), "--faults", faults]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended
    assert "campaign with seed 5" in ended.stdout and "violations: none" in ended.stdout
    assert "0 messages acknowledged" not in ended.stdout
    # Nothing of a good round is left behind.
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.stderr"]
