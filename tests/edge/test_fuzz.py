"""Spoiled streams at the edge: each is refused or goes through everything, and none kills the process.

`make campaign` tries fresh ones for HEADRACE_FUZZ_SECONDS (60). An input that fails is kept in fuzz-failures/, or in
the directory that HEADRACE_FUZZ_DIRECTORY names, and the error says with which seed it was made.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edge.fuzz import kept_input

ROOT = Path(__file__).parents[2]
WAYS = ["module", "flight"]


def fuzz(way: str, seed: int, inputs: int, seconds: float, directory: Path) -> tuple[int, int]:
    """Run a process on some inputs; how many it tried and accepted."""
    file = directory / "input"
    command = [sys.executable, "-m", "tests.edge.fuzz", way, str(seed), str(inputs), str(seconds), str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 240)
    if ended.returncode != 0:
        failures = Path(os.environ.get("HEADRACE_FUZZ_DIRECTORY", ROOT / "fuzz-failures"))
        failures.mkdir(parents=True, exist_ok=True)
        failed = failures / f"{way}-{seed}.arrow"
        failed.write_bytes(kept_input(file))
        how = f"was killed by signal {-ended.returncode}" if ended.returncode < 0 else f"ended with {ended.returncode}"
        pytest.fail(f"{way} with seed {seed} {how}; the input is in {failed}\n{ended.stderr[-4000:]}")
    tried, accepted = map(int, ended.stdout.split())
    return tried, accepted


@pytest.mark.parametrize(("way", "inputs"), [("module", 8_000), ("flight", 1_000)])
def test_spoiled_streams_are_refused_or_sound(way: str, inputs: int, tmp_path: Path) -> None:
    tried, accepted = fuzz(way, seed=11, inputs=inputs, seconds=0.0, directory=tmp_path)
    assert tried == inputs
    # Many changes do no harm, as those of padding and of values: without them nothing behind the edge would be tried.
    assert tried // 100 < accepted < tried // 2


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("way", WAYS)
def test_spoiled_streams_for_as_long_as_asked(way: str, tmp_path: Path) -> None:
    seconds = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "60"))
    tried, accepted = fuzz(way, seed=secrets.randbits(63), inputs=0, seconds=seconds, directory=tmp_path)
    assert 0 < accepted < tried
