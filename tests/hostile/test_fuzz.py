"""A short campaign as `make fuzz` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.fuzz import tracebacks

LOG = """12:00 error headrace a call failed
Traceback (most recent call last):
  File "server.py", line 7, in outer
    inner()
  File "server.py", line 3, in inner
    raise ValueError
ValueError: 7
12:01 error headrace a call failed
Traceback (most recent call last):
  File "server.py", line 3, in inner
    raise ValueError
ValueError: 8

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "server.py", line 9, in outermost
    raise KeyError(7)
KeyError: 7
"""


def test_tracebacks_of_one_place_are_one_fault() -> None:
    at = 'File "server.py", line {}'
    inner, outermost = at.format("3, in inner"), at.format("9, in outermost")
    assert tracebacks(LOG) == {("ValueError", inner): 1, ("KeyError", outermost): 1}
    assert not tracebacks("12:00 error headrace the file system is full\n")


@pytest.mark.campaign
def test_some_inputs_over_every_protocol(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.fuzz", "--inputs", "2000", "--seed", "5", "--alone", "1"]
    command += ["--directory", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended
    assert "campaign with seed 5" in ended.stdout
    shares = {"kafka": 700, "http": 500, "flight": 200, "native": 200, "ydb": 200, "cursus": 200}
    for protocol, count in shares.items():
        assert f"{protocol}: {count} inputs" in ended.stdout, ended
    assert list(tmp_path.iterdir()) == []
