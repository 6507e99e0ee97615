"""The source tree keeps its shape: one meaning for a class name, modules that say what they own, and are short."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.shape import (
    FUNCTION_LINES_MAX,
    LONG_MODULES_MAX,
    MODULE_LINES_MAX,
    Module,
    folder_sizes,
    homes_of_classes,
    lines_max,
    read_modules,
)


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """The tree as it is."""
    return read_modules()


def test_a_public_class_name_means_one_thing(modules: list[Module]) -> None:
    """A search for a name finds one class."""
    assert {name: homes for name, homes in homes_of_classes(modules).items() if len(homes) > 1} == {}


def test_a_module_opens_by_saying_what_it_owns(modules: list[Module]) -> None:
    """A reader decides by the head docstring whether to read on."""
    assert [module.name for module in modules if not ast.get_docstring(module.tree)] == []


def test_a_module_fits_a_readers_head(modules: list[Module]) -> None:
    """If this fails, the module has two concepts: give the second one a file. Raise no number for it."""
    assert {module.name: module.lines for module in modules if module.lines > lines_max(module)} == {}


def test_only_long_modules_have_a_bound_of_their_own(modules: list[Module]) -> None:
    """A module that was split, renamed or deleted leaves the list of exceptions."""
    lines = {module.name: module.lines for module in modules}
    assert [name for name in LONG_MODULES_MAX if lines.get(name, 0) <= MODULE_LINES_MAX] == []


def test_functions_grow_no_longer(modules: list[Module]) -> None:
    """The bound is the longest function of today: it falls as the long ones are split."""
    long = {
        f"{module.name}:{name}": lines
        for module in modules
        for name, lines in module.functions()
        if lines > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_what_breaks_the_shape_is_seen(tmp_path: Path) -> None:
    """The measures see what they are for, on a tree made for it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("__init__", "module_1", "module_2", "module_3"):
        (folder / f"{name}.py").write_text('"""Owns nothing."""\n')
    twin = 'class Twin:\n    """A class."""\n\n    def method(self) -> None:\n        # A comment.\n\n        pass\n'
    (tmp_path / "first.py").write_text(twin)
    (tmp_path / "second.py").write_text(twin)
    modules = read_modules(tmp_path)
    assert folder_sizes(modules) == {"folder": 3, ".": 2}
    assert homes_of_classes(modules) == {"Twin": ["first.py", "second.py"]}
    first = modules[0]
    assert (first.lines, first.code_lines(), list(first.functions())) == (7, 3, [("method", 4)])
