"""Measures the source tree: what a reader would want to know before living in it.

    python -m tests.shape

prints how much there is of each package and of its tests, how many settings, commands and options, the largest folders,
lengths of files and functions, module names that are no nouns, and how many files one message passes. `test_shape.py`
holds the tree to the bounds of lengths below. Twelve modules in a folder are a guide.
"""

from __future__ import annotations

import ast
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command

import headrace
from bench.path import paths
from headrace.cli.main import app
from headrace.cli.server.settings import names

ROOT = Path(headrace.__file__).parent
TESTS = Path(__file__).parent
FOLDER_MODULES_GUIDE = 12
FUNCTION_LINES_MAX = 64
# Aim for 120 to 200 lines. This is what holds today, with some space for the longest.
MODULE_LINES_MAX = 450
# Modules that may be longer: each is one list (of errors, operations, columns) or one facade with a method for each
# operation, and splitting it would make a reader search in two places. Lower these numbers as the modules shrink.
LONG_MODULES_MAX = {
    "broker/broker.py": 750,
    "client/client.py": 650,
    "core/errors.py": 800,
    "core/messages.py": 500,
    "storage/disk/log.py": 600,
    "wire/operations.py": 500,
}


@dataclass(frozen=True)
class Module:
    """One file of the tree, parsed. `name` is its path below the root."""

    name: str
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """The folder's path below the root."""
        return str(Path(self.name).parent)

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__.py` of its folder."""
        return Path(self.name).name == "__init__.py"

    @property
    def lines(self) -> int:
        """Its length, blank lines and comments included."""
        return self.text.count("\n")

    def classes(self) -> Iterator[str]:
        """The public classes it defines, nested ones included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name

    def functions(self) -> Iterator[tuple[str, int]]:
        """Each function and method with its length in lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1

    def code_lines(self) -> int:
        """How many lines are neither blank, comment nor docstring."""
        numbered = enumerate(self.text.splitlines(), 1)
        lines = {number for number, line in numbered if line.strip() and line.lstrip()[0] != "#"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                ast.get_docstring(node, clean=False) is not None
            ):
                first = node.body[0]
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        return len(lines)


def read_modules(root: Path = ROOT) -> list[Module]:
    """All modules of the tree, by name."""
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
    return [Module(name, text, ast.parse(text, name)) for name, text in sorted(texts.items())]


def folder_sizes(modules: Iterable[Module]) -> Counter[str]:
    """How many modules each folder has. Its `__init__.py` does not count."""
    return Counter(module.folder for module in modules if not module.is_package)


def homes_of_classes(modules: Iterable[Module]) -> dict[str, list[str]]:
    """The modules that define each public class name."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in module.classes():
            homes[name].append(module.name)
    return dict(homes)


def lines_max(module: Module) -> int:
    """How long a module may be."""
    return LONG_MODULES_MAX.get(module.name, MODULE_LINES_MAX)


def summary(lengths: list[int], bound: int) -> str:
    """Median, longest and share under a bound."""
    under = sum(length <= bound for length in lengths) / len(lengths)
    return f"median {statistics.median(lengths):.0f}, longest {max(lengths)}, {under:.1%} at most {bound} lines"


def package_sizes(modules: Iterable[Module]) -> dict[str, tuple[int, int]]:
    """Files and lines of each package; modules beside the packages are together."""
    sizes: dict[str, tuple[int, int]] = {}
    for module in modules:
        package = module.name.partition("/")[0] if "/" in module.name else "."
        files, lines = sizes.get(package, (0, 0))
        sizes[package] = (files + 1, lines + module.lines)
    return sizes


def commands_and_options(command: Any) -> tuple[int, int]:
    """How many commands there are, without groups of commands, and how many options all have; --help does not count."""
    options = sum(parameter.param_type_name == "option" for parameter in command.params)
    below = [commands_and_options(child) for child in getattr(command, "commands", {}).values()]
    return sum(count for count, _ in below) + (not below), sum(count for _, count in below) + options


def print_amounts(modules: list[Module]) -> None:
    """Print how much there is: lines, files, settings, commands and options."""
    tests = read_modules(TESTS)
    for title, read in (("src/headrace", modules), ("tests", tests)):
        lines = sum(module.lines for module in read)
        code = sum(module.code_lines() for module in read)
        print(f"{title}: {len(read)} files, {lines:,} lines, {code:,} of code")
    commands, options = commands_and_options(get_command(app))
    print(f"settings of a server: {len(list(names()))}; commands: {commands}, options: {options}")
    of_tests = package_sizes(tests)
    for package, (files, lines) in package_sizes(modules).items():
        files_of_tests, lines_of_tests = of_tests.get(package, (0, 0))
        print(
            f"  {package:12}{files:4} files {lines:6,} lines, tests {files_of_tests:4} files {lines_of_tests:6,} lines"
        )


def main() -> None:
    """Print the report."""
    modules = read_modules()
    print_amounts(modules)
    lengths = [module.lines for module in modules]
    functions = [length for module in modules for _, length in module.functions()]
    print(f"files: {summary(lengths, 400)}")
    print(f"functions: {summary(functions, 64)}")
    sizes = folder_sizes(modules)
    large = [f"{folder} {size}" for folder, size in sizes.most_common() if size > FOLDER_MODULES_GUIDE]
    print(f"folders: {len(sizes)}; of more than {FOLDER_MODULES_GUIDE} modules: {', '.join(large) or 'none'}")
    gerunds = [module.name for module in modules if module.name.endswith("ing.py")]
    print(f"modules named by a gerund: {', '.join(gerunds) or 'none'}")
    for name, trace in paths().items():
        print(f"one {name}: {len(trace.calls)} calls in {trace.files} files, {trace.switches} switches between files")


if __name__ == "__main__":
    main()
