"""Batches on a real Spark: files in, reports out, and the ready pipelines that end by themselves."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException

from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.core.hashes.columns import partition_of
from headrace.core.topics.settings import KeyHash
from headrace.spark.pipeline import Pipeline, PipelineFailed
from headrace.spark.pipeline.definition.load import load
from tests.pipeline.runs import ROOT, messages, publish, run, run_ready, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_load_files_into_a_topic(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(2):
        lines = [json.dumps({"id": number * 10 + each, "name": "n"}) for each in range(10)]
        (files / f"{number}.json").write_text("\n".join(lines))
    _, summary = run_ready(
        spark, "load", SERVER=url, FILES=str(files), TOPIC=topic, PARTITIONS="2", KEY="CAST(id AS STRING)"
    )
    assert summary.messages == 20
    assert sorted(value["id"] for value in values(client, topic)) == list(range(20))
    assert {row["key"] for row in messages(client, topic)} == {str(number).encode() for number in range(20)}
    assert len({row["timestamp"] for row in messages(client, topic)}) == 1, "one commit"


def test_files_are_loaded_once(spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"id": 1}\n{"id": 2}\n')
    given = {"SERVER": url, "FILES": str(tmp_path), "TOPIC": topic, "PARTITIONS": "1"}
    ended = [run_ready(spark, "load", **given)[1] for _ in range(2)]
    assert [(summary.messages, summary.is_repeated) for summary in ended] == [(2, False), (0, True)]
    assert "loaded before" in ended[1].line()
    assert len(values(client, topic)) == 2
    (tmp_path / "two.json").write_text('{"id": 3}\n')
    assert run_ready(spark, "load", **given)[1].messages == 3, "another input is another load"
    tables = {
        "server": {"url": url},
        "source": {"format": "json", "path": str(tmp_path), "schema": "id BIGINT"},
        "sink": {"topic": topic, "value": "to_json(struct(*))"},
        "run": {"load_id": "july"},
    }
    assert [run(spark, tables).is_repeated for _ in range(2)] == [False, True]
    assert len(values(client, topic)) == 8


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_tables_are_loaded_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    files, table = tmp_path / "files", tmp_path / "table"
    files.mkdir()
    (files / "one.json").write_text('{"id": 1}\n{"id": 2}\n')
    tables: dict[str, Any] = {
        "source": {"format": "json", "path": f"file://{files}", "schema": "id BIGINT"},
        "sink": {"format": kind, "path": str(table)},
    }
    ended = [run(spark, tables) for _ in range(2)]
    assert [(summary.messages, summary.is_repeated) for summary in ended] == [(2, False), (0, True)]
    (files / "two.json").write_text('{"id": 3}\n')
    assert run(spark, tables).messages == 3, "another input is another load"
    named = {**tables, "run": {"load_id": "july/1"}}
    assert [run(spark, named).is_repeated for _ in range(2)] == [False, True]
    assert sorted(row.id for row in spark.read.parquet(str(table)).collect()) == [1, 1, 1, 2, 2, 2, 3, 3]


def test_urls_that_this_spark_cannot_use(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    here: dict[str, Any] = {"format": "json", "path": str(tmp_path / "rows.json"), "schema": "id BIGINT"}
    for field, tables in (
        ("source.path", {"source": {**here, "path": "s3a://bucket/x"}, "sink": {"format": "report"}}),
        ("sink.path", {"source": here, "sink": {"format": "avro", "path": "gs://bucket/x"}}),
        (
            "run.checkpoint",
            {"source": {"topic": "in"}, "sink": {"topic": "out"}, "run": {"checkpoint": "s3a://bucket/x"}},
        ),
    ):
        with pytest.raises(InvalidInput, match="this Spark has no file system for") as refused:
            Pipeline.of(tables).check(spark)
        assert refused.value.field == field


def test_a_function_of_a_module_beside_the_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    (tmp_path / "shop_functions.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def twice(number): return number * 2\n"
        "def step(rows): return rows.select(F.udf(twice, 'bigint')('id').alias('id'))\n"
    )
    (tmp_path / "shop.toml").write_text(
        f'[source]\nformat = "json"\npath = "{tmp_path}/rows.json"\nschema = "id BIGINT"\n'
        '[[steps]]\nname = "doubled"\nfunction = "shop_functions:step"\n[sink]\nformat = "report"\n'
    )
    pipeline = Pipeline.load(tmp_path / "shop.toml", {})
    pipeline.run(spark)
    assert pipeline.report is not None and pipeline.report.rows == [[2]]


JOINED: dict[str, Any] = {
    "source": {"topic": "orders", "schema": "id BIGINT NOT NULL, customer STRING"},
    "sources": {"customers": {"format": "json", "path": "customers", "schema": "name STRING, city STRING"}},
    "steps": [
        {
            "name": "enriched",
            "sql": "SELECT id, city FROM source LEFT JOIN customers ON customer = name",
        }
    ],
    "sink": {"topic": "enriched", "key": "CAST(id AS STRING)", "value": "to_json(struct(*))"},
    "dead_letters": {"topic": "dead"},
    "run": {"checkpoint": "checkpoint"},
}


def test_sample_rows_in_and_expected_rows_out(spark: SparkSession) -> None:
    good = {
        "name": "joined",
        "source": [{"value": {"id": 1, "customer": "ann"}}, {"value": "no JSON"}, {"value": {"id": 2}}],
        "sources": {"customers": [{"name": "ann", "city": "Oslo"}]},
        "expect": [{"key": "2", "value": {"id": 2}}, {"value": {"id": 1, "city": "Oslo"}}],
        "dead_letters": 1,
    }
    bad = {**good, "name": "wrong", "expect": [{"value": {"id": 3}}], "dead_letters": 0}
    dead = {**good, "name": "no dead letters", "dead_letters": 0}
    passed, failed, by_dead_letters = Pipeline.of({**JOINED, "tests": [good, bad, dead]}).test(spark)
    assert passed.is_passed and passed.dead_letters == 1
    assert not failed.is_passed and failed.missing == bad["expect"] and len(failed.unexpected) == 2
    assert not by_dead_letters.is_passed and by_dead_letters.missing == by_dead_letters.unexpected == []
    assert (by_dead_letters.dead_letters, by_dead_letters.expected_dead_letters) == (1, 0)
    for test, told in (({"name": "x", "source": [{"vale": 1}]}, "vale"), ({"name": "x", "sources": {"y": []}}, "y")):
        with pytest.raises(InvalidInput, match=told):
            Pipeline.of({**JOINED, "tests": [test]}).test(spark)
    with pytest.raises(InvalidInput, match="no \\[\\[tests"):
        Pipeline.of(JOINED).test(spark)


def test_sample_rows_have_partitions_without_a_broker(spark: SparkSession) -> None:
    test = {
        "name": "counted",
        "source": [{"offset": 5}, {"offset": 7}, {"partition": 2, "offset": 0}],
        "expect": [{"partition": 0, "messages": 3}, {"partition": 2, "messages": 1}],
    }
    tables = {
        # Nobody listens there.
        "server": {"url": "headrace://127.0.0.1:1"},
        "source": {"topic": "orders", "mode": "batch"},
        "steps": [{"name": "counted", "sql": "SELECT partition, messages FROM partitions"}],
        "sink": {"format": "report"},
        "tests": [test],
    }
    (result,) = Pipeline.of(tables).test(spark)
    assert result.is_passed, result


@pytest.mark.parametrize(
    ("row", "field", "rule"),
    [
        ({"timestamp": "yesterday"}, "timestamp", "a time"),
        ({"attributes": "text"}, "attributes", "a table"),
        ({"partition": "one"}, "partition", "a whole number"),
        ({"seqno": True}, "seqno", "a whole number"),
        ({"producer_id": 1}, "producer_id", "text"),
    ],
)
def test_sample_rows_that_are_no_messages(spark: SparkSession, row: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=f"it must be {rule}") as refused:
        Pipeline.of({**JOINED, "tests": [{"name": "x", "source": [row]}]}).test(spark)
    assert refused.value.field == f"tests.0.source.0.{field}"


def test_a_sample_that_ends_in_an_error_is_named(spark: SparkSession) -> None:
    divided = {**JOINED, "steps": [{"name": "divided", "sql": "SELECT 1 / id AS part FROM source"}]}
    divided["sink"] = {"topic": "divided", "value": "CAST(part AS STRING)"}
    test = {"name": "zero", "source": [{"value": {"id": 0}}]}
    with pytest.raises(PipelineFailed, match=r"test 'zero' ended early: .*DIVIDE_BY_ZERO"):
        Pipeline.of({**divided, "tests": [test]}).test(spark)


def test_files_tables_and_topics_are_joined(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    cities = tmp_path / "cities.json"
    cities.write_text('{"city": "Oslo", "country": "NO"}')
    rates = pa.table({"country": ["NO", "a/b=c d%"], "rate": [0.25, 0.5]})
    write_deltalake(tmp_path / "rates", rates, partition_by=["country"])
    write_deltalake(tmp_path / "rates", rates.slice(1), partition_by=["country"], mode="append")
    write_deltalake(tmp_path / "none", rates.slice(2))
    for name, rows in ((topic, [{"id": 1, "city": "Oslo"}]), (f"{topic}-names", [{"id": 1, "name": "ann"}])):
        client.create_topic(name)
        publish(client, name, rows)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "schema": "id BIGINT, city STRING"},
        "sources": {
            "cities": {
                "format": "json",
                "path": str(tmp_path / "cities.json"),
                "schema": "city STRING, country STRING",
            },
            "rates": {"format": "delta", "path": str(tmp_path / "rates")},
            "none": {"format": "delta", "path": str(tmp_path / "none")},
            "names": {"topic": f"{topic}-names", "mode": "batch", "schema": "id BIGINT, name STRING"},
        },
        "steps": [
            {
                "name": "joined",
                "sql": "SELECT id, name, rate, (SELECT count(*) FROM none) AS none, (SELECT count(*) FROM rates "
                "WHERE country = 'a/b=c d%') AS odd FROM source JOIN cities USING (city) JOIN rates USING (country) "
                "JOIN names USING (id)",
            }
        ],
        "sink": {"topic": f"{topic}-out", "partitions": 1, "value": "to_json(struct(*))"},
        "run": {"checkpoint": str(tmp_path / "checkpoint")},
    }
    run(spark, tables)
    assert values(client, f"{topic}-out") == [{"id": 1, "name": "ann", "rate": 0.25, "none": 0, "odd": 2}]
    for wrong, field in (
        ({"format": "delta", "path": str(tmp_path / "nothing")}, "path"),
        ({"format": "delta", "path": str(tmp_path / "rates"), "schema": "id INT"}, "schema"),
        ({"format": "json", "path": str(cities), "schema": "id INTS"}, "schema"),
    ):
        with pytest.raises(InvalidInput) as refused:
            changed = {"sources": {**tables["sources"], "rates": wrong}, "run": {"checkpoint": str(tmp_path / "new")}}
            Pipeline.of({**tables, **changed}).check(spark)
        assert refused.value.field == f"sources.rates.{field}"


def test_delta_tables_that_only_their_own_reader_understands(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}), configuration={"delta.columnMapping.mode": "name"})
    tables = {"source": {"format": "delta", "path": str(tmp_path)}, "sink": {"format": "report"}}
    with pytest.raises(InvalidInput, match="columnMapping"):
        Pipeline.of(tables).check(spark)


def test_the_ready_pipeline_enriches_messages(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "customers.json").write_text('{"name": "ann", "city": "Oslo"}')
    client.create_topic(topic)
    publish(client, topic, [{"id": 1, "customer": "ann"}, {"id": 2, "customer": "bob"}])
    run_ready(
        spark, "enrich", SERVER=url, TOPIC=topic, TARGET=f"{topic}-out", PARTITIONS="1",
        CHECKPOINT=str(tmp_path / "cp"), FILES=str(tmp_path / "customers.json"),
        SCHEMA="id BIGINT NOT NULL, customer STRING",
        SQL="SELECT source.*, reference.city FROM source LEFT JOIN reference ON customer = reference.name",
    )  # fmt: skip
    assert values(client, f"{topic}-out") == [
        {"id": 1, "customer": "ann", "city": "Oslo"},
        {"id": 2, "customer": "bob"},
    ]


def test_load_takes_the_header_of_csv_and_any_format(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    for kind in ("csv", "parquet", "orc", "text", "json"):
        (tmp_path / kind).mkdir()
        file = tmp_path / kind / f"rows.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        elif kind == "orc":
            orc.write_table(pa.Table.from_pylist(rows), file)
        else:
            lines = [",".join(row.values()) if kind == "csv" else json.dumps(row) for row in rows]
            file.write_text("\n".join(["id,name", *lines] if kind == "csv" else lines))
        given = {"FORMAT": kind, "FILES": str(tmp_path / kind), "TOPIC": f"{topic}-{kind}", "PARTITIONS": "1"}
        run_ready(spark, "load", SERVER=url, **given)
        found = values(client, f"{topic}-{kind}")
        assert [json.loads(row["value"]) if kind == "text" else row for row in found] == rows, kind


@pytest.mark.parametrize(("kind", "text"), [("json", '{"id":1}\n{"id":2\n{"id":3}\n'), ("csv", "id,name\n1,a\n2\n")])
def test_load_loads_nothing_if_a_row_cannot_be_read(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, kind: str, text: str
) -> None:
    client.create_topic(topic)
    (tmp_path / "rows").write_text(text)
    given = {"SERVER": url, "FORMAT": kind, "FILES": str(tmp_path / "rows"), "TOPIC": topic}
    with pytest.raises(PipelineFailed, match=r"MALFORMED|Unexpected end-of-input"):
        run_ready(spark, "load", **given)
    assert messages(client, topic) == []
    run_ready(spark, "load", **given, MODE="DROPMALFORMED")
    assert len(messages(client, topic)) == (2 if kind == "json" else 1)


def test_files_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,one\n2,two\nx,three\n,four\n1,one\n")
    source = {"format": "csv", "path": str(file), "schema": "id BIGINT NOT NULL, name STRING"}
    tables = {
        "source": source,
        "deduplicate": {"by": ["id", "name"]},
        "sink": {"format": "parquet", "path": str(tmp_path / "good")},
        "dead_letters": {"format": "parquet", "path": str(tmp_path / "dead")},
    }
    summary = run(spark, tables)
    assert (summary.messages, summary.dead_letters) == (5, 2)
    good, dead = pq.read_table(tmp_path / "good"), pq.read_table(tmp_path / "dead")
    assert sorted(zip(good["id"].to_pylist(), good["name"].to_pylist(), strict=True)) == [(1, "one"), (2, "two")]
    assert {value for value in dead["value"].to_pylist() if value.startswith(b"x")} == {b"x,three"}
    assert sorted(dead["reason"].to_pylist())[0] == "the field id is missing"
    assert all(origin.endswith("rows.csv") for origin in dead["origin"].to_pylist())

    with pytest.raises(PipelineFailed, match=r"does not match source\.schema"):
        run(spark, {"source": source, "sink": {"format": "noop"}})
    assert (
        run(spark, {"source": {**source, "schema": "id STRING, name STRING"}, "sink": {"format": "noop"}}).messages == 5
    )


@pytest.mark.parametrize("schema", ["id BIGINT NOT NULL, size BIGINT", "id BIGINT, size BIGINT"])
@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_rows_of_files_are_judged_if_no_step_uses_their_fields(
    spark: SparkSession, tmp_path: Path, kind: str, schema: str
) -> None:
    lines = ["1,2", "3,x"] if kind == "csv" else ['{"id": 1, "size": 2}', '{"id": 3, "size": "x"}']
    (tmp_path / "rows").write_text("\n".join(lines))
    tables = {
        "source": {"format": kind, "path": str(tmp_path / "rows"), "schema": schema},
        "steps": [{"name": "counted", "sql": "SELECT count(*) AS n FROM source"}],
        "sink": {"format": "report"},
    }
    with pytest.raises(PipelineFailed, match=r"does not match source\.schema"):
        run(spark, tables)
    pipeline = Pipeline.of({**tables, "dead_letters": {"format": "parquet", "path": str(tmp_path / "dead")}})
    summary = pipeline.run(spark)
    assert (summary.messages, summary.dead_letters) == (2, 1)
    assert pipeline.report is not None and pipeline.report.rows == [[1]]
    assert len(pq.read_table(tmp_path / "dead")) == 1


def test_fields_of_structs_that_must_be_there(spark: SparkSession, tmp_path: Path) -> None:
    fit = ['{"a": {"b": 1, "c": {"d": 2}}}', '{"a": {"b": 1}}', '{"a": {"b": 1, "c": null}}', "{}"]
    fit_not = ['{"a": {}}', '{"a": {"b": null, "c": {"d": 2}}}', '{"a": {"b": 1, "c": {}}}']
    (tmp_path / "rows").write_text("\n".join(fit + fit_not))
    for kind in ("text", "json"):
        schema = "a STRUCT<b: BIGINT NOT NULL, c: STRUCT<d: BIGINT NOT NULL>>"
        tables = {
            "source": {"format": kind, "path": str(tmp_path / "rows"), "schema": schema},
            "sink": {"format": "noop"},
            "dead_letters": {"format": "parquet", "path": str(tmp_path / kind)},
        }
        summary = run(spark, tables)
        assert (summary.messages, summary.dead_letters) == (7, 3)
        reasons = sorted(pq.read_table(tmp_path / kind)["reason"].to_pylist())
        assert reasons == [f"the field {name} is missing" for name in ("a.b", "a.b", "a.c.d")]


def test_a_delta_table_divided_by_any_text(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    places = ["plain", "a b/c=d%", "Zürich", "", None]
    (tmp_path / "rows.json").write_text("\n".join(json.dumps({"id": n, "place": p}) for n, p in enumerate(places)))
    tables = {
        "source": {"format": "json", "path": str(tmp_path / "rows.json"), "schema": "id BIGINT, place STRING"},
        "sink": {"format": "delta", "path": str(tmp_path / "table"), "partition_by": ["place"]},
    }
    for runs in (1, 2):
        run(spark, {**tables, "run": {"load_id": f"load-{runs}"}})
        found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
        rows = sorted(zip(found["id"].to_pylist(), found["place"].to_pylist(), strict=True))
        # Spark takes an empty text for none where it names a directory.
        assert rows == [(n, p or None) for n, p in enumerate(places) for _ in range(runs)]


def test_replay_a_range_of_time(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    for number in range(4):
        with client.producer(topic, producer_id=f"p{number % 2}") as producer:
            for each in range(5):
                producer.send(f"{number}-{each}".encode(), key=f"{each}".encode())
    sent = messages(client, topic)
    commits = sorted({row["timestamp"] for row in sent})
    since = commits[1]
    expected = [row for row in sent if row["timestamp"] >= since]
    variables = {
        "SERVER": url, "TOPIC": topic, "TARGET": f"{topic}-again", "PARTITIONS": "1", "FROM": since.isoformat(),
        "TO": datetime(2100, 1, 1, tzinfo=UTC).isoformat(),
    }  # fmt: skip
    _, first = run_ready(spark, "replay", **variables)
    assert first.messages == len(expected)
    again = messages(client, f"{topic}-again")
    order = sorted(expected, key=lambda row: (row["timestamp"], row["partition"], row["offset"]))
    assert [(row["value"], row["key"]) for row in again] == [(row["value"], row["key"]) for row in order]
    assert {row["producer_id"] for row in again} == {None}
    earlier = {**variables, "FROM": commits[0].isoformat(), "TO": since.isoformat()}
    _, second = run_ready(spark, "replay", **earlier)
    assert second.messages == len(sent) - len(expected) and second.duplicates == 0
    assert len(messages(client, f"{topic}-again")) == len(sent), "an earlier range is no repeat of a later one"


def test_batches_of_nothing(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": 1}, {"id": 2}])
    again = f"{topic}-again"
    time = {"FROM": "2020-01-01T00:00:00Z", "TO": "2020-01-02T00:00:00Z"}
    _, summary = run_ready(spark, "replay", SERVER=url, TOPIC=topic, TARGET=again, PARTITIONS="1", **time)
    assert summary.messages == 0
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch"},
        "sink": {"topic": again, "order_by": ["value"]},
    }
    for condition, read in (("length(value) > 100", 2), ("false", 0)):
        step = {"name": "none", "sql": f"SELECT value FROM source WHERE {condition}"}
        assert run(spark, {**tables, "steps": [step]}).messages == read, condition
    assert messages(client, again) == []


def test_a_replay_keeps_the_order_of_a_key_within_a_commit(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    one = {"value": [b"1st", b"2nd"], "key": [b"k", b"k"], "producer_id": ["b", "a"], "seqno": [1, 1]}
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch(one))
    again = f"{topic}-again"
    run_ready(spark, "replay", SERVER=url, TOPIC=topic, TARGET=again, PARTITIONS="1", FROM="2020-01-01T00:00:00Z")
    assert [row["value"] for row in messages(client, again)] == [b"1st", b"2nd"]


@pytest.mark.parametrize("key_hash", ["fnv1a", "murmur2"])
def test_audit_a_topic(spark: SparkSession, url: str, client: Client, topic: str, key_hash: KeyHash) -> None:
    client.create_topic(topic, partitions=3, key_hash=key_hash)
    with client.producer(topic, producer_id="till") as producer:
        for number in range(30):
            producer.send(str(number).encode(), key=str(number % 7).encode())
    pipeline, summary = run_ready(spark, "audit", SERVER=url, TOPIC=topic, PAYLOADS="true")
    assert not summary.is_refused
    assert pipeline.report is not None and pipeline.report.columns == ["check", "checked", "wrong"]
    assert pipeline.report.rows == [
        ["keys are in their partition", 30, 0],
        ["no payload twice in the window", 30, 0],
        ["offsets are dense", 30, 0],
        ["seqnos grow in each source", 30, 0],
    ]

    wrong = pa.RecordBatch.from_pylist(
        [{"value": b"5", "key": b"0", "partition": place} for place in range(3)],
        schema=pa.schema([("value", pa.binary()), ("key", pa.binary()), ("partition", pa.int32())]),
    )
    with client.producer(topic) as producer:
        producer.send_batch(wrong)
    pipeline, summary = run_ready(spark, "audit", SERVER=url, TOPIC=topic, PAYLOADS="true")
    assert summary.is_refused and pipeline.report is not None
    assert {row[0]: row[2] for row in pipeline.report.rows} == {
        "keys are in their partition": 2,
        "no payload twice in the window": 3,
        "offsets are dense": 0,
        "seqnos grow in each source": 0,
    }


def test_the_audit_understands_partitions_that_were_added(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    keys = [f"key {number}".encode() for number in range(20)]
    for partitions in (2, 5, 6):
        client.create_topic(topic, partitions=partitions)
        with client.producer(topic, producer_id="till") as producer:
            for key in keys:
                producer.send(b"%d" % partitions, key=key)
    pipeline, summary = run_ready(spark, "audit", SERVER=url, TOPIC=topic)
    assert pipeline.report is not None
    assert {row[0]: tuple(row[1:]) for row in pipeline.report.rows}["keys are in their partition"] == (60, 0)
    assert not summary.is_refused
    # Where two partitions would put it, and where five would, long after there were six.
    misplaced = [(key, partition_of(key, 2)) for key in keys[:3]] + [(key, partition_of(key, 5)) for key in keys[3:6]]
    wrong = [(key, place) for key, place in misplaced if place != partition_of(key, 6)]
    assert wrong
    with client.producer(topic) as producer:
        for key, place in wrong:
            producer.send(b"wrong", key=key, partition=place)
    pipeline, summary = run_ready(spark, "audit", SERVER=url, TOPIC=topic)
    assert pipeline.report is not None and summary.is_refused
    assert {row[0]: row[2] for row in pipeline.report.rows}["keys are in their partition"] == len(wrong)


def test_the_audit_finds_gaps_and_no_others_while_messages_come(spark: SparkSession) -> None:
    steps = load(ROOT / "pipelines" / "audit.toml", {"TOPIC": "any"}).steps
    (sql,) = (step.sql for step in steps if step.name == "offsets")
    assert sql is not None
    session = spark.newSession()
    # Of 0 more came after it was read, 1 lost its middle, 2 its head, 3 has one twice, 4 is empty, and of 5 retention
    # took some after they were read.
    read = {0: [4, 5, 6], 1: [0, 1, 4], 2: [3, 4], 3: [0, 1, 1], 4: [], 5: [7, 8]}
    starts, ends = {0: 4, 5: 8}, {0: 9}
    rows = [(place, offset) for place, offsets in read.items() for offset in offsets]
    bounds = [
        (place, starts.get(place, 0), ends.get(place, max([-1, *offsets]) + 1)) for place, offsets in read.items()
    ]
    session.createDataFrame(rows, "partition INT, offset BIGINT").createOrReplaceTempView("source")
    places = session.createDataFrame(bounds, "partition INT, start_offset BIGINT, end_offset BIGINT")
    places.selectExpr("*", "end_offset - start_offset AS messages").createOrReplaceTempView("partitions")
    found = sorted((row.checked, row.wrong) for row in session.sql(sql).collect())
    assert found == [(0, 0), (2, 0), (2, 3), (3, 0), (3, 1), (3, 2)]


def test_a_row_that_does_not_fit_ends_a_pipeline_without_dead_letters(
    spark: SparkSession, url: str, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    publish(client, topic, [b"nothing"])
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch", "schema": "id BIGINT"},
        "sink": {"topic": f"{topic}-out", "value": "CAST(id AS STRING)"},
    }
    with pytest.raises(PipelineFailed, match="offset 0: correct the schema"):
        run(spark, tables)
    assert messages(client, f"{topic}-out") == []


def test_columns_of_a_message_in_any_case(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    publish(client, topic, [{"id": 1}])
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch", "schema": "id BIGINT"},
        "steps": [{"name": "named", "sql": "SELECT id, 'k' AS Key, map('a', 'b') AS ATTRIBUTES FROM source"}],
        "sink": {"topic": f"{topic}-out", "value": "CAST(id AS STRING)"},
    }
    run(spark, tables)
    (message,) = messages(client, f"{topic}-out")
    assert (message["key"], dict(message["attributes"])) == (b"k", {"a": b"b"})


@pytest.mark.parametrize("schema", ["a BIGINT, A STRING", "a MAP<INT, STRING>"])
def test_schemas_that_json_cannot_have(
    spark: SparkSession, url: str, client: Client, topic: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # As in a process where pyspark has not logged anything yet.
        monkeypatch.delitem(logging.Logger.manager.loggerDict, name, raising=False)
    client.create_topic(topic)
    tables = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch", "schema": schema},
        "sink": {"format": "report"},
    }
    with pytest.raises(InvalidInput) as refused:
        Pipeline.of(tables).check(spark)
    assert refused.value.field == "source.schema"
    with pytest.raises(AnalysisException, match="nothing"):
        spark.range(1).select("nothing")
