"""docs/reference/cli.md is what the commands say of themselves."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.processes import ROOT, environment


def test_the_page_is_current() -> None:
    command = [sys.executable, "docs/reference/generate_cli.py"]
    printed = subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs/reference/cli.md").read_text() == printed, "run `make docs`"
