"""The site is built with every page, without a broken link, and has its own copy of everything that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.processes import ROOT
from tests.docs.pages import pages

# Prints that nobody asked for, on every build.
_QUIET = {"NO_MKDOCS_2_WARNING": "1"}
_FROM_ANOTHER_HOST = re.compile(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?:https?:)?//[^"]*"')


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does, elsewhere. With --quiet nothing would count as a warning."""
    options = ["--strict", "--config-file", str(configuration), "--site-dir", str(site)]
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options], env=_QUIET, capture_output=True, text=True, check=False
    )


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    built = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 0, built.stderr
    made = list((tmp_path / "site").rglob("*.html"))
    assert len(made) >= len([page for page in pages() if page.startswith("docs/")])
    assert [found for page in made for found in _FROM_ANOTHER_HOST.findall(page.read_text())] == []


def test_a_broken_page_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[no page](nothing.md), [no heading](#nothing)\n")
    (tmp_path / "docs" / "left-out.md").write_text("# In no navigation\n")
    inherited = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {tmp_path / 'docs'}\nnav: [index.md]\n"
    (tmp_path / "mkdocs.yml").write_text(inherited)
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    for problem in ("'nothing.md'", "'#nothing'", "left-out.md", "3 warnings"):
        assert problem in built.stdout + built.stderr


def test_no_text_has_marks_of_an_unfinished_merge() -> None:
    texts = [ROOT / name for name in [*pages(), "CHANGELOG.md", "mkdocs.yml", "Makefile"]]
    marked = [str(text) for text in texts if re.search(r"^(<{7}|>{7}|={7}$)", text.read_text(), re.MULTILINE)]
    assert marked == []


def test_names_of_pages_are_in_one_case() -> None:
    names = [page.removeprefix("docs/") for page in pages() if page.startswith("docs/")]
    assert [name for name in names if not re.fullmatch(r"[a-z/-]+\.md", name)] == []
