"""One server with an archive for all tests here, and a name of its own for the topic of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.tables.archives import ArchiveSite, archive_site

_numbers = itertools.count()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    with archive_site(tmp_path_factory.mktemp("tables")) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"table-{next(_numbers)}"
