"""Files of pipelines: variables, keys, and everything that is refused before Spark is started."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.description import FormatSource, ReportSink, TableSink, TopicSink, TopicSource
from headrace.spark.pipeline.definition.load import describe, load, parse

ROOT = Path(__file__).parents[2]
BATCH = {"source": {"topic": "in", "mode": "batch"}, "sink": {"topic": "out"}}
STREAM = {"source": {"topic": "in"}, "sink": {"topic": "out"}, "run": {"checkpoint": "cp"}}


def with_parts(base: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A pipeline with other tables; one of None is left out, and keys of others are added or replaced."""
    made = {name: dict(value) for name, value in base.items()}
    for name, value in parts.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict):
            made[name] = {**made.get(name, {}), **value}
        else:
            made[name] = value
    return made


def test_a_file() -> None:
    described = parse(
        """
        [source]
        topic = "orders"
        starting_timestamp = 2026-11-01T00:00:00Z
        options = { timeoutSeconds = 9, important = true }
        [deduplicate]
        by = ["id"]
        [[steps]]
        name = "big"
        sql = "SELECT * FROM source"
        [sink]
        topic = "big"
        attributes = { kind = "'sale'" }
        [run]
        checkpoint = "cp"
        [spark.sql.shuffle]
        partitions = 4
        [spark]
        "spark.ui.enabled" = true
        """,
        {},
        "orders",
    )
    assert described.name == "orders" and described.is_stream
    assert isinstance(described.source, TopicSource) and isinstance(described.sink, TopicSink)
    assert described.source.starting_timestamp == "2026-11-01T00:00:00+00:00"
    assert described.source.options == {"timeoutSeconds": "9", "important": "true"}
    assert described.deduplicate is not None and described.deduplicate.window_seconds == 1800
    assert described.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}


def test_kinds_follow_from_keys() -> None:
    files = describe({"source": {"format": "json"}, "sink": {"format": "parquet", "path": "t"}}, {})
    assert isinstance(files.source, FormatSource) and not files.is_stream and isinstance(files.sink, TableSink)
    assert isinstance(describe(with_parts(BATCH, sink=None) | {"sink": {"format": "report"}}, {}).sink, ReportSink)


def test_variables() -> None:
    given = with_parts(
        STREAM,
        source={"topic": "${TOPIC}", "group": "${GROUP:-}", "max_messages_per_trigger": "${N:-5}"},
        sink={"value": "concat('$${', ${COLUMN:-value})"},
    )
    described = describe(given, {"TOPIC": "a", "N": "7"})
    assert isinstance(described.source, TopicSource) and isinstance(described.sink, TopicSink)
    assert (described.source.topic, described.source.group) == ("a", None)
    assert described.source.max_messages_per_trigger == 7
    assert described.sink.value == "concat('${', value)"
    with pytest.raises(InvalidInput) as missing:
        describe(given, {})
    assert missing.value.field == "source.topic" and "TOPIC" in missing.value.rule


@pytest.mark.parametrize(
    ("parts", "field", "told"),
    [
        ({"sorce": {}}, "sorce", "source"),
        ({"source": {"tpic": "x"}}, "source.tpic", "source.topic"),
        ({"sink": {"keys": "x"}}, "sink.keys", "sink.key"),
        ({"run": {"zzz": 1}}, "run.zzz", "checkpoint"),
        ({"source": {"max_messages_per_trigger": "many"}}, "source.max_messages_per_trigger", "int"),
        ({"source": {"max_messages_per_trigger": 0}}, "source.max_messages_per_trigger", "at least 1"),
        ({"source": {"mode": "both"}}, "source.mode", "both"),
        ({"steps": {"sql": "x"}}, "steps", "[[steps]]"),
        ({"steps": [{"name": "a"}]}, "steps.0", "either sql or function"),
        ({"steps": [{"name": "a b", "sql": "x"}]}, "steps.0.name", "letters"),
        ({"steps": [{"name": "Source", "sql": "x"}]}, "steps.0.name", "choose another"),
        ({"steps": [{"name": "a", "sql": "x"}, {"name": "A", "sql": "x"}]}, "steps.1.name", "choose another"),
        ({"steps": [{"name": "a", "function": "nothing"}]}, "steps.0.function", "module:function"),
        ({"steps": [{"sql": "x"}]}, "steps.0", "name"),
        ({"source": {"group": ""}}, "source.group", "1 to"),
        ({"sinks": {"a b": {"topic": "y"}}}, "sinks.a b", "letters"),
        ({"sinks": {"more": {"topic": "y", "sink_id": "z"}}}, "sinks.more.sink_id", "main sink"),
        ({"sinks": {"more": {"topic": "y", "step": "z"}}}, "sinks.more.step", "one of source"),
        ({"sinks": {"more": {"format": "report"}}}, "sinks.more.format", "only [sink]"),
        ({"sinks": 3}, "sinks", "[sinks.NAME]"),
        ({"sources": {"source": {"format": "json"}}}, "sources.source", "must not be source"),
        ({"sources": {"more": 3}}, "sources", "[sources.NAME]"),
        ({"sources": {"more": {"format": "json", "watermark": "at"}}}, "sources.more.watermark", "batch"),
        ({"run": {"checkpoint": "c", "load_id": "x"}}, "run.load_id", "stream"),
        ({"source": {"topic": "x\n"}}, "source.topic", "control"),
        ({"source": {"important": True, "group": None}}, "source.important", "set source.group"),
        ({"sink": {"settings": {"retention_seconds": 5}}}, "sink.settings", "sink.partitions"),
        ({"sink": {"partitions": 1, "settings": {"retention": 5}}}, "sink.settings.setting", "known settings are"),
        ({"sink": {"partitions": 1, "settings": {"retention_seconds": 0}}}, "sink.settings.retention_seconds", "1 to"),
        ({"source": {"ending_offsets": "latest"}}, "source.ending_offsets", "stream"),
        ({"sink": {"topic": "IN"}}, "source.topic", "sink.topic"),
        ({"source": {"schema": "a INT"}, "dead_letters": {"topic": "In"}}, "source.topic", "dead_letters.topic"),
        ({"source": {"schema": "a INT"}, "dead_letters": {"topic": "OUT"}}, "sink.topic", "dead_letters.topic"),
        ({"source": {"decode": False}, "dead_letters": {"topic": "dead"}}, "dead_letters", "source.schema"),
        ({"source": {"on_undecodable": "skip"}, "dead_letters": {"topic": "dead"}}, "dead_letters", "source.schema"),
        ({"source": {"on_undecodable": "skip", "decode": False}}, "source.on_undecodable", "decode = false"),
        ({"source": {"schema": "a INT"}, "dead_letters": {"format": "x", "path": "p"}}, "dead_letters.format", "delta"),
        ({"deduplicate": {"by": []}}, "deduplicate.by", "at least one"),
        ({"deduplicate": {"by": "payload", "window_seconds": 0}}, "deduplicate.window_seconds", "more than 0"),
        ({"deduplicate": {"by": "key"}}, "deduplicate.by", "key"),
        ({"run": {"checkpoint": "s3a://bucket"}}, "run.checkpoint", "s3a://bucket/path"),
        ({"run": {"checkpoint": "gs://bucket/x"}}, "run.checkpoint", "s3a://bucket/path"),
        (
            {"run": {"checkpoint": "s3a://bucket/x"}, "sinks": {"files": {"format": "delta", "path": "t"}}},
            "run.checkpoint",
            "sinks.files is no topic, no Delta table on S3 and no database",
        ),
        ({"sinks": {"files": {"format": "parquet", "path": "s3a://bucket/x"}}}, "sinks.files.path", 'format = "delta"'),
        ({"sinks": {"files": {"format": "delta", "path": "gs://bucket/x"}}}, "sinks.files.path", "s3a://bucket/path"),
        ({"sinks": {"files": {"format": "delta", "path": "s3://b/a%20b"}}}, "sinks.files.path", "percent signs"),
        ({"sinks": {"files": {"format": "delta", "path": "s3://b/a/../b"}}}, "sinks.files.path", "empty, . or .."),
        ({"sinks": {"files": {"format": "delta", "path": "s3://b/a//b"}}}, "sinks.files.path", "empty, . or .."),
        ({"sinks": {"files": {"format": "delta", "path": "s3://b/a "}}}, "sinks.files.path", "end with a space"),
        ({"sinks": {"files": {"format": "delta", "path": "s3://key:secret@b/a"}}}, "sinks.files.path", r"s3a://…/a"),
        (
            {"sinks": {"files": {"format": "delta", "path": "s3://b/x", "options": {"compression": "lzo"}}}},
            "sinks.files.options.compression",
            "snappy, zstd",
        ),
        (
            {"sinks": {"files": {"format": "delta", "path": "s3://b/x", "options": {"a": "b"}}}},
            "sinks.files.options.a",
            "compression",
        ),
        (
            {"source": {"schema": "a INT"}, "dead_letters": {"format": "json", "path": "s3a://bucket/x"}},
            "dead_letters.path",
            'format = "delta"',
        ),
        ({"source": {"topic_pattern": "in-.*"}}, "source.topic_pattern", "not both"),
        ({"run": {"trigger_seconds": -1}}, "run.trigger_seconds", "negative"),
        ({"run": None}, "run.checkpoint", "set a directory"),
        ({"source": {"schema": "a INT", "columns": ["key"]}}, "source.columns", "value"),
        ({"sink": {"sink_id": ""}}, "sink.sink_id", "1 to"),
        ({"name": 7}, "name", "text"),
        ({"spark": 1}, "spark", "table"),
    ],
)
def test_streams_that_cannot_work(parts: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        describe(with_parts(STREAM, **parts), {})
    assert refused.value.field == field
    assert told in f"{refused.value.value} {refused.value.rule}"


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"run": {"checkpoint": "cp"}}, "run.checkpoint"),
        ({"run": {"output_mode": "update"}}, "run.output_mode"),
        ({"source": {"group": "g"}}, "source.group"),
        ({"source": {"max_bytes_per_trigger": 1}}, "source.max_bytes_per_trigger"),
        ({"sink": {"sink_id": "s"}}, "sink.sink_id"),
        ({"sink": {"partitions": 0}}, "sink.partitions"),
    ],
)
def test_batches_that_cannot_work(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        describe(with_parts(BATCH, **parts), {})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        ({"format": "headrace"}, "sink.format"),
        ({"format": "parquet"}, "sink.path"),
        ({"format": "parquet", "path": "hdfs://x/y"}, "sink.path"),
        ({"format": "csv", "path": "p", "compact_files": 4}, "sink.compact_files"),
        ({"format": "parquet", "path": "p", "compact_files": 1}, "sink.compact_files"),
        ({"format": "parquet", "path": "p", "partition_by": ["date"], "partition_date": "t"}, "sink.partition_date"),
        ({"format": "parquet", "path": "p", "sink_id": "../x"}, "sink.sink_id"),
        ({"format": "jdbc", "sink_id": "x"}, "sink.sink_id"),
        ({"format": "xml", "path": "p", "partition_date": "t"}, "sink.partition_date"),
        ({"format": "report"}, "sink.format"),
        ({"format": "parquet", "path": "p", "mode": "upsert", "keys": ["a"]}, "sink.mode"),
        ({"format": "delta", "path": "p", "mode": "upsert"}, "sink.keys"),
        ({"format": "delta", "path": "p", "delete_when": "a"}, "sink.delete_when"),
        ({"format": "delta", "path": "file://elsewhere/p"}, "sink.path"),
        ({"format": "parquet", "path": "p", "key": "k"}, "sink.key"),
    ],
)
def test_tables_that_cannot_work(sink: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        describe({**STREAM, "sink": sink}, {})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("source", "field", "told"),
    [
        ({"topic_pattern": "o.*"}, "sink.topic", "selects it"),
        ({"topic_pattern": "("}, "source.topic_pattern", "regular expression"),
    ],
)
def test_patterns_that_cannot_work(source: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        describe({**STREAM, "source": source}, {})
    assert refused.value.field == field


def test_urls_of_files_are_paths() -> None:
    sink, run = {"format": "parquet", "path": "file:///a%20b/t"}, {"checkpoint": "file:/cp"}
    described = describe({**STREAM, "sink": sink, "run": run}, {})
    assert isinstance(described.sink, TableSink)
    assert (described.sink.path, described.run.checkpoint) == ("/a b/t", "/cp")


def test_a_token_is_never_shown() -> None:
    with pytest.raises(InvalidInput) as refused:
        describe({**STREAM, "server": {"token": 123456}}, {})
    assert refused.value.field == "server.token" and "123456" not in str(refused.value)


@pytest.mark.parametrize("name", ["enrich", "windows", "upsert"])
def test_dead_letters_whose_topic_is_an_empty_variable_go_nowhere(name: str) -> None:
    given = dict.fromkeys(["TOPIC", "TARGET", "FILES", "CHECKPOINT", "TABLE", "KEY"], "a") | {"SCHEMA": "a INT"}
    variables = given | {"SQL": "SELECT 1", "TARGET": "b"}
    assert load(ROOT / "pipelines" / f"{name}.toml", variables).dead_letters is None
    assert load(ROOT / "pipelines" / f"{name}.toml", variables | {"DEAD_LETTERS": "dead"}).dead_letters is not None


def test_dead_letters_without_any_place_are_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="dead_letters"):
        describe(with_parts(STREAM, source={"schema": "a INT"}, dead_letters={"partitions": 1}), {})


def test_files_have_no_payload_and_typed_formats_only_have_dead_letters() -> None:
    base: dict[str, Any] = {"source": {"format": "parquet", "path": "a", "schema": "a INT"}, "sink": {"topic": "out"}}
    for more, field in (
        ({"deduplicate": {"by": "payload"}}, "deduplicate.by"),
        ({"dead_letters": {"topic": "dead"}}, "dead_letters"),
        ({"sink": {"format": "parquet", "path": "a/"}}, "source.path"),
    ):
        with pytest.raises(InvalidInput) as refused:
            describe({**base, **more}, {})
        assert refused.value.field == field


def test_files_that_are_none(tmp_path: Path) -> None:
    for content, told in ((b"x = ", "not valid TOML"), (b"\xff", "cannot be read"), (b"[source]\ntopic='x'", "[sink]")):
        file = tmp_path / "pipeline.toml"
        file.write_bytes(content)
        with pytest.raises(InvalidInput) as refused:
            load(file, {})
        assert told in str(refused.value)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path / "missing.toml", {})


@pytest.mark.parametrize("file", sorted((ROOT / "pipelines").glob("*.toml")), ids=lambda file: file.stem)
def test_ready_pipelines_run_by_the_command_in_their_head(file: Path) -> None:
    head = file.read_text().split("\n#\n")[1].replace("#", "").replace("\\\n", " ")
    words = shlex.split(head)
    assert words[-4:] == ["headrace", "pipeline", "run", f"pipelines/{file.name}"]
    assert load(file, dict(word.split("=", 1) for word in words[:-4])).name == file.stem


@pytest.mark.parametrize("file", sorted((ROOT / "pipelines").glob("*.toml")), ids=lambda file: file.stem)
def test_ready_pipelines_need_what_they_say(file: Path) -> None:
    given = {
        "TOPIC": "in", "TARGET": "out", "FILES": "files", "TABLE": "table", "CHECKPOINT": "cp", "FROM": "2026-11-01",
        "SCHEMA": "a INT", "SQL": "SELECT a FROM source", "DEAD_LETTERS": "dead", "KEY": "a",
    }  # fmt: skip
    assert load(file, given).name == file.stem
    with pytest.raises(InvalidInput, match="is not set"):
        load(file, {})
