"""The shape of the source tree: what a reader would want to know before living in it.

    python -m bench.shape

Modules in each folder, lengths of files and functions, class names that mean two things, module names that are no
nouns, and how many files one message passes. A report to look at before and after a change, not a gate.
"""

from __future__ import annotations

import ast
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import headrace
from bench.path import paths

ROOT = Path(headrace.__file__).parent
FOLDER_MODULES = 12
FILE_LINES = 400
FUNCTION_LINES = 64


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that are neither blank, comment nor docstring."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def quantiles(lengths: list[int], bound: int) -> str:
    """Median and share under a bound."""
    under = sum(length <= bound for length in lengths) / len(lengths)
    return f"median {statistics.median(lengths):.0f}, longest {max(lengths)}, {under:.0%} at most {bound} lines"


def main() -> None:
    """Print the report."""
    folders: Counter[str] = Counter()
    classes: defaultdict[str, list[str]] = defaultdict(list)
    files: list[int] = []
    functions: list[int] = []
    gerunds: list[str] = []
    code = 0
    for path in sorted(ROOT.rglob("*.py")):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        tree = ast.parse(text)
        code += code_lines(text, tree)
        files.append(text.count("\n"))
        folders[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
        if path.stem.endswith("ing"):
            gerunds.append(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
    print(f"src/headrace: {len(files)} files, {sum(files):,} lines, {code:,} of code")
    print(f"files: {quantiles(files, FILE_LINES)}")
    print(f"functions: {quantiles(functions, FUNCTION_LINES)}")
    crowded = {folder: count for folder, count in folders.items() if count > FOLDER_MODULES}
    print(
        f"folders: {len(folders)}, at most {max(folders.values())} modules; over {FOLDER_MODULES}: {crowded or 'none'}"
    )
    print(f"modules named by a gerund: {', '.join(gerunds) or 'none'}")
    twice = {name: homes for name, homes in classes.items() if len(homes) > 1}
    print(f"public class names with several meanings: {len(twice)}")
    for name, homes in sorted(twice.items()):
        print(f"  {name}: {', '.join(homes)}")
    for name, trace in paths().items():
        print(f"one {name}: {len(trace.calls)} calls in {trace.files} files, {trace.switches} switches between files")


if __name__ == "__main__":
    main()
