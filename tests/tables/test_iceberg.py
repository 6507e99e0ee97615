"""Archived topics as Iceberg tables, read by pyiceberg alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput
from headrace.tables.iceberg import IcebergSync, open_catalog, sync_iceberg
from tests.tables.archives import ArchiveSite


def test_files_are_added_and_merged_ones_replaced(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    site.create(topic)
    synced: list[IcebergSync] = []
    files = 0
    # Until the archive has merged small files: then fewer are left than were written.
    while not synced or synced[-1].removed == 0:
        assert files < 50
        files += 1
        site.publish(topic, range(files * 10))
        site.archive(topic)
        site.publish(topic, range(5))
        synced.append(sync_iceberg(site.client, topic, catalog))
        table = catalog.load_table(("headrace", topic))
        rows = table.scan().to_arrow()
        archived = sum(site.client.archive(topic).complete.values())
        assert len(rows) == len(set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)))
        assert len(rows) == archived == synced[-1].rows, "what is archived, and nothing of the tail"
    again = sync_iceberg(site.client, topic, catalog)
    assert (again.added, again.removed) == (0, 0)
    assert len(catalog.load_table(("headrace", topic)).snapshots()) == len(synced)
    first = catalog.load_table(("headrace", topic)).scan(row_filter="partition = 0 and offset < 3").to_arrow()
    assert first["offset"].to_pylist() == [0, 1, 2]


def test_the_command_syncs_again(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    """What is archived while it runs is in the table after its next sync, and it prints only what changed."""
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", tmp_path.as_uri()
    site.create(topic)
    site.publish(topic, range(3))
    site.archive(topic)
    where = ["--catalog-uri", uri, "--warehouse", warehouse, "--every", "1", "--url", site.url]
    command = [sys.executable, "-m", "headrace", "table", "iceberg", topic, *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == f"headrace.{topic}: 3 rows in 1 file, 1 added, 0 removed\n"
            site.publish(topic, range(4))
            site.archive(topic)
            assert running.stdout.readline() == f"headrace.{topic}: 7 rows in 2 files, 1 added, 0 removed\n"
        finally:
            running.kill()
    assert len(open_catalog(uri=uri).load_table(("headrace", topic)).scan().to_arrow()) == 7


def test_a_table_of_a_topic_that_was_deleted_is_not_continued(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    site.create(topic)
    site.publish(topic, range(3))
    site.archive(topic)
    sync_iceberg(site.client, topic, catalog)
    site.client.delete_topic(topic)
    site.create(topic)
    with pytest.raises(InvalidInput, match="drop it"):
        sync_iceberg(site.client, topic, catalog)
