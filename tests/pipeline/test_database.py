"""A table of PostgreSQL as sink: each batch once, whatever is killed, and nothing of a batch that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.pipeline import PipelineFailed
from headrace.spark.pipeline.definition.description import DatabaseSink
from headrace.spark.pipeline.sinks.database.copying import copied, csv_of
from headrace.spark.pipeline.sinks.database.tables import Batches
from headrace.spark.pipeline.sinks.database.writer import DatabaseSinkWriter
from headrace.spark.write.fingerprint import BatchId
from tests.pipeline.runs import forget_last_batch, publish, run
from tests.postgres_server import PASSWORD_IN_URL, PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """As a SIGKILL would: nothing catches it."""


class Shop:
    """A database of a user, with what is in it."""

    def __init__(self, postgres: PostgresServer, schema: str) -> None:
        self.url = f"postgresql://postgres:{PASSWORD_IN_URL}@127.0.0.1:{postgres.port}/postgres"
        self.url += f"?options=-csearch_path%3D{schema}"
        self._connection = psycopg.connect(self.url, autocommit=True)
        self.do(f"CREATE SCHEMA {schema}")

    def do(self, statement: str) -> None:
        self._connection.execute(statement)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def left_aside(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_stage_%' ORDER BY 1")

    def sink(self, table: str, **settings: Any) -> DatabaseSink:
        return DatabaseSink(database=self.url, table=table, **settings)

    def close(self) -> None:
        schema = self.ask("SELECT current_schema")[0][0]
        self.do(f"DROP SCHEMA {schema} CASCADE")
        self._connection.close()


@pytest.fixture
def shop(postgres: PostgresServer, topic: str) -> Iterator[Shop]:
    opened = Shop(postgres, topic.replace("-", "_"))
    yield opened
    opened.close()


def opened(sink: DatabaseSink, writer: str = "writer", load: str | None = None) -> DatabaseSinkWriter:
    made = DatabaseSinkWriter(sink, writer, load=load)
    made.open()
    return made


def test_a_stream_writes_each_batch_once(
    spark: SparkSession, url: str, client: Client, topic: str, shop: Shop, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    shop.do("CREATE TABLE orders (number int PRIMARY KEY, customer varchar(20), paid timestamptz DEFAULT now())")
    pipeline = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "number BIGINT NOT NULL, customer STRING"},
        "steps": [{"name": "kept", "sql": "SELECT number, customer FROM source"}],
        "sink": {"database": shop.url, "table": "orders"},
        "run": {"checkpoint": str(tmp_path / "checkpoint")},
    }
    publish(client, topic, [{"number": number, "customer": f"it's {number}"} for number in range(20)])
    assert run(spark, pipeline).messages == 20
    forget_last_batch(tmp_path / "checkpoint")
    publish(client, topic, [{"number": number, "customer": None} for number in range(20, 25)])
    run(spark, pipeline)
    rows = shop.ask("SELECT number, customer FROM orders ORDER BY 1")
    assert rows == [(number, f"it's {number}" if number < 20 else None) for number in range(25)]
    assert shop.ask("SELECT count(*) FROM headrace_batches") == [(1,)]
    assert shop.left_aside() == []

    again = pipeline | {"run": {"checkpoint": str(tmp_path / "other")}}
    shop.do("UPDATE headrace_batches SET writer = 'taken'")
    with pytest.raises(InvalidInput, match=r"sink\.sink_id.*it has written up to batch 1 to orders"):
        run(spark, again | {"sink": {"database": shop.url, "table": "orders", "sink_id": "taken"}})


def test_every_type_arrives_as_it_is(spark: SparkSession, shop: Shop) -> None:
    columns = {
        "flag": ("BOOLEAN", "boolean", [True, False]),
        "tiny": ("TINYINT", "smallint", [-128, 127]),
        "count": ("INT", "bigint", [-(2**31), 2**31 - 1]),
        "large": ("BIGINT", "numeric(20,0)", [-(2**63), 2**63 - 1]),
        "rate": ("DOUBLE", "double precision", [float("inf"), 0.1]),
        "price": ("DECIMAL(20,4)", "numeric(20,4)", [Decimal("-0.0001"), Decimal("1234567890123456.7890")]),
        'Text "quoted"': ("STRING", "text", ["", 'a "quote", a comma,\na line\r\nand \\N \\.']),
        "document": ("STRING", "jsonb", ['{"a": [1, null]}', "null"]),
        "bytes": ("BINARY", "bytea", [b"", bytes(range(256))]),
        "day": ("DATE", "date", [date(1, 1, 1), date(9999, 12, 31)]),
        "at": ("TIMESTAMP", "timestamptz", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 19, 1, 2, 3, 4, UTC)]),
    }
    names = ['"' + name.replace('"', '""') + '"' for name in columns]
    kinds = [kind for _, kind, _ in columns.values()]
    shop.do(f"CREATE TABLE typed ({', '.join(map(' '.join, zip(names, kinds, strict=True)))})")
    rows = [*zip(*(values for _, _, values in columns.values()), strict=True), (None,) * len(columns)]
    spark_names = [f"`{name}` {kind}" for name, (kind, _, _) in columns.items()]
    frame = spark.createDataFrame(rows, ", ".join(spark_names))
    writer = opened(shop.sink("typed"))
    writer.write(writer.prepare(frame), BatchId(0, 1))
    found = shop.ask("SELECT * FROM typed ORDER BY flag DESC NULLS LAST")
    document = list(columns).index("document")
    expected = [list(row) for row in rows]
    expected[0][document], expected[1][document] = {"a": [1, None]}, None
    assert [list(row) for row in found[:2]] == expected[:2]
    assert found[2] == (None,) * len(columns)


@pytest.mark.parametrize("moment", ["copied", "inserted", "committed"])
def test_a_kill_beside_the_commit(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    shop.do("CREATE TABLE numbers (number int)")
    writer = opened(shop.sink("numbers"))
    first, second = (spark.range(start, start + 5).withColumnRenamed("id", "number") for start in (0, 5))
    writer.write(writer.prepare(first), BatchId(0, 7))

    write = DatabaseSinkWriter.write

    def killed(*_: Any) -> None:
        raise Killed

    def killed_after(*given: Any) -> None:
        write(*given)
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if moment == "copied":
            patched.setattr(Batches, "lock", killed)
        elif moment == "inserted":
            patched.setattr(Batches, "put", killed)
        else:
            patched.setattr(DatabaseSinkWriter, "write", killed_after)
        patched.setattr(DatabaseSinkWriter, "_drop", lambda *_: None)
        writer.write(writer.prepare(second), BatchId(1, 8))
    assert len(shop.left_aside()) == (0 if moment == "committed" else 1)
    again = opened(shop.sink("numbers"))
    assert shop.left_aside() == []
    again.write(again.prepare(second), BatchId(1, 8))
    assert shop.ask("SELECT number FROM numbers ORDER BY 1") == [(number,) for number in range(10)]
    assert again.last_batch() == 1
    with pytest.raises(InvalidInput, match="another run"):
        again.write(again.prepare(second), BatchId(1, 9))
    with pytest.raises(InvalidInput, match="older than the table"):
        again.write(again.prepare(second), BatchId(0, 7))


def test_rows_of_attempts_that_failed_do_not_count(spark: SparkSession, shop: Shop) -> None:
    """Rows of an attempt that nobody counts, and rows that a crash of the database has lost."""
    shop.do("CREATE TABLE numbers (number int)")
    writer = opened(shop.sink("numbers"))

    class Attempts:
        """What tasks left aside, seen while they are inserted."""

        seen: int = 0

    put = Batches.lock

    def lock(batches: Batches, connection: psycopg.Connection) -> tuple[int, int | None]:
        (name,) = shop.left_aside()[0]
        Attempts.seen = shop.ask(f"SELECT count(*) FROM {name}")[0][0]
        # Of an attempt that nobody counts.
        shop.do(f"INSERT INTO {name} VALUES ('failed', 99)")
        return put(batches, connection)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Batches, "lock", lock)
        writer.write(writer.prepare(spark.range(10).withColumnRenamed("id", "number")), BatchId(0, 1))
    assert Attempts.seen == 10
    assert shop.ask("SELECT sum(number), count(*) FROM numbers") == [(45, 10)]

    def emptied(batches: Batches, connection: psycopg.Connection) -> tuple[int, int | None]:
        shop.do(f"TRUNCATE {shop.left_aside()[0][0]}")
        return put(batches, connection)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(StoreUnavailable, match="0 are left"):
        patched.setattr(Batches, "lock", emptied)
        writer.write(writer.prepare(spark.range(10).withColumnRenamed("id", "number")), BatchId(1, 2))
    assert shop.ask("SELECT count(*) FROM numbers") == [(10,)]
    assert writer.last_batch() == 0


def test_an_upsert_keeps_the_last_row_of_each_key(spark: SparkSession, shop: Shop) -> None:
    shop.do('CREATE TABLE customers ("Id" int PRIMARY KEY, name text, seen int DEFAULT 7)')
    sink = shop.sink("customers", mode="upsert", keys=["Id"], order_by=["at"])
    writer = opened(sink)
    rows = [(1, "a", 1), (1, "b", 2), (2, "a", 1)]
    frame = spark.createDataFrame(rows, "Id INT, name STRING, at INT").select("Id", "name", "at")
    shop.do("ALTER TABLE customers ADD COLUMN at int")
    writer.write(writer.prepare(frame), BatchId(0, 1))
    writer.write(writer.prepare(spark.createDataFrame([(2, "c", 5), (3, "a", 1)], frame.schema)), BatchId(1, 2))
    assert shop.ask('SELECT "Id", name, seen FROM customers ORDER BY 1') == [(1, "b", 7), (2, "c", 7), (3, "a", 7)]

    unordered = opened(shop.sink("customers", mode="upsert", keys=["Id"]), "unordered")
    with pytest.raises(InvalidInput, match=r"set sink\.order_by"):
        unordered.write(unordered.prepare(frame), BatchId(0, 1))
    with pytest.raises(InvalidInput, match="rows have NULL in one of them"):
        unordered.write(unordered.prepare(spark.createDataFrame([(None, "x", 1)], frame.schema)), BatchId(0, 1))
    assert shop.left_aside() == []


def test_a_load_is_written_once(spark: SparkSession, shop: Shop, tmp_path: Path, url: str) -> None:
    shop.do("CREATE TABLE numbers (number int)")
    (tmp_path / "numbers.csv").write_text("1\n2\n3\n")
    load = {
        "source": {"format": "csv", "path": str(tmp_path / "numbers.csv"), "schema": "number INT"},
        "sink": {"database": shop.url, "table": "numbers"},
        "run": {"report": False},
    }
    assert not run(spark, load).is_repeated
    assert run(spark, load).is_repeated
    assert shop.ask("SELECT count(*) FROM numbers") == [(3,)]


def test_what_a_table_cannot_take_is_refused_before_anything_is_written(spark: SparkSession, shop: Shop) -> None:
    shop.do("CREATE TABLE numbers (number int CHECK (number < 5), twice int GENERATED ALWAYS AS (number * 2) STORED)")
    numbers = spark.range(3).withColumnRenamed("id", "number")
    wrong = {
        "sink.table": (shop.sink("missing"), numbers, "it does not exist in this database"),
        "sink.keys": (shop.sink("numbers", mode="upsert", keys=["number"]), numbers, "no unique index"),
        "column twice": (shop.sink("numbers"), numbers.withColumn("twice", numbers.number), "no such column"),
        "column name": (shop.sink("numbers"), numbers.selectExpr("number AS Number"), "it has number"),
        "column number": (shop.sink("numbers"), numbers.selectExpr("array(number) AS number"), "cannot hold array"),
    }
    for sink, rows, reason in wrong.values():
        with pytest.raises(InvalidInput, match=reason):
            DatabaseSinkWriter(sink, "writer").prepare(rows)
    writer = opened(shop.sink("numbers"))
    many = spark.range(9).withColumnRenamed("id", "number")
    with pytest.raises(InvalidInput, match=r"the database refuses it: .*check constraint.*nothing of this batch"):
        writer.write(writer.prepare(many), BatchId(0, 1))
    assert shop.ask("SELECT count(*) FROM numbers") == [(0,)]
    assert shop.left_aside() == []
    with pytest.raises(StoreUnavailable, match="the database of sink"):
        DatabaseSinkWriter(DatabaseSink(database="postgresql://127.0.0.1:1/none", table="t"), "w").prepare(numbers)
    with pytest.raises(InvalidInput, match=r"sink\.database"):
        DatabaseSinkWriter(DatabaseSink(database="postgresql://h/d?nonsense=1", table="t"), "w").prepare(numbers)


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        ({"database": "mysql://h/d", "table": "t"}, "sink.database"),
        ({"database": "postgresql://h/d"}, "sink"),
        ({"database": "postgresql://h/d", "table": "t", "mode": "upsert"}, "sink.keys"),
        ({"database": "postgresql://h/d", "table": "t", "keys": ["id"]}, "sink.keys"),
        ({"database": "postgresql://h/d", "table": "t", "order_by": ["id"]}, "sink.order_by"),
        ({"database": "postgresql://h/d", "table": "t", "path": "/tmp"}, "sink.path"),
        ({"database": ["secret"], "table": "t"}, "sink.database"),
    ],
)
def test_wrong_keys_are_named(spark: SparkSession, sink: dict[str, Any], field: str) -> None:
    from headrace.spark import Pipeline

    with pytest.raises(InvalidInput) as refused:
        Pipeline.of({"source": {"topic": "t", "mode": "batch"}, "sink": sink})
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


def test_rows_as_csv() -> None:
    rows = pa.record_batch({"b": pa.array([b"\x00\xff", None, b""], pa.binary()), "t": ["a", None, ""]})
    assert csv_of(rows, "p") == b'"p","\\x00ff","a"\n"p",,\n"p","\\x",""\n'
    assert csv_of(rows.slice(1, 2), "p") == b'"p",,\n"p","\\x",""\n'


def test_a_task_that_has_no_rows_says_so(shop: Shop) -> None:
    shop.do("CREATE TABLE aside (headrace_part text, number int)")
    (said,) = copied(shop.url, "COPY aside FROM STDIN (FORMAT csv)")(
        [pa.record_batch({"number": pa.array([], pa.int32())})]
    )
    assert said.column("rows").to_pylist() == [0]


def test_a_failed_batch_ends_the_pipeline_with_its_reason(
    spark: SparkSession, url: str, client: Client, topic: str, shop: Shop, tmp_path: Path
) -> None:
    client.create_topic(topic)
    shop.do("CREATE TABLE numbers (number int CHECK (number < 5))")
    publish(client, topic, [{"number": 9}])
    with pytest.raises(PipelineFailed, match="check constraint"):
        run(
            spark,
            {
                "server": {"url": url},
                "source": {"topic": topic, "schema": "number INT"},
                "steps": [{"name": "kept", "sql": "SELECT number FROM source"}],
                "sink": {"database": shop.url, "table": "numbers"},
                "run": {"checkpoint": str(tmp_path / "checkpoint")},
            },
        )
