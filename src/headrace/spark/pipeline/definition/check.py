"""Validates the keys of a pipeline: rules that need neither Spark nor a broker.

Errors that can be found before anything starts are raised here, with the key that has to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.core.limits import WINDOW_SECONDS_MAX
from headrace.core.names import check_group_name, check_id, check_topic_name, topic_key
from headrace.core.topics.settings import TopicSettings
from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    DeadTable,
    DeadTopic,
    Description,
    FormatSource,
    NamedSink,
    ReportSink,
    Run,
    Source,
    TableSink,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.definition.paths import check_directory, check_s3, check_table_path, is_url
from headrace.spark.reader.topic_selection import check_pattern

# Views that exist without a step.
RESERVED_VIEWS: Final = frozenset({"source", "partitions"})
MESSAGE_STRUCT: Final = "message"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LIMITS: Final = (
    "max_messages_per_trigger",
    "max_bytes_per_trigger",
    "min_messages_per_trigger",
    "max_trigger_delay_seconds",
)
_STREAM_ONLY: Final = ("group", "important", *_LIMITS)
_BATCH_ONLY: Final = ("ending_offsets", "ending_timestamp")
# How files of Delta tables on object stores may be compressed.
_COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "none")
# Formats whose rows are text that may not match a schema.
_TYPED_FORMATS: Final = frozenset({"json", "csv", "text"})


def check(description: Description) -> None:
    """Raise for the first key that is wrong."""
    _check_sources(description)
    _check_deduplication(description)
    _check_steps(description)
    _check_sinks(description)
    _check_dead_letters(description)
    _check_run(description)
    _check_loops(description)


def _check_sources(description: Description) -> None:
    _check_source(description.source, "source")
    for name, source in description.sources.items():
        place = f"sources.{name}"
        if not _IDENTIFIER.fullmatch(name) or name.lower() in RESERVED_VIEWS:
            rule = "it must have letters, digits and underscores only, and must not be source or partitions"
            raise InvalidInput(place, repr(name)[:100], rule)
        if source.mode == "stream" and not description.is_stream:
            raise InvalidInput(f"{place}.mode", "stream", 'a batch reads batches only: set mode = "batch"')
        _check_source(source, place)


def _check_source(source: Source, place: str) -> None:
    is_stream = source.mode == "stream"
    if source.watermark is not None and not is_stream:
        raise InvalidInput(f"{place}.watermark", source.watermark[:100], "it does not apply to a batch: remove it")
    if not 0 <= source.watermark_delay_seconds <= WINDOW_SECONDS_MAX:
        rule = f"it must be from 0 to {WINDOW_SECONDS_MAX}"
        raise InvalidInput(f"{place}.watermark_delay_seconds", str(source.watermark_delay_seconds), rule)
    if isinstance(source, FormatSource):
        if source.format == "headrace":
            raise InvalidInput(f"{place}.format", "headrace", f"set {place}.topic to read a topic")
        if source.format == "delta" and not is_stream:
            check_table_path(f"{place}.path", source.path, source.format)
            for key in ("schema", "options"):
                if getattr(source, key):
                    raise InvalidInput(f"{place}.{key}", "given", "a Delta table has its own columns: remove it")
        return
    _check_selection(source, place)
    if source.group is not None:
        _named(f"{place}.group", source.group, check_group_name)
    elif source.important is not None:
        raise InvalidInput(f"{place}.important", str(source.important).lower(), f"set {place}.group too")
    refused, kind = (_BATCH_ONLY, "a stream") if is_stream else (_STREAM_ONLY, "a batch")
    _refuse(source, refused, place, f"it does not apply to {kind}: remove it")
    for limit in (*_LIMITS, "min_partitions"):
        _positive(f"{place}.{limit}", getattr(source, limit))
    if source.on_undecodable is not None and source.decode is False:
        rule = "nothing is decoded with decode = false: remove one of the two"
        raise InvalidInput(f"{place}.on_undecodable", source.on_undecodable, rule)
    if source.values == "typed" and source.schema is not None:
        rule = 'the schema of the topic is used with values = "typed": remove one of the two'
        raise InvalidInput(f"{place}.schema", source.schema[:100], rule)
    if source.values == "typed" and source.decode is False:
        raise InvalidInput(
            f"{place}.decode", "false", 'values are decoded with values = "typed": remove one of the two'
        )
    if source.schema is not None and source.columns is not None and "value" not in source.columns:
        raise InvalidInput(f"{place}.columns", ", ".join(source.columns), "a schema needs the column value: add it")


def _check_selection(source: TopicSource, place: str) -> None:
    if source.topic_pattern is None:
        for topic in source.topics:
            _named(f"{place}.topic", topic, check_topic_name)
        return
    if source.topic is not None:
        raise InvalidInput(f"{place}.topic_pattern", source.topic_pattern[:100], f"set it or {place}.topic, not both")
    check_pattern(f"{place}.topic_pattern", source.topic_pattern)


def _check_settings(place: str, part: TopicSink | DeadTopic) -> None:
    """Settings apply to a topic that a run creates, so the number of its partitions is needed too."""
    if part.settings and part.partitions is None:
        rule = f"they apply to a topic that is created if it is missing: set {place}.partitions too"
        raise InvalidInput(f"{place}.settings", "given alone", rule)
    try:
        TopicSettings.make(**part.settings)
    except InvalidInput as error:
        raise InvalidInput(f"{place}.settings.{error.field}", error.value, error.rule) from None


def _check_deduplication(description: Description) -> None:
    asked = description.deduplicate
    if asked is None:
        return
    if isinstance(asked.by, list) and not asked.by:
        raise InvalidInput("deduplicate.by", "[]", "name at least one column")
    if not 0 < asked.window_seconds <= WINDOW_SECONDS_MAX:
        rule = f"it must be more than 0 and at most {WINDOW_SECONDS_MAX}"
        raise InvalidInput("deduplicate.window_seconds", str(asked.window_seconds), rule)
    if not isinstance(asked.by, list) and not isinstance(description.source, TopicSource):
        raise InvalidInput("deduplicate.by", asked.by, "only messages of a topic have that: give a list of columns")


def _check_steps(description: Description) -> None:
    seen = {*RESERVED_VIEWS, *(name.lower() for name in description.sources)}
    for number, step in enumerate(description.steps):
        place = f"steps.{number}"
        if not _IDENTIFIER.fullmatch(step.name):
            raise InvalidInput(
                f"{place}.name", repr(step.name)[:100], "it must have letters, digits and underscores only"
            )
        if step.name.lower() in seen:
            raise InvalidInput(f"{place}.name", step.name, "a view with this name exists: choose another name")
        seen.add(step.name.lower())
        if (step.sql is None) == (step.function is None):
            raise InvalidInput(place, step.name, "a step needs either sql or function, not both")
        if step.function is not None and not _FUNCTION.fullmatch(step.function):
            raise InvalidInput(f"{place}.function", step.function[:100], "write it as module:function")


def _check_sinks(description: Description) -> None:
    sink = description.sink
    if isinstance(sink, ReportSink):
        if description.is_stream:
            raise InvalidInput("sink.format", "report", 'a report cannot be a stream: set source.mode = "batch"')
    else:
        if sink.sink_id is not None:
            if not description.is_stream:
                raise InvalidInput(
                    "sink.sink_id", sink.sink_id[:100], "it does not apply to a batch, which is written once: remove it"
                )
            _named("sink.sink_id", sink.sink_id, lambda name: check_id("sink.sink_id", name))
        _check_sink(description, sink, "sink")
    for name, each in description.sinks.items():
        place = f"sinks.{name}"
        if not _IDENTIFIER.fullmatch(name):
            raise InvalidInput(place, repr(name)[:100], "it must have letters, digits and underscores only")
        _refuse(each, ("sink_id",), place, "it is that of the main sink, with this name behind it: remove it")
        _check_sink(description, each, place)


def _check_sink(description: Description, sink: NamedSink, place: str) -> None:
    views = ["source", *(step.name for step in description.steps)]
    if sink.step is not None and sink.step not in views:
        raise InvalidInput(f"{place}.step", sink.step[:100], f"it must be one of {', '.join(views)}")
    if isinstance(sink, TopicSink):
        _named(f"{place}.topic", sink.topic, check_topic_name)
        _positive(f"{place}.partitions", sink.partitions)
        _check_settings(place, sink)
        if sink.values == "typed" and sink.value is not None:
            rule = 'values are made of columns with values = "typed": remove one of the two'
            raise InvalidInput(f"{place}.value", sink.value[:100], rule)
    elif isinstance(sink, DatabaseSink):
        _check_database(sink, place)
    else:
        _check_table(sink, place)


def _check_database(sink: DatabaseSink, place: str) -> None:
    if not sink.database.startswith(("postgresql://", "postgres://")):
        raise InvalidInput(f"{place}.database", "not shown", "it must be a URL postgresql://USER@HOST/DATABASE")
    if sink.mode == "upsert" and not sink.keys:
        raise InvalidInput(f"{place}.keys", "missing", "an upsert needs the columns that identify a row")
    for field in ("keys", "order_by"):
        if sink.mode == "append" and getattr(sink, field):
            rule = f'it applies to {place}.mode = "upsert" only: set that, or remove it'
            raise InvalidInput(f"{place}.{field}", "given", rule)


def _check_table(sink: TableSink, place: str) -> None:
    if sink.format in ("headrace", "report"):
        rule = f"set {place}.topic to write to a topic" if sink.format == "headrace" else "only [sink] can be a report"
        raise InvalidInput(f"{place}.format", sink.format, rule)
    _check_upsert(sink, place)
    if sink.is_table:
        check_table_path(f"{place}.path", sink.path, sink.format)
        _check_object_options(sink, place)
        if sink.sink_id is not None and not _IDENTIFIER.fullmatch(sink.sink_id.replace("-", "_")):
            raise InvalidInput(
                f"{place}.sink_id", sink.sink_id[:100], "it is part of file names: letters, digits, - and _ only"
            )
    else:
        _refuse(
            sink,
            ("sink_id", "partition_date"),
            place,
            f"it does not apply to {sink.format}, which Spark itself writes: remove it",
        )
    if sink.compact_files is not None:
        if sink.format not in ("parquet", "delta"):
            raise InvalidInput(
                f"{place}.compact_files", str(sink.compact_files), "only parquet and delta are compacted"
            )
        if sink.compact_files < 2:
            raise InvalidInput(f"{place}.compact_files", str(sink.compact_files), "it must be at least 2")
        _positive(f"{place}.compact_bytes", sink.compact_bytes)
    if sink.partition_date is not None and "date" in (name.lower() for name in sink.partition_by):
        raise InvalidInput(
            f"{place}.partition_date",
            sink.partition_date,
            f"it creates the column date: remove date from {place}.partition_by",
        )


def _check_upsert(sink: TableSink, place: str) -> None:
    if sink.mode == "upsert":
        if sink.format != "delta":
            raise InvalidInput(f"{place}.mode", "upsert", f'it needs {place}.format = "delta", not {sink.format}')
        if not sink.keys:
            raise InvalidInput(f"{place}.keys", "missing", "an upsert needs the columns that identify a row")
    elif sink.keys or sink.delete_when is not None:
        field = "keys" if sink.keys else "delete_when"
        raise InvalidInput(
            f"{place}.{field}", "given", f'it applies to {place}.mode = "upsert" only: set that, or remove it'
        )


def _check_dead_letters(description: Description) -> None:
    dead, source = description.dead_letters, description.source
    if dead is None:
        return
    is_typed = source.is_typed if isinstance(source, TopicSource) else source.schema is not None
    if not is_typed and not description.buries_undecodable:
        raise InvalidInput(
            "dead_letters", "given", "without source.schema every row is valid: set it, or remove dead_letters"
        )
    if isinstance(source, FormatSource) and source.format not in _TYPED_FORMATS:
        rule = (
            f"rows of {source.format} are always valid: only topics and {', '.join(sorted(_TYPED_FORMATS))} need them"
        )
        raise InvalidInput("dead_letters", "given", rule)
    if isinstance(dead, DeadTopic):
        _named("dead_letters.topic", dead.topic, check_topic_name)
        _positive("dead_letters.partitions", dead.partitions)
        _check_settings("dead_letters", dead)
        return
    if dead.format not in ("parquet", "delta", "orc", "json"):
        raise InvalidInput("dead_letters.format", dead.format, "it must be parquet, delta, orc or json")
    check_table_path("dead_letters.path", dead.path, dead.format)


def _check_run(description: Description) -> None:
    run = description.run
    if not description.is_stream:
        _refuse(run, ("checkpoint", "trigger_seconds"), "run", "it does not apply to a batch: remove it")
        if run.output_mode != Run().output_mode:
            raise InvalidInput("run.output_mode", run.output_mode, "it does not apply to a batch: remove it")
        if run.load_id is not None:
            _named("run.load_id", run.load_id, lambda name: check_id("run.load_id", name))
            sink = description.sink
            if isinstance(sink, ReportSink) or (isinstance(sink, TableSink) and not sink.is_table):
                rule = f"it applies to loads into a topic or a table, not to {sink.format}: remove it"
                raise InvalidInput("run.load_id", run.load_id[:100], rule)
        return
    _refuse(run, ("load_id",), "run", "it does not apply to a stream, which continues from its checkpoint: remove it")
    _check_checkpoint(description)
    if run.trigger_seconds is not None and run.trigger_seconds < 0:
        raise InvalidInput("run.trigger_seconds", str(run.trigger_seconds), "it must not be negative")


def _check_loops(description: Description) -> None:
    """Source, sink and dead letters must be different. Topic names are case-insensitive, as in the broker."""
    ends = list(_ends(description))
    for (one, place), (other, same) in ((a, b) for a in ends for b in ends if a[0] < b[0]):
        if place == same:
            shown = place[1] if isinstance(place, tuple) else str(place)
            raise InvalidInput(
                other,
                shown,
                f"it is the same as {one}: a pipeline cannot write to its source, or mix rows and dead letters",
            )
    for place, source in _topic_sources(description):
        for field, (url, topic) in _written_topics(description):
            if source.topic_pattern is not None and url == description.url_of(source) and source.selects(topic):
                rule = f"{place}.topic_pattern selects it: a pipeline cannot write to its source"
                raise InvalidInput(field, topic, rule)


def _topic_sources(description: Description) -> Iterable[tuple[str, TopicSource]]:
    named = ((f"sources.{name}", source) for name, source in description.sources.items())
    for place, source in (("source", description.source), *named):
        if isinstance(source, TopicSource):
            yield place, source


def _written_topics(description: Description) -> Iterable[tuple[str, tuple[str, str]]]:
    named = ((f"sinks.{name}", sink) for name, sink in description.sinks.items())
    for place, part in (("sink", description.sink), *named, ("dead_letters", description.dead_letters)):
        if isinstance(part, TopicSink | DeadTopic):
            yield f"{place}.topic", (description.url_of(part), topic_key(part.topic))


def _ends(description: Description) -> Iterable[tuple[str, Any]]:
    source, sink, dead = description.source, description.sink, description.dead_letters
    for _, each in _topic_sources(description):
        for topic in each.topics:
            # All by the key of the main one: to read a topic twice is no loop.
            yield "source.topic", (description.url_of(each), topic_key(topic))
    yield from _written_topics(description)
    for name, each_sink in description.sinks.items():
        if isinstance(each_sink, TableSink) and each_sink.path is not None:
            yield f"sinks.{name}.path", each_sink.path.rstrip("/")
    if isinstance(sink, TableSink) and sink.path is not None:
        yield "sink.path", sink.path.rstrip("/")
    if isinstance(dead, DeadTable):
        yield "dead_letters.path", dead.path.rstrip("/")
    if isinstance(source, FormatSource) and source.path is not None:
        yield "source.path", source.path.rstrip("/")


def _check_checkpoint(description: Description) -> None:
    """A directory, or a place on S3 if all that is written takes a batch once even from two runs."""
    path = description.run.checkpoint
    if not path or not is_url(path):
        check_directory("run.checkpoint", path)
        return
    check_s3("run.checkpoint", path)
    named = ((f"sinks.{name}", sink) for name, sink in description.sinks.items())
    for place, part in (("sink", description.sink), *named, ("dead_letters", description.dead_letters)):
        is_delta = isinstance(part, TableSink | DeadTable) and part.format == "delta" and is_url(part.path or "")
        if part is not None and not is_delta and not isinstance(part, TopicSink | DeadTopic | DatabaseSink):
            rule = (
                f"{place} is no topic, no Delta table on S3 and no database: only these take a batch once "
                "even if two runs write it, which a checkpoint on S3 needs. Set a directory"
            )
            raise InvalidInput("run.checkpoint", path[:100], rule)


def _check_object_options(sink: TableSink, place: str) -> None:
    """Files on an object store are not written by Spark's writer, so only what ours knows may be asked for."""
    if sink.path is None or not is_url(sink.path):
        return
    for name, value in sink.options.items():
        if name != "compression":
            rule = "it does not apply to tables on object stores, which know only compression: remove it"
            raise InvalidInput(f"{place}.options.{name}", value[:100], rule)
        if value.lower() not in _COMPRESSIONS:
            raise InvalidInput(f"{place}.options.{name}", value[:100], f"it must be one of {', '.join(_COMPRESSIONS)}")


def _named(field: str, name: str, rule: Any) -> None:
    """A rule about names, with the key of the file in its error."""
    try:
        rule(name)
    except InvalidInput as error:
        raise InvalidInput(field, error.value, error.rule) from None


def _positive(field: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise InvalidInput(field, str(number), "it must be at least 1")


def _refuse(section: Any, keys: Iterable[str], place: str, rule: str) -> None:
    for key in keys:
        if getattr(section, key) is not None:
            raise InvalidInput(f"{place}.{key}", str(getattr(section, key))[:100], rule)
