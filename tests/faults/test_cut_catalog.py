"""The file of the catalog is cut: the store is refused, or everything that was in it is still known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import StorageError, StoreUnavailable
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.faults.invariants import Message, batch_of

PAGE_BYTES = 4096


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A store with groups on more than one page of the catalog, closed cleanly."""
    with Broker(DiskStore(tmp_path / "store", DiskOptions())) as broker:
        broker.create_topic("t", 4)
        broker.publish("t", batch_of([Message(b"%d" % n, partition=n % 4) for n in range(40)]))
        for number in range(60):
            broker.register_group("t", f"group-{number}-{'x' * 100}")
            broker.commit_offsets("t", f"group-{number}-{'x' * 100}", {0: 9, 1: 8, 2: 7, 3: 6})
    return tmp_path / "store"


def test_a_cut_catalog_never_puts_a_group_back(closed: Path, tmp_path: Path) -> None:
    whole = (closed / "catalog.sqlite").read_bytes()
    assert len(whole) > 4 * PAGE_BYTES
    cuts = {place + more for place in range(0, len(whole), PAGE_BYTES) for more in (0, 1, PAGE_BYTES // 2)}
    for cut in sorted(cut for cut in cuts if cut < len(whole)):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(closed, copy)
        (copy / "catalog.sqlite").write_bytes(whole[:cut])
        with pytest.raises(StorageError) as caught:
            DiskStore(copy, DiskOptions())
        assert "restore" in str(caught.value), f"cut at {cut}: {caught.value}"


def test_a_catalog_without_its_tables_is_refused(closed: Path) -> None:
    import sqlite3

    with sqlite3.connect(closed / "catalog.sqlite") as database:
        database.execute("DROP TABLE all_consumers")
    database.close()
    with pytest.raises(StoreUnavailable, match="has no table all_consumers: restore it from a backup"):
        DiskStore(closed, DiskOptions())
