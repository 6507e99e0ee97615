"""Every file and module that a page, a docstring or a comment names exists: a move leaves no old name behind."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.cli.processes import ROOT
from tests.docs.pages import pages

SOURCE: Final = ROOT / "src" / "headrace"
PACKAGES: Final = sorted(each.name for each in SOURCE.iterdir() if (each / "__init__.py").exists())
# `core/publish/plan.py`, and `tests/faults`.
_FILE: Final = re.compile(r"(?<![\w/.:-])(?:[A-Za-z_]\w*/)+[\w-]+\.(?:py|sql|md|toml|yaml|service)\b")
_FOLDER: Final = re.compile(r"(?<![\w/.:-])(?:src|tests|bench|docs|packaging|examples|pipelines)/[\w./-]*\w")
# `headrace.spark.session`, and `edge.dispatch` in backticks. The other packages are missing from the latter: settings,
# variables in examples and options of Spark begin with their names too.
_DOTTED: Final = re.compile(rf"\bheadrace\.((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")
_IN_BACKTICKS: Final = re.compile(r"`((?:aio|cli|console|core|edge|protocols|storage|verify|wire)(?:\.\w+)+)`")


def files() -> list[Path]:
    """Each page and each Python file."""
    code = [file for folder in ("src", "tests", "bench", "examples") for file in (ROOT / folder).rglob("*.py")]
    return [ROOT / page for page in pages()] + sorted(code)


def is_path(name: str, file: Path) -> bool:
    """Whether a path exists below the root, the source, the tests, the pages, or a folder above the file."""
    above = [folder for folder in file.parents if folder.is_relative_to(ROOT)]
    return any((folder / name).exists() for folder in (SOURCE, ROOT / "tests", ROOT / "docs", *above))


@cache
def is_module(name: str) -> bool:
    """Whether a dotted name below `headrace` is a module, or something that a module mentions by its next word."""
    at, words = SOURCE, name.split(".")
    while words and (at / words[0]).is_dir():
        at /= words.pop(0)
    if words and (at / f"{words[0]}.py").is_file():
        at /= f"{words.pop(0)}.py"
    text = (at / "__init__.py" if at.is_dir() else at).read_text()
    return not words or re.search(rf"\b{words[0]}\b", text) is not None


def missing(file: Path, text: str) -> list[str]:
    """What a text names that does not exist."""
    paths = [name for pattern in (_FILE, _FOLDER) for name in pattern.findall(text) if not is_path(name, file)]
    modules = [name for pattern in (_DOTTED, _IN_BACKTICKS) for name in pattern.findall(text) if not is_module(name)]
    return paths + modules


def test_everything_named_exists() -> None:
    found = {str(file.relative_to(ROOT)): missing(file, file.read_text()) for file in files()}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "core/publish/" + "planning.py",
        "tests/" + "nothing",
        "headrace.core." + "nowhere",
        "headrace.client.client." + "Clinet",
        "`edge." + "crossing`",
    ],
)
def test_an_old_name_is_found(text: str) -> None:
    assert len(missing(ROOT / "README.md", f"see {text} for more")) == 1
    assert missing(ROOT / "README.md", "core/publish/plan.py, tests/faults, headrace.connect, `edge.dispatch`") == []
