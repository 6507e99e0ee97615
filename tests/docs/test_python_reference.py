"""docs/reference/python.md has everything that the package exports, and nothing that is internal."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import headrace
from tests.cli.processes import ROOT, environment


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/reference/generate_python.py, which is no module of the package."""
    found = importlib.util.spec_from_file_location("generate_python", ROOT / "docs/reference/generate_python.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_name_has_a_place(generator: ModuleType) -> None:
    exported = set(headrace.__all__) - {"__version__"}
    # The root of the errors is in their table.
    assert generator.listed() == exported - {"HeadraceError"}
    assert set(generator.EXAMPLES) <= generator.listed()


def test_what_is_called_internal_exists(generator: ModuleType) -> None:
    for name, hidden in generator.INTERNAL.items():
        assert hidden <= set(dir(getattr(headrace, name))), name


def test_what_programs_use_has_types_and_says_what_it_returns(generator: ModuleType) -> None:
    for name in sorted(generator.listed()):
        kind = getattr(headrace, name)
        if not inspect.isclass(kind):
            continue
        for each, member in generator.members(kind).items():
            if isinstance(member, property):
                assert member.fget is not None and "return" in member.fget.__annotations__, f"{name}.{each}"
                continue
            function = getattr(member, "__func__", member)
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, f"{name}.{each}"
            untyped = [
                parameter.name
                for parameter in signature.parameters.values()
                if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
            ]
            assert untyped == [], f"{name}.{each}"


def test_the_page_is_current() -> None:
    # In a process of its own: it looks at the modules that the package has imported.
    command = [sys.executable, "docs/reference/generate_python.py"]
    printed = subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs/reference/python.md").read_text() == printed, "run `make docs`"
