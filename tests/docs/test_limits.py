"""docs/limits.md has every limit of core/limits.py, and every setting of a server that is a number."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from headrace.cli.server import settings
from tests.cli.processes import ROOT


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/reference/generate_limits.py, which is no module of the package."""
    found = importlib.util.spec_from_file_location("generate_limits", ROOT / "docs/reference/generate_limits.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_limit_has_a_meaning_and_a_place(generator: ModuleType) -> None:
    listed = [name for rows in generator.MEANINGS.values() for name in rows]
    assert set(listed) == generator.names()
    assert len(listed) == len(set(listed))


def test_every_setting_that_bounds_something_is_listed(generator: ModuleType) -> None:
    page = generator.page()
    bounding = [
        name for name in settings.names() if name.endswith(generator.ENDINGS) and not name.startswith("topic_defaults.")
    ]
    assert len(bounding) > 15
    assert [name for name in bounding if f"| `{name}` |" not in page] == []


def test_the_page_is_current(generator: ModuleType) -> None:
    assert (ROOT / "docs/limits.md").read_text() == generator.page(), "run `make docs`"
