"""Tables whose archive is on a real S3 server, in DuckDB and as Iceberg tables."""

from __future__ import annotations

from pathlib import Path

from headrace.tables.iceberg import open_catalog, sync_iceberg
from headrace.tables.sql import run_sql
from tests.storage.archive.object_store import ObjectStore
from tests.tables.archives import archive_site


def test_archive_and_tail_are_one_table(tmp_path: Path) -> None:
    with ObjectStore() as store, archive_site(tmp_path, store.url) as site:
        site.create("orders")
        site.publish("orders", range(100))
        site.archive("orders")
        site.publish("orders", range(100, 120), codec="zstd")
        site.archive("orders")
        site.publish("orders", range(120, 130))
        site.client.alter_topic("orders", value_schema={"type": "object", "properties": {"id": {"type": "integer"}}})
        site.publish("orders", range(130, 140))
        site.archive("orders")
        site.publish("orders", range(140, 150))
        typed = run_sql(site.client, "SELECT count(DISTINCT id) AS ids, count(value_error) AS wrong FROM orders")
        assert typed.to_pylist() == [{"ids": 150, "wrong": 0}]
        query = "SELECT count(*) AS n, count(DISTINCT value) AS v FROM orders WHERE timestamp > now() - INTERVAL 1 HOUR"
        assert run_sql(site.client, query).to_pylist() == [{"n": 150, "v": 150}]
        catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
        synced = sync_iceberg(site.client, "orders", catalog)
        assert (synced.rows, synced.added) == (140, 3)
