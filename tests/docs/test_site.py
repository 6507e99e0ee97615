"""The site has every page, and its own copy of everything that it shows."""

from __future__ import annotations

import re

from tests.cli.processes import ROOT
from tests.docs.pages import pages


def test_every_page_is_in_the_navigation() -> None:
    entries = {line.strip().removeprefix("- ") for line in (ROOT / "mkdocs.yml").read_text().splitlines()}
    listed = {page.removeprefix("docs/") for page in pages() if page.startswith("docs/")}
    assert listed - entries == set()


def test_names_of_pages_are_in_one_case() -> None:
    names = [page.removeprefix("docs/") for page in pages() if page.startswith("docs/")]
    assert [name for name in names if not re.fullmatch(r"[a-z/-]+\.md", name)] == []


def test_fonts_are_not_loaded_from_other_hosts() -> None:
    assert "font: false" in (ROOT / "mkdocs.yml").read_text()
