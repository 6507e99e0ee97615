"""README.md names every extra that can be installed."""

from __future__ import annotations

import re
import tomllib

from tests.cli.processes import ROOT

# For those who work on Headrace itself.
OWN = {"bench", "dev", "docs", "quick"}


def test_the_readme_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(project["optional-dependencies"]) - OWN
