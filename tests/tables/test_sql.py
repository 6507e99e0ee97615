"""Topics in DuckDB: the archive and the tail as one table, while both change, and the columns of their values."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.errors import InvalidInput, OffsetOutOfRange, StoreUnavailable, TopicNotFound
from headrace.tables import sql
from headrace.tables.snapshot import TableSnapshot, table_snapshot
from headrace.tables.sql import run_sql
from tests.tables.archives import ArchiveSite

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "half": {"type": "number"},
        "offset": {},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "from": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
    "required": ["id"],
}


def test_archive_and_tail_are_one_table(site: ArchiveSite, topic: str) -> None:
    site.create(topic)
    site.publish(topic, range(100))
    site.archive(topic)
    site.publish(topic, range(100, 150), codec="zstd")
    site.archive(topic)
    site.publish(topic, range(150, 170), codec="gzip")
    query = f'SELECT count(*) AS n, count(DISTINCT value) AS different, count(codec) AS encoded FROM "{topic}"'
    assert run_sql(site.client, query).to_pylist() == [{"n": 170, "different": 170, "encoded": 0}]
    with duckdb.connect() as connection:
        headrace.table(topic, client=site.client, connection=connection)
        joined = f'SELECT count(*) FROM "{topic}" one JOIN "{topic}" other USING (partition, "offset")'
        assert connection.sql(joined).fetchall() == [(170,)]
    stored = site.client.to_arrow(topic).select(["partition", "offset", "value", "timestamp"])
    found = run_sql(site.client, f'SELECT partition, "offset", value, timestamp FROM "{topic}" ORDER BY ALL')
    assert found.to_pylist() == stored.to_pylist()


def test_nothing_is_twice_or_missing_while_archiving_and_publishing_go_on(site: ArchiveSite, topic: str) -> None:
    site.create(topic)
    is_over = threading.Event()

    def work() -> None:
        number = 0
        while not is_over.is_set():
            site.publish(topic, range(number, number + 20))
            site.clock.step(1)
            site.broker.archiving.archive()
            number += 20

    worker = threading.Thread(target=work)
    worker.start()
    try:
        query = (
            'SELECT partition, count(*) AS n, count(DISTINCT "offset") AS different, max("offset") + 1 AS last '
            f'FROM "{topic}" GROUP BY ALL'
        )
        seen = 0
        while seen < 500:
            rows = run_sql(site.client, query).to_pylist()
            for row in rows:
                assert row["n"] == row["different"] == row["last"], "dense from 0 on"
            assert sum(row["n"] for row in rows) >= seen
            seen = sum(row["n"] for row in rows)
    finally:
        is_over.set()
        worker.join()


def test_what_was_deleted_while_the_archive_was_off_is_in_no_table(site: ArchiveSite, topic: str) -> None:
    site.create(topic, 1)
    site.publish(topic, range(5))
    site.archive(topic)
    site.client.alter_topic(topic, archive="off", retention_seconds=1)
    site.publish(topic, range(5, 9))
    site.clock.step(1000)
    site.broker.maintenance.run_all()
    site.publish(topic, range(9, 12))
    query = f'SELECT list("offset" ORDER BY "offset") AS found FROM "{topic}"'
    assert run_sql(site.client, query).to_pylist() == [{"found": [0, 1, 2, 3, 4, 9, 10, 11]}]
    site.client.alter_topic(topic, archive="on", retention_seconds=None)
    site.archive(topic)
    assert run_sql(site.client, query).to_pylist() == [{"found": [0, 1, 2, 3, 4, 9, 10, 11]}]


def test_what_is_deleted_between_the_snapshot_and_the_read_of_the_tail(
    site: ArchiveSite, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(topic, 1)
    site.publish(topic, range(10))
    deleted = iter([3, 6])

    def overtaken(archive: ArchiveSnapshot) -> TableSnapshot:
        for offset in deleted:
            site.client.delete_messages(topic, {0: offset})
            break
        return table_snapshot(archive)

    monkeypatch.setattr(sql, "table_snapshot", overtaken)
    assert run_sql(site.client, f'SELECT "offset" FROM "{topic}"')["offset"].to_pylist() == [6, 7, 8, 9]
    deleted = iter([7, 8, 9, 10, 10])
    site.publish(topic, range(5))
    monkeypatch.setattr(sql, "_TRIES", 2)
    with pytest.raises(OffsetOutOfRange):
        run_sql(site.client, f'SELECT "offset" FROM "{topic}"')


def test_columns_of_values(site: ArchiveSite, topic: str) -> None:
    site.create(topic, 1)
    site.publish(topic, [
        b'{"id": 1, "offset": 7, "at": "2026-01-01T00:00:00Z", "tags": ["a"], "from": {"x": 1}, "more": 1}',
        b'{"id": "1"}', b'{"half": 1}', b'{"id": 2, "half": null}', b"\xff", b"[]", b'{"id": 1.5}',
    ])  # fmt: skip
    site.archive(topic)
    query = f'SELECT * EXCLUDE (timestamp) FROM "{topic}" ORDER BY "offset"'
    rows = run_sql(site.client, query, SCHEMA).to_pylist()
    assert [row["id"] for row in rows] == [1, None, None, 2, None, None, None]
    assert rows[0]["value_offset"] == "7" and rows[0]["offset"] == 0, "a message's own columns keep their names"
    assert rows[0]["at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert (rows[0]["tags"], rows[0]["from"]) == (["a"], {"x": 1})
    told = [row["value_error"] for row in rows]
    assert told[0] is None and told[3] is None
    assert told[1] == "the field id: expected integer, got string" and "got number" in told[6]
    assert told[2] == "the field id is missing"
    assert "UTF-8" in told[4] and "JSON object" in told[5]
    assert rows[1]["value"] == b'{"id": "1"}'


def test_queries_that_cannot_run(site: ArchiveSite, topic: str) -> None:
    site.create(topic)
    with pytest.raises(TopicNotFound):
        run_sql(site.client, "SELECT * FROM nowhere")
    for query in ("SELEC 1", f'DELETE FROM "{topic}"', f'SELECT nothing FROM "{topic}"'):
        with pytest.raises(InvalidInput, match="query"):
            run_sql(site.client, query)


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{out}'",
        "COPY \"{topic}\" TO '{out}'",
        "COPY \"{topic}\" FROM '{secret}'",
        "EXPORT DATABASE '{out}'",
        "IMPORT DATABASE '{out}'",
        "ATTACH '{out}'",
        "INSTALL httpfs",
        "FORCE INSTALL spatial FROM community",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA enable_profiling",
        "CALL enable_logging()",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "CREATE TABLE made AS SELECT 1",
        'DROP VIEW "{topic}"',
        "SELECT 1; COPY (SELECT 1) TO '{out}'",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
    ],
)
def test_only_one_select_is_a_query(site: ArchiveSite, topic: str, tmp_path: Path, query: str) -> None:
    site.create(topic)
    secret, out = tmp_path / "secret", tmp_path / "out"
    secret.write_text("a secret")
    with pytest.raises(InvalidInput, match="it must be one SELECT"):
        run_sql(site.client, query.format(topic=topic, secret=secret, out=out))
    assert sorted(tmp_path.iterdir()) == [secret]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT (SELECT content FROM read_text('{secret}')) AS found",
        "SELECT * FROM \"{topic}\" WHERE value = (SELECT content FROM read_blob('{secret}'))",
        "SELECT * FROM glob('{directory}/*')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM parquet_schema('{other}')",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM query('FROM read_text(''{secret}'')')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{out}''')",
        "SELECT * FROM query_table(['{secret}'])",
        "SELECT * FROM import_database('{directory}')",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = '{out}')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/a.csv')",
        "SELECT * FROM read_parquet('s3://bucket/a.parquet')",
        "SELECT st_point(1, 2)",
        "WITH made AS (COPY (SELECT 1) TO '{out}') SELECT 1",
        'WITH made AS (INSERT INTO "{topic}" SELECT * FROM "{topic}" RETURNING *) SELECT * FROM made',
        "WITH made AS (FROM read_text('{secret}')) SELECT * FROM made",
        "SELECT * FROM hidden",
    ],
)
def test_a_query_reaches_topics_only(site: ArchiveSite, topic: str, tmp_path: Path, query: str) -> None:
    hidden = pa.table({"content": ["a variable of Python"]})
    secret, out, other = tmp_path / "secret", tmp_path / "out", tmp_path / "other.parquet"
    secret.write_text("a secret")
    pq.write_table(hidden, other)
    site.create(topic)
    site.publish(topic, range(3))
    site.archive(topic)
    with pytest.raises((InvalidInput, TopicNotFound)):
        run_sql(site.client, query.format(topic=topic, secret=secret, out=out, other=other, directory=tmp_path))
    assert sorted(tmp_path.iterdir()) == [other, secret]


def test_files_beside_topics_are_for_connections_of_ones_own(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    site.create(topic)
    site.publish(topic, range(3))
    names = tmp_path / "names.csv"
    names.write_text("id,name\n1,ann\n")
    joined = f"SELECT name FROM \"{topic}\" JOIN read_csv('{names}') ON decode(key) = id::VARCHAR"
    with pytest.raises(InvalidInput, match=r"may read topics only; for files .* headrace.table"):
        run_sql(site.client, joined)
    with duckdb.connect() as connection:
        headrace.table(topic, client=site.client, connection=connection)
        assert connection.sql(joined).fetchall() == [("ann",)]


def test_errors_of_rows_are_errors_of_the_query(site: ArchiveSite, topic: str) -> None:
    site.create(topic)
    site.publish(topic, [b"one"])
    with pytest.raises(InvalidInput, match="Conversion Error"):
        run_sql(site.client, f'SELECT decode(value)::INT FROM "{topic}"')


def test_a_file_that_is_gone_is_named(site: ArchiveSite, topic: str) -> None:
    site.create(topic)
    site.publish(topic, range(3))
    site.archive(topic)
    snapshot = site.client.archive(topic)
    assert snapshot.url is not None
    file = Path(f"{snapshot.url.removeprefix('file://')}/{snapshot.files[0].path}")
    away = file.rename(file.with_suffix(".away"))
    with pytest.raises(StoreUnavailable, match="open it again"):
        run_sql(site.client, f'SELECT count(*) FROM "{topic}"')
    away.rename(file)
