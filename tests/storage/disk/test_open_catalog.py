"""The catalog of a store without the store: what the token commands work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.storage.open import open_catalog, open_store
from headrace.storage.tokens import TokenRecord

TOKEN = TokenRecord("id", "name", "hash", (), 0)


def test_beside_a_process_that_has_the_store_open(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store?durability=os"
    store = open_store(url)
    catalog = open_catalog(url)
    catalog.tokens.add(TOKEN)
    assert store.catalog.tokens.all() == [TOKEN]
    catalog.close()
    store.close()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no store here"):
        open_catalog(f"file:{tmp_path}/new/store")
    assert list(tmp_path.iterdir()) == []


def test_only_on_disk(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="file:"):
        open_catalog("memory:")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        open_catalog(f"file:{tmp_path}/file")
