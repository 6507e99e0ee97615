"""Topics as tables in Spark: its own Parquet reader for the archive, the broker for the tail, one moment for both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace.spark
from headrace.core.errors import InvalidInput
from headrace.spark.pipeline import Pipeline
from headrace.spark.reader.tables import table_frame
from headrace.tables.sql import quoted, run_sql
from tests.core.values.test_schema import of
from tests.tables.archives import ArchiveSite, archive_site
from tests.tables.test_typed import EVERY_TYPE, EVERY_VALUE, every_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "codec")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    with archive_site(tmp_path_factory.mktemp("tables")) as opened:
        yield opened


@pytest.fixture(scope="module")
def orders(site: ArchiveSite) -> str:
    """A topic with a file of plain values, one of compressed ones, and a tail."""
    site.create("orders", 3)
    site.publish("orders", range(300))
    site.archive("orders")
    site.clock.step(3600)
    site.publish("orders", range(300, 400), codec="zstd")
    site.archive("orders")
    site.clock.step(3600)
    site.publish("orders", range(400, 450), codec="gzip")
    return "orders"


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(frame.select(*COLUMNS).collect())


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def rows_scanned(frame: DataFrame) -> int:
    """How many rows Spark's scans of Parquet files returned when the frame was collected."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    read = [scan.metrics().apply("numOutputRows").value() for scan in scans if "parquet" in scan.nodeName()]
    assert read, plan_of(frame)
    return sum(read)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decode": False},
        {"startingOffsets": {"0": 50, "1": 120, "2": 0}, "endingOffsets": {"0": 130, "1": 125, "2": 20}},
        {"startingOffsets": -10},
    ],
)
def test_the_rows_are_those_of_the_broker(
    spark: SparkSession, site: ArchiveSite, orders: str, options: dict[str, Any]
) -> None:
    read = headrace.spark.read(spark, orders, url=site.url, **options)
    assert rows_of(headrace.spark.table(spark, orders, url=site.url, **options)) == rows_of(read)


def test_bounds_of_many_partitions(
    spark: SparkSession, site: ArchiveSite, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"startingOffsets": {"0": 50, "1": 20, "2": 0}, "endingOffsets": {"0": 60, "1": 25, "2": 20}}
    found = rows_of(headrace.spark.table(spark, orders, url=site.url, **options))
    monkeypatch.setattr(table_frame, "_TERMS_MAX", 0)
    assert rows_of(headrace.spark.table(spark, orders, url=site.url, **options)) == found and len(found) == 35


def test_a_table_is_of_one_moment(spark: SparkSession, site: ArchiveSite) -> None:
    """What is published, archived and merged after it was opened changes nothing."""
    site.create("moment", 2)
    site.publish("moment", range(30))
    site.archive("moment")
    site.publish("moment", range(30, 40))
    opened = headrace.spark.table(spark, "moment", url=site.url)
    before = len(site.client.archive("moment").files)
    for number in range(20):
        site.publish("moment", range(number))
        site.archive("moment")
    assert len(site.client.archive("moment").files) < before + 20, "small files were merged"
    found = [(row.partition, row.offset) for row in opened.collect()]
    assert len(found) == len(set(found)) == 40
    now = headrace.spark.table(spark, "moment", url=site.url)
    assert now.count() == sum(end for _, end in site.client.offsets("moment").values())


def test_filters_reach_the_statistics(spark: SparkSession, site: ArchiveSite) -> None:
    site.create("hours", 1)
    for hour in range(3):
        site.publish("hours", range(hour * 10, hour * 10 + 10))
        site.archive("hours")
        site.clock.step(3600)
    second = datetime.fromtimestamp(site.client.archive("hours").files[1].first_us / 1e6, UTC)
    session = spark.newSession()
    session.conf.set("spark.sql.maxMetadataStringLength", "10000")
    rows = headrace.spark.table(session, "hours", url=site.url).where(
        f"timestamp >= '{second.isoformat()}' AND offset < 20 AND key > '0'"
    )
    assert {row.offset for row in rows.select("offset").collect()} == set(range(10, 20))
    plan = plan_of(rows)
    for pushed in ("GreaterThanOrEqual(timestamp", "LessThan(offset,20)", "GreaterThan(key"):
        assert pushed in plan, plan
    # Each hour is a row group. Keys are text: 0 to 9, 10 to 19, 20 to 29.
    for condition, found, scanned in (
        ("true", 30, 30),
        (f"timestamp >= '{second.isoformat()}'", 20, 20),
        (f"timestamp < '{second.isoformat()}'", 10, 10),
        ("offset < 15", 15, 20),
        ("offset >= 20", 10, 10),
        ("key >= '3'", 7, 10),
        ("key >= '15' AND key < '18'", 3, 20),
    ):
        chosen = headrace.spark.table(session, "hours", url=site.url).where(condition)
        assert (len(chosen.collect()), rows_scanned(chosen)) == (found, scanned), condition


def test_bounded_pipelines_read_the_archive(
    spark: SparkSession, site: ArchiveSite, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    tables = {
        "server": {"url": site.url},
        "source": {"topic": orders, "mode": "batch"},
        "steps": [{"name": "counted", "sql": "SELECT count(*) AS n, count(DISTINCT value) AS v FROM source"}],
        "sink": {"format": "report"},
    }
    pipeline = Pipeline.of(tables)
    pipeline.run(spark)
    assert pipeline.report is not None and pipeline.report.rows == [[450, 450]]
    snapshot = site.client.archive(orders)
    assert snapshot.url is not None
    file = Path(snapshot.url.removeprefix("file://")) / snapshot.files[0].path
    away = file.rename(file.with_suffix(".away"))
    with pytest.raises(Exception, match="cannot be read"):
        headrace.spark.table(spark, orders, url=site.url)
    again = Pipeline.of(tables)
    with caplog.at_level("WARNING"):
        again.check(spark)
    assert "everything is read from the broker" in caplog.text, "an archive that Spark does not reach is no obstacle"
    away.rename(file)


def test_columns_of_values_are_those_of_duckdb(spark: SparkSession, site: ArchiveSite) -> None:
    site.create("typed", 1)
    site.publish("typed", [
        b'{"id": 1, "half": 2, "seen": "2026-01-01T00:00:00Z", "tags": ["a"], "key": "k"}', b'{"id": "1"}',
        b'{"half": 1}', b'{"id": 2, "tags": null}', b"\xff", b"[]", b'{"id": 1.5}', b'{"id": 3, "half": "x"}',
        b"", b"{",
    ])  # fmt: skip
    site.archive("typed")
    site.publish("typed", range(2))
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "half": {"type": "number"},
            "seen": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "key": {"type": "string"},
        },
        "required": ["id"],
    }
    names = '"offset", id, half, epoch(seen) AS seen, tags, value_key, value_error IS NULL AS fits'
    duckdb = run_sql(site.client, f'SELECT {names} FROM typed ORDER BY "offset"', schema).to_pylist()
    rows = headrace.spark.table(spark, "typed", url=site.url, value_schema=schema).selectExpr(
        "offset", "id", "half", "CAST(unix_seconds(seen) AS DOUBLE) AS seen", "tags", "value_key",
        "value_error IS NULL AS fits",
    )  # fmt: skip
    assert [row.asDict() for row in rows.orderBy("offset").collect()] == duckdb
    assert sum(row["fits"] for row in duckdb) == 4


def test_columns_of_values_of_topics_with_a_schema(spark: SparkSession, site: ArchiveSite) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "at.x": {"type": "string"}}}
    grown = schema | {"properties": {**schema["properties"], "in": of(a={"type": "array"})}}  # type: ignore[dict-item]
    value = b'{"id": 7, "at.x": "y", "in": {"a": [1]}}'
    site.create("own", 1)
    for given in (None, schema, grown):
        site.client.alter_topic("own", value_schema=given)
        site.publish("own", [value])
        site.publish("own", [value], codec="zstd")
        site.archive("own")
    site.publish("own", [value, b"x"])
    rows = headrace.spark.table(spark, "own", url=site.url)
    assert rows.columns[-4:] == ["id", "at.x", "in", "value_error"]
    found = rows.orderBy("offset").selectExpr("id", "`at.x`", "in.a", "value_error").collect()
    assert [tuple(row) for row in found[:7]] == [(7, "y", ["1"], None)] * 7
    assert tuple(found[7])[:3] == (None, None, None) and "not JSON" in found[7]["value_error"]
    assert rows.where("id = 7 AND value_error IS NULL").count() == 7
    assert headrace.spark.table(spark, "own", url=site.url, columns=["offset"]).columns == ["offset"]
    site.create("other", 1, value_schema={"type": "object", "properties": {"id": {"type": "string"}}})
    with pytest.raises(InvalidInput, match="'id'"):
        headrace.spark.table(spark, ["own", "other"], url=site.url)
    both = headrace.spark.table(spark, ["own", "typed"], url=site.url)
    assert both.where("topic = 'typed' AND id IS NULL").count() == both.where("topic = 'typed'").count() > 0


def test_every_type_of_avro_is_that_of_duckdb(spark: SparkSession, site: ArchiveSite) -> None:
    site.create("every-type", 1)
    site.publish("every-type", [every_value(), b"x"])
    site.archive("every-type")
    site.client.alter_topic("every-type", value_schema=EVERY_TYPE)
    for _ in range(2):
        site.publish("every-type", [every_value(), b"x"])
        frame = headrace.spark.table(spark, "every-type", url=site.url).orderBy("offset")
        names = [*EVERY_VALUE, "value_error"]
        query = f'SELECT {", ".join(quoted(name) for name in names)} FROM "every-type" ORDER BY "offset"'
        duckdb = run_sql(site.client, query)
        rows = frame.select(*names).toArrow()
        assert rows.to_pylist(maps_as_pydicts="strict") == duckdb.to_pylist(maps_as_pydicts="strict")
        assert rows["price"].type == duckdb["price"].type and rows.slice(0, 1) == rows.slice(rows.num_rows - 2, 1)
        assert frame.where("price < 0 AND in.maps[0]['k'] IS NOT NULL AND tags['b'] = -2").count() == rows.num_rows / 2
        site.archive("every-type")


def test_options_are_checked_first(spark: SparkSession, site: ArchiveSite) -> None:
    with pytest.raises(InvalidInput, match="streams only"):
        headrace.spark.table(spark, "orders", url=site.url, group="g")
