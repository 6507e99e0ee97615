"""The pages of pipelines and tables run as a reader would run them.

Each block starts a Spark of its own in a real process, so this takes minutes on a small machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.counts import Record
from tests.docs.pages import PIPELINE_PAGES, run_page

pytestmark = pytest.mark.timeout(1_800.0)


@pytest.mark.parametrize("page", sorted(PIPELINE_PAGES))
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, record_property: Record) -> None:
    run_page(page, tmp_path, record_property)
