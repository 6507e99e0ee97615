"""Streams on a real Spark: every row in one end, once, over batches that are done again."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.pipeline import Pipeline, PipelineFailed, Progress
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.definition.load import describe
from headrace.spark.pipeline.run.checkpoint import lock_of
from headrace.spark.pipeline.run.lock import Lock
from headrace.spark.pipeline.sinks.table_sink import DeltaSinkWriter, TableSinkWriter
from headrace.spark.write.fingerprint import BatchId
from tests.pipeline.runs import forget_last_batch, messages, publish, run, run_ready, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def large(id: int) -> dict[str, int]:
    return {"id": id, "double": id * 2}


def test_from_topic_to_topic_with_dead_letters_and_without_repeats(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "id BIGINT NOT NULL, name STRING", "group": "g"},
        "deduplicate": {"by": "payload"},
        "steps": [
            {"name": "doubled", "sql": "SELECT id, id * 2 AS double, message.key AS account FROM source"},
            {"name": "large", "sql": "SELECT * FROM doubled WHERE double >= 4"},
        ],
        "sink": {
            "topic": f"{topic}-out", "partitions": 1, "key": "account", "value": "to_json(struct(id, double))",
            "attributes": {"kind": "'large'"}, "order_by": ["id DESC"],
        },
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }  # fmt: skip
    bad = [b"no JSON", b'{"id": "text"}', b'{"name": "no id"}', b"\xff\xfe", b"", b"[]"]
    publish(client, topic, [{"id": number % 6, "name": "n"} for number in range(12)], "id")
    publish(client, topic, bad)
    first = run(spark, tables)
    assert (first.messages, first.dead_letters) == (18, 6)
    assert values(client, f"{topic}-out") == [large(number) for number in (2, 3, 4, 5)]
    written = messages(client, f"{topic}-out")
    assert [row["key"] for row in written] == [b"5", b"4", b"3", b"2"], "in the order asked for"
    assert all(row["attributes"] == [("kind", b"large")] for row in written)
    dead = messages(client, f"{topic}-dead")
    assert sorted(row["value"] for row in dead) == sorted(bad)
    for row in dead:
        told = dict(row["attributes"])
        assert told["headrace.topic"] == topic.encode() and told["headrace.offset"].isdigit()
    reasons = {row["value"]: dict(row["attributes"])["headrace.reason"] for row in dead}
    assert b"UTF-8" in reasons[b"\xff\xfe"] and b"id is missing" in reasons[b'{"name": "no id"}']

    # The batch is done again, and a repeat of what the state remembers comes with something new.
    assert forget_last_batch(tmp_path / "cp") == 0
    publish(client, topic, [{"id": 5, "name": "n"}, {"id": 7, "name": "n"}], "id")
    second = run(spark, tables)
    assert second.messages == 20 and second.batches == 2, "the old batch again, then the new one"
    assert values(client, f"{topic}-out") == [large(number) for number in (2, 3, 4, 5, 7)]
    assert len(messages(client, f"{topic}-dead")) == 6
    # The group's progress is told with the next look at the topic: here the start of the second batch.
    assert sum(client.committed(topic, "g").values()) >= 18

    changed = {**tables, "steps": [{"name": "doubled", "sql": "SELECT 1 AS id, 2 AS double, 'a' AS account"}]}
    with pytest.raises(InvalidInput) as refused:
        run(spark, changed)
    assert refused.value.field == "run.checkpoint" and "steps.doubled" in refused.value.rule


def test_topics_by_pattern(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic_pattern": f"{topic}-in-.*", "schema": "id BIGINT"},
        "steps": [{"name": "rows", "sql": "SELECT id, message.topic FROM source"}],
        "sink": {"topic": f"{topic}-out", "partitions": 1, "value": "to_json(struct(*))"},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }
    expected = []
    for number, name in enumerate((f"{topic}-in-a", f"{topic}-in-b")):
        client.create_topic(name)
        publish(client, name, [{"id": number}])
        run(spark, tables)
        expected.append({"id": number, "topic": name})
        assert values(client, f"{topic}-out") == expected, "a topic that appears later is read from its beginning"
    batch = tables | {"source": {**tables["source"], "mode": "batch"}, "run": {}}
    assert run(spark, batch).messages == 2
    none = batch | {"source": {"topic_pattern": "nothing-like-it", "mode": "batch"}}
    with pytest.raises(InvalidInput, match="no topic has a name that matches it"):
        run(spark, none)


def test_a_topic_is_added(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    def tables(names: str) -> dict[str, Any]:
        return {
            "server": {"url": url},
            "source": {"topic": names, "min_messages_per_trigger": 1000, "max_trigger_delay_seconds": 3600},
            "sink": {"topic": f"{topic}-out", "partitions": 1},
            "run": {"checkpoint": str(tmp_path / "cp")},
        }

    for number, name in enumerate((topic, f"{topic}-b")):
        client.create_topic(name)
        publish(client, name, [{"id": number}])
    run(spark, tables(topic))
    both = tables(f"{topic},{topic}-b")
    with pytest.raises(InvalidInput, match="source changed since"):
        run(spark, both)
    Pipeline.of(both).run(spark, once=True, accept_change=True)
    assert values(client, f"{topic}-out") == [{"id": 0}, {"id": 1}], "what waits for more is not waited for with once"


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_land_a_topic_as_a_table(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, kind: str
) -> None:
    client.create_topic(topic, partitions=2)
    table = tmp_path / "table"
    variables = {
        "SERVER": url, "TOPIC": topic, "TABLE": str(table), "CHECKPOINT": str(tmp_path / "cp"), "FORMAT": kind,
        "MESSAGES": "30",
    }  # fmt: skip
    publish(client, topic, [{"id": number} for number in range(50)], "id")
    _, first = run_ready(spark, "land", **variables)
    assert first.messages == 50 and first.batches == 2
    assert rows_of(table, kind) == sorted(f'{{"id": {number}}}' for number in range(50))
    assert [folder.name[:5] for folder in table.iterdir() if "=" in folder.name] == ["date="]

    forget_last_batch(tmp_path / "cp")
    publish(client, topic, [{"id": 50}], "id")
    run_ready(spark, "land", **variables)
    assert rows_of(table, kind) == sorted(f'{{"id": {number}}}' for number in range(51))


def test_a_table_skips_no_batch_of_a_checkpoint_that_begins_anew(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": 1}])
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic},
        "sink": {"format": "parquet", "path": str(tmp_path / "table")},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }
    run(spark, tables)
    publish(client, topic, [{"id": 2}])
    shutil.rmtree(tmp_path / "cp" / "spark")
    with pytest.raises(InvalidInput) as refused:
        run(spark, tables)
    assert refused.value.field == "sink.sink_id"
    run(spark, {**tables, "run": {"checkpoint": str(tmp_path / "another")}})
    assert pq.read_table(tmp_path / "table").num_rows == 3, "one of them twice: it was read from the beginning"


@pytest.mark.parametrize("held", ["checkpoint", "table"])
def test_a_second_run_is_refused_and_does_no_harm(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, held: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": 1}])
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "stream" if held == "checkpoint" else "batch"},
        "sink": {"format": "parquet", "path": str(tmp_path / "table")},
    }
    if held == "checkpoint":
        tables["run"] = {"checkpoint": str(tmp_path / "cp")}
        lock = lock_of(describe(tables, {}))
    else:
        run(spark, tables)
        (file,) = tmp_path.glob("table/_headrace/*/lock")
        lock = Lock(file, file.parent, "")
    lock.take()
    rows = [file.name for file in tmp_path.glob("table/*.parquet")]
    with pytest.raises(StoreUnavailable, match="another run"):
        run(spark, tables)
    assert [file.name for file in tmp_path.glob("table/*.parquet")] == rows
    lock.release()
    run(spark, tables)
    run(spark, tables)
    assert pq.read_table(tmp_path / "table").num_rows == (1 if held == "checkpoint" else 3), "each run let go of it"


def test_a_table_that_is_ahead_of_the_checkpoint_takes_no_older_batch(spark: SparkSession, tmp_path: Path) -> None:
    destination = TableSinkWriter(TableSink(format="parquet", path=str(tmp_path)), "writer", is_stream=True)
    rows = destination.prepare(spark.range(3).toDF("id"))
    destination.open()
    for number in (0, 1, 1):
        destination.write(rows, BatchId(number))
    with pytest.raises(InvalidInput, match="older than the table"):
        destination.write(rows, BatchId(0))
    assert pq.read_table(tmp_path).num_rows == 6
    for batch in (BatchId(2, 7), BatchId(2, 7), BatchId(2)):
        destination.write(rows, batch)
    with pytest.raises(InvalidInput, match="a checkpoint was copied"):
        destination.write(rows, BatchId(2, 8))
    assert pq.read_table(tmp_path).num_rows == 9


def test_delta_is_compacted_over_runs_and_gives_disk_back(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    sink = TableSink(format="delta", path=str(tmp_path), compact_files=3)
    rows = spark.range(0, 2, 1, 1).toDF("id")
    merged = []
    for number in range(5):
        destination = DeltaSinkWriter(sink, "writer", is_stream=True)
        prepared = destination.prepare(rows)
        destination.open()
        destination.write(prepared, BatchId(number))
        destination.close()
        merged.append(len(DeltaTable(str(tmp_path)).file_uris()))
        if number == 2:
            old = sorted(tmp_path.glob("part-writer-*.parquet"))
            assert len(old) == 3, "readers of the last version go on"
            DeltaTable(str(tmp_path)).alter.set_table_properties(
                {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
            )
    assert merged == [1, 2, 1, 2, 1], "runs of one batch each"
    assert not any(file.exists() for file in old)
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 10


def rows_of(table: Path, kind: str) -> list[str]:
    """The values in a table, sorted, and a look at the columns."""
    if kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(table)).to_pyarrow_table()
    else:
        found = pq.read_table(table)
    assert {"key", "value", "partition", "offset", "timestamp", "date"} <= set(found.column_names)
    assert found.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    places = list(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places)
    return sorted(value.decode() for value in found["value"].to_pylist())


def test_messages_pass_deduplication_unchanged(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    moment = datetime(2026, 11, 15, 1, 2, 3, 456789, UTC)
    sent = pa.RecordBatch.from_pylist(
        [
            {"value": b"\x00\xff", "key": b"\xfe", "attributes": [("a", b"\x80")], "created_at": moment,
             "producer_id": "p", "message_group_id": "g", "seqno": (1 << 60) + 1},
            {"value": b"", "key": None, "attributes": None, "created_at": None, "producer_id": None,
             "message_group_id": None, "seqno": None},
            {"value": b"", "key": None, "attributes": None, "created_at": None, "producer_id": None,
             "message_group_id": None, "seqno": None},
        ],
        schema=pa.schema([
            ("value", pa.binary()), ("key", pa.binary()), ("attributes", pa.map_(pa.string(), pa.binary())),
            ("created_at", pa.timestamp("us", "UTC")), ("producer_id", pa.string()),
            ("message_group_id", pa.string()), ("seqno", pa.int64()),
        ]),
    )  # fmt: skip
    with client.producer(topic) as producer:
        producer.send_batch(sent)
    tables = {
        "server": {"url": url},
        "source": {"topic": topic},
        "deduplicate": {"by": "source"},
        "sink": {"topic": f"{topic}-out", "order_by": ["offset"], "keep_sources": True},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }
    assert run(spark, tables).messages == 3
    kept = [{**row, "timestamp": None} for row in messages(client, f"{topic}-out")]
    assert kept == [{**row, "timestamp": None} for row in messages(client, topic)], "without a seqno nothing repeats"


def test_a_source_that_is_spread_over_partitions_is_copied_whole(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=4)
    for _ in range(3):
        with client.producer(topic, producer_id="till") as producer:
            for number in range(40):
                producer.send(str(number).encode(), key=str(number).encode())
    for kept in (False, True):
        target = f"{topic}-{kept}"
        tables = {
            "server": {"url": url},
            "source": {"topic": topic, "max_messages_per_trigger": 60},
            "sink": {"topic": target, "partitions": 1, "keep_sources": kept},
            "run": {"checkpoint": str(tmp_path / target)},
        }
        told: list[Progress] = []
        summary = Pipeline.of(tables).run(spark, once=True, tell=told.append)
        written = messages(client, target)
        assert summary.messages == 120 and told[-1].duplicates == summary.duplicates
        assert {row["producer_id"] for row in written} == ({"till"} if kept else {None})
        assert len(written) + summary.duplicates == 120
        assert (summary.duplicates > 0) == kept, "only with its seqnos, which do not come in order"
        forget_last_batch(tmp_path / target)
        assert run(spark, tables).duplicates == 0, "a batch that is done again is no duplicate"
        assert len(messages(client, target)) == len(written)


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_columns_with_dots_pass_deduplication(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, mode: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"a.b": 1, "c": 1}, {"a.b": 1, "c": 2}, {"a.b": 2, "c": 3}])
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "`a.b` BIGINT, c BIGINT", "mode": mode},
        "deduplicate": {"by": ["a.b"]},
        "sink": {"format": "parquet", "path": str(tmp_path / "table")},
    }
    run(spark, tables | ({"run": {"checkpoint": str(tmp_path / "cp")}} if mode == "stream" else {}))
    assert sorted(pq.read_table(tmp_path / "table", columns=["c"])["c"].to_pylist()) == [1, 3]


def test_directories_that_cannot_be_written_are_named(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    base = {"server": {"url": url}, "source": {"topic": topic, "mode": "batch"}}
    with pytest.raises(InvalidInput, match="cannot be used") as refused:
        run(spark, {**base, "sink": {"format": "parquet", "path": "/proc/nothing/table"}})
    assert refused.value.field == "sink.path"
    stream = {"source": {"topic": topic}, "sink": {"topic": topic + "-out", "partitions": 1}}
    with pytest.raises(InvalidInput, match="cannot be used") as refused:
        run(spark, {**base, **stream, "run": {"checkpoint": "/proc/nothing/cp"}})
    assert refused.value.field == "run.checkpoint"


def test_topic_to_topic_by_sql(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": number, "amount": number * 1.5} for number in range(10)] + [b"nothing"], "id")
    _, summary = run_ready(
        spark, "transform", SERVER=url, TOPIC=topic, TARGET=f"{topic}-out", DEAD_LETTERS=f"{topic}-dead",
        CHECKPOINT=str(tmp_path / "cp"), SCHEMA="id BIGINT NOT NULL, amount DOUBLE", PARTITIONS="2",
        SQL="SELECT id, amount FROM source WHERE amount > 9", KEY="CAST(id AS STRING)",
    )  # fmt: skip
    assert (summary.messages, summary.dead_letters) == (11, 1)
    assert values(client, f"{topic}-out") == [{"id": number, "amount": number * 1.5} for number in (7, 8, 9)]
    assert [row["value"] for row in messages(client, f"{topic}-dead")] == [b"nothing"]


@pytest.mark.parametrize("name", ["enrich", "windows", "upsert"])
def test_ready_pipelines_bury_what_does_not_fit(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, name: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": 1, "city": "Rome"}, b"nothing", {"id": 2, "city": "Oslo"}], "id")
    given = {
        "SERVER": url,
        "TOPIC": topic,
        "SCHEMA": "id BIGINT NOT NULL, city STRING",
        "DEAD_LETTERS": f"{topic}-dead",
    }
    given |= {"CHECKPOINT": str(tmp_path / "cp"), "TARGET": f"{topic}-out", "PARTITIONS": "1"}
    given |= {"TABLE": str(tmp_path / "table"), "KEY": "id", "FILES": str(tmp_path / "countries")}
    if name == "enrich":
        del given["KEY"]
        (tmp_path / "countries").mkdir()
        (tmp_path / "countries" / "1.json").write_text('{"name": "Rome", "country": "Italy"}')
        given["SQL"] = "SELECT source.*, country FROM source LEFT JOIN reference ON city = reference.name"
    _, summary = run_ready(spark, name, **given)
    assert (summary.messages, summary.dead_letters) == (3, 1)
    assert [row["value"] for row in messages(client, f"{topic}-dead")] == [b"nothing"]
    if name == "enrich":
        assert [row.get("country") for row in values(client, f"{topic}-out")] == ["Italy", None]


def test_one_source_for_several_sinks(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": id} for id in range(4)])
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "id BIGINT NOT NULL"},
        "steps": [
            {"name": "even", "sql": "SELECT id FROM source WHERE id % 2 = 0"},
            {"name": "odd", "sql": "SELECT id FROM source WHERE id % 2 = 1"},
        ],
        "sink": {"topic": f"{topic}-out", "partitions": 1, "value": "to_json(struct(*))"},
        "sinks": {
            "even": {"topic": f"{topic}-even", "partitions": 1, "step": "even", "value": "to_json(struct(*))"},
            "table": {"format": "parquet", "path": str(tmp_path / "table"), "step": "source"},
        },
        "run": {"checkpoint": str(tmp_path / "checkpoint")},
    }
    assert run(spark, tables).messages >= 4
    forget_last_batch(tmp_path / "checkpoint")
    run(spark, tables)
    assert values(client, f"{topic}-out") == [{"id": 1}, {"id": 3}]
    assert values(client, f"{topic}-even") == [{"id": 0}, {"id": 2}]
    assert sorted(pq.read_table(tmp_path / "table")["id"].to_pylist()) == [0, 1, 2, 3]


def test_windows_end_with_the_watermark(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    given = {"SERVER": url, "TOPIC": topic, "TARGET": f"{topic}-out", "PARTITIONS": "1", "TIME": "at", "DELAY": "20"}
    given |= {"SCHEMA": "at TIMESTAMP, country STRING", "BY": ", country", "CHECKPOINT": str(tmp_path / "checkpoint")}
    for seconds in ((0, 10, 70), (20, 200)):
        times = [f"2026-07-01T12:0{second // 60}:{second % 60:02d}Z" for second in seconds]
        publish(client, topic, [{"at": time, "country": "FR"} for time in times])
        run_ready(spark, "windows", **given)
    found = [(row["start"][11:16], row["messages"], row["country"]) for row in values(client, f"{topic}-out")]
    assert sorted(found) == [("12:00", 3, "FR"), ("12:01", 1, "FR")], "the window that has not ended is not there"
    endless = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "at TIMESTAMP"},
        "steps": [{"name": "counted", "sql": "SELECT count(*) AS n FROM source GROUP BY window(at, '1 minute')"}],
        "sink": {"format": "json", "path": str(tmp_path / "table")},
        "run": {"checkpoint": str(tmp_path / "another")},
    }
    with pytest.raises(InvalidInput, match="steps"):
        Pipeline.of(endless).check(spark)


def test_two_streams_are_joined(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    paid = f"{topic}-paid"
    for name in (topic, paid):
        client.create_topic(name)
    reads = {"schema": "id BIGINT, at TIMESTAMP", "watermark": "at", "watermark_delay_seconds": 3600}
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, **reads},
        "sources": {"paid": {"topic": paid, "mode": "stream", **reads}},
        "steps": [
            {
                "name": "joined",
                "sql": "SELECT source.id, unix_seconds(paid.at) - unix_seconds(source.at) AS seconds FROM source "
                "JOIN paid ON source.id = paid.id AND paid.at BETWEEN source.at AND source.at + INTERVAL 1 HOUR",
            }
        ],
        "sink": {"topic": f"{topic}-out", "partitions": 1, "value": "to_json(struct(*))"},
        "run": {"checkpoint": str(tmp_path / "checkpoint")},
    }
    publish(client, topic, [{"id": id, "at": "2026-07-01T12:00:00Z"} for id in (1, 2)])
    publish(client, paid, [{"id": 2, "at": "2026-07-01T12:00:05Z"}])
    run(spark, tables)
    publish(client, paid, [{"id": 1, "at": "2026-07-01T12:01:00Z"}, {"id": 3, "at": "2026-07-01T12:01:00Z"}])
    run(spark, tables)
    assert values(client, f"{topic}-out") == [{"id": 1, "seconds": 60}, {"id": 2, "seconds": 5}]


def test_a_copied_checkpoint_loses_no_batch_in_silence(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "starting_timestamp": {topic: {"0": "2026-01-01T00:00:00Z"}}},
        "sink": {"topic": f"{topic}-out", "partitions": 1},
        "run": {"checkpoint": str(tmp_path / "first")},
    }
    publish(client, topic, [{"id": 1}])
    run(spark, tables)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    publish(client, topic, [{"id": 2}])
    run(spark, tables)
    publish(client, topic, [{"id": 3}])
    with pytest.raises(PipelineFailed, match="a checkpoint was copied"):
        run(spark, {**tables, "run": {"checkpoint": str(tmp_path / "second")}})
    run(spark, tables)
    assert values(client, f"{topic}-out") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_what_cannot_work_is_refused_before_anything_runs(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    base: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "id BIGINT, name STRING"},
        "sink": {"topic": f"{topic}-out", "value": "name"},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }
    table = {"format": "parquet", "path": str(tmp_path / "table")}
    only_id = {"name": "one", "sql": "SELECT id FROM source"}
    dated = {"name": "one", "sql": "SELECT id, 1 AS Date, message.timestamp AS at FROM source"}
    twice = {"name": "one", "sql": "SELECT id, name AS ID FROM source"}
    file = tmp_path / "file"
    file.touch()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"source": {"topic": topic, "schema": "id BIGINTS"}}, "source.schema"),
        ({"source": {"topic": topic, "schema": "message STRING"}}, "source.schema"),
        ({"source": {"topic": topic, "schema": "a ARRAY<STRUCT<b: INT NOT NULL>>"}}, "source.schema"),
        ({"source": {"topic": topic, "schema": "a MAP<STRING, STRUCT<b: INT NOT NULL>>"}}, "source.schema"),
        ({"source": {"topic": topic, "options": {"nonsense": "1"}}, "sink": {"topic": f"{topic}-out"}}, "option"),
        ({"steps": [{"name": "one", "sql": "SELECT nme FROM source"}]}, "steps.0.sql"),
        ({"steps": [{"name": "one", "sql": "SELEC 1"}]}, "steps.0.sql"),
        ({"steps": [{"name": "one", "function": "nowhere:nothing"}]}, "steps.0.function"),
        ({"steps": [{"name": "one", "function": "json:dumps"}]}, "steps.0.function"),
        ({"sink": {"topic": f"{topic}-out"}}, "sink"),
        ({"sink": {"topic": f"{topic}-out", "key": "name"}}, "sink.value"),
        ({"sink": {"topic": f"{topic}-out", "value": "name", "keep_sources": True}}, "sink.keep_sources"),
        ({"sink": {"topic": f"{topic}-out", "value": "nothing"}}, "sink.value"),
        ({"sink": {"topic": f"{topic}-out", "value": "id"}}, "column value"),
        ({"sink": {"topic": f"{topic}-out", "value": "name", "order_by": ["nothing"]}}, "sink.order_by"),
        ({"sink": {"topic": f"{topic}-out", "value": "name", "attributes": {"a": "x"}}}, "sink.attributes.a"),
        ({"sink": {**table, "partition_by": ["nothing"]}}, "sink.partition_by"),
        ({"steps": [only_id], "sink": {**table, "partition_by": ["id"]}}, "sink.partition_by"),
        ({"steps": [twice], "sink": table}, "sink"),
        ({"sink": {**table, "format": "csv"}}, "sink.format"),
        ({"steps": [only_id], "sink": {**table, "format": "text"}}, "sink.format"),
        ({"sink": {**table, "format": "text"}}, "sink.format"),
        ({"sink": {**table, "partition_date": "nothing"}}, "sink.partition_date"),
        ({"steps": [dated], "sink": {**table, "partition_date": "at"}}, "sink.partition_date"),
        (
            {"source": {"topic": topic, "schema": "event_time TIMESTAMP", "watermark": "message.timestamp"}},
            "source.watermark",
        ),
        ({"deduplicate": {"by": ["nothing"]}}, "deduplicate.by"),
        ({"deduplicate": {"by": ["id"], "time": "name"}}, "deduplicate.time"),
        ({"deduplicate": {"by": ["nothing.at.all"]}}, "deduplicate.by"),
        ({"deduplicate": {"by": ["message.attributes"]}}, "deduplicate.by"),
        ({"server": {"url": url, "ca": str(tmp_path / "nothing")}}, "server.ca"),
        ({"run": {"checkpoint": f"{file}/cp"}}, "run.checkpoint"),
        ({"sink": {"format": "parquet", "path": f"{file}/table"}}, "sink.path"),
    ]
    for parts, field in cases:
        with pytest.raises((InvalidInput, PipelineFailed)) as refused:
            Pipeline.of({**base, **parts}).check(spark)
        found = refused.value
        assert (found.field if isinstance(found, InvalidInput) else str(found)).startswith(field), (field, found)
    Pipeline.of(base).check(spark)
    assert not (tmp_path / "cp").exists() and not (tmp_path / "table").exists()
