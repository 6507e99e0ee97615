"""A Python environment in one file, as `venv` and `tar` make it: what `--archives` brings to the machines of a cluster.

It has Headrace and what that needs, taken from the environment that runs the tests, but not Spark: workers have one.
Its Python is a link to that of the machine, as in every environment that `venv` makes, so the machines need the same.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

SOURCES = Path(__file__).parents[2] / "src"
PACKAGES = ("headrace", "pyspark_headrace")
# What docs/spark-cluster.md installs.
INSTALLED = ("headrace", "pandas")
# Large, and nothing that runs needs it.
_LEFT_OUT = {"tests", "include", "__pycache__"}


def pack(archive: Path) -> Path:
    """Write the environment."""
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    python, configuration = tarfile.TarInfo("bin/python"), tarfile.TarInfo("pyvenv.cfg")
    python.type, python.linkname = tarfile.SYMTYPE, os.path.realpath(sys.executable)
    text = f"home = {Path(python.linkname).parent}\n".encode()
    configuration.size = len(text)
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.addfile(configuration, io.BytesIO(text))
        packed.addfile(python)
        for package in PACKAGES:
            packed.add(SOURCES / package, f"{site}/{package}", filter=_without_tests)
        for name in sorted(_needed()):
            found = distribution(name)
            for entry in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
                path = Path(str(found.locate_file(entry)))
                if path.exists():
                    packed.add(path, f"{site}/{entry}", filter=_without_tests)
    return archive


def _without_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT & set(entry.name.split("/")) else entry


def _needed() -> set[str]:
    """The packages that the installed ones need, and those that these need, but not Headrace itself."""
    found: set[str] = set()
    left = [*INSTALLED]
    while left:
        name = left.pop()
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            needed = requirement.name.lower().replace("_", "-")
            if needed not in found:
                left.append(needed)
                found.add(needed)
    return found | set(INSTALLED[1:])
