"""THIRD_PARTY_LICENSES.md lists what Headrace installs, and goes into the sdist and the wheel."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = "THIRD_PARTY_LICENSES.md"
HOW = f"run .venv/bin/python packaging/licenses.py > {PAGE}"


def listed() -> list[str]:
    lines = (ROOT / PAGE).read_text().splitlines()
    return lines[lines.index("|---|---|---|---|") + 1 :]


def test_every_package_that_is_installed_is_listed() -> None:
    rows: list[str] = runpy.run_path(str(ROOT / "packaging" / "licenses.py"))["rows"]()
    assert len(rows) > 80 and any(row.startswith("| pyarrow |") for row in rows)
    assert [row for row in rows if row not in listed()] == [], HOW


def test_nothing_else_is_listed() -> None:
    """Another Python may need fewer packages, so the versions are compared with those that are installed anywhere."""
    pinned = {line.lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    cells = [row.split(" | ") for row in listed()]
    versions = [f"{name.removeprefix('| ')}=={version}" for name, version, *_ in cells]
    assert [version for version in versions if version not in pinned] == [], HOW


def test_it_is_part_of_the_distribution() -> None:
    assert PAGE in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"]
