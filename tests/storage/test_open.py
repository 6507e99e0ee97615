"""Store URLs: which engine they mean, and what is wrong with those that mean none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.storage.disk.engine import DiskStore
from headrace.storage.memory.engine import MemoryStore
from headrace.storage.open import disk_directory, open_catalog, open_store


def opened(url: str) -> str:
    store = open_store(url)
    store.close()
    return type(store).__name__


def test_memory_is_a_store_in_memory() -> None:
    assert opened("memory:") == MemoryStore.__name__


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:{root}/a", "a"),
        ("file://{root}/b", "b"),
        ("file:{root}/a%20b%3F%23", "a b?#"),
        ("file:{root}/x?durability=os&segment_bytes=1&segment_frames=16777216", "x"),
        ("file:{root}/with:colon/and spaces", "with:colon/and spaces"),
        ("file:{root}/y?", "y"),
        ("file:{root}/z?segment_bytes=1099511627776&segment_frames=1", "z"),
    ],
)
def test_file_is_a_store_in_a_directory(tmp_path: Path, url: str, path: str) -> None:
    assert opened(url.format(root=tmp_path)) == DiskStore.__name__
    assert (tmp_path / path / "catalog.sqlite").is_file()


@pytest.mark.parametrize("url", ["file:data", "file:./data", "file:./data/"])
def test_a_path_without_a_root_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url)
    # Going elsewhere later changes nothing.
    monkeypatch.chdir("/")
    store.stages.drop_topic(1)
    store.close()
    assert (tmp_path / "data" / "catalog.sqlite").is_file()


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "begin with file:, postgresql: or memory:"),
        ("memory", "begin with file:, postgresql: or memory:"),
        ("file", "begin with file:, postgresql: or memory:"),
        ("/var/lib/headrace", "begin with file:, postgresql: or memory:"),
        ("FILE:/x", "begin with file:, postgresql: or memory:"),
        ("memory:x", "has no path and no options"),
        ("memory:?durability=os", "has no path and no options"),
        ("file:", "write it as file:DIRECTORY"),
        ("file:?durability=os", "write it as file:DIRECTORY"),
        ("file://host/path", "write it as file:DIRECTORY"),
        ("file://[::1/path", "write it as file:DIRECTORY"),
        ("file:{root}/a#b", "write it as file:DIRECTORY"),
        ("file:{root}/a%00b", "write it as file:DIRECTORY"),
        ("file:{root}/a?durability", "options are durability, segment_bytes, segment_frames"),
        ("file:{root}/a?colour=red", "options are durability, segment_bytes, segment_frames"),
        ("file:{root}/a?durability=maybe", "durability"),
        ("file:{root}/a?segment_bytes=", "segment_bytes"),
        ("file:{root}/a?segment_bytes=0", "segment_bytes"),
        ("file:{root}/a?segment_bytes=1k", "segment_bytes"),
        ("file:{root}/a?segment_bytes=1099511627777", "segment_bytes"),
        ("file:{root}/a?segment_frames=-1", "segment_frames"),
        ("file:{root}/a?segment_frames=16777217", "segment_frames"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(tmp_path: Path, url: str, rule: str) -> None:
    url = url.format(root=tmp_path)
    with pytest.raises(InvalidInput) as caught:
        open_store(url)
    assert (caught.value.field, caught.value.value) == ("store", repr(url))
    assert rule in caught.value.rule
    assert list(tmp_path.iterdir()) == []


class TestCatalogAlone:
    def test_it_can_be_opened_while_the_store_is(self, tmp_path: Path) -> None:
        url = f"file:{tmp_path}/store"
        store = open_store(url)
        catalog = open_catalog(url)
        assert catalog.topics() == []
        catalog.close()
        store.close()

    def test_it_is_not_made_if_it_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable):
            open_catalog(f"file:{tmp_path}/new/store?durability=os")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["memory:", "store", "file:"])
    def test_only_a_disk_store_has_one(self, url: str) -> None:
        with pytest.raises(InvalidInput):
            open_catalog(url)


def test_the_directory_of_a_disk_store(tmp_path: Path) -> None:
    assert disk_directory(f"file:{tmp_path}/store?durability=os") == tmp_path / "store"
    with pytest.raises(InvalidInput, match="it must be a store with file:"):
        disk_directory("memory:")
