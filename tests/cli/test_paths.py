"""Names in the paths that the command line asks for."""

from __future__ import annotations

import httpx
import pytest

from headrace.cli.remote.paths import path_of


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "a%2Fb", "ä?#", "a..b"])
def test_a_name_stays_one_part_of_the_path(name: str) -> None:
    url = httpx.URL("http://127.0.0.1").join(path_of("topics", name, "messages"))
    assert url.raw_path.decode() == path_of("topics", name, "messages")
    assert url.raw_path.count(b"/") == 4
