"""Tests of a pipeline with sample rows: `headrace pipeline test FILE`, without a broker and without writing anything.

    [[tests]] source, sources ──► schema ──► deduplicate ──► steps ──► columns of the sink ──► compared with `expect`

Everything between source and sink is what a run does, as a batch. Rows are compared in any order, and only by the
columns that `expect` names. Bytes are compared as text, times as ISO 8601. Where `expect` has a TOML table or array,
text and bytes are parsed as JSON first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.spark.pipeline.definition.description import Description, SampleTest, Source, TopicSink, TopicSource
from headrace.spark.pipeline.frame.deduplication import deduplicate
from headrace.spark.pipeline.frame.parse import METRICS, typed
from headrace.spark.pipeline.frame.source import CORRUPT, schema_of
from headrace.spark.pipeline.frame.steps import run_steps
from headrace.spark.pipeline.run.spark_errors import PipelineFailed
from headrace.spark.pipeline.run.spark_logs import analysis
from headrace.spark.pipeline.sinks.topic_sink import TopicSinkWriter
from headrace.spark.schema import METADATA, READ_COLUMNS, read_schema
from headrace.spark.session import separate_session

# When the first sample message was written, if it does not say; the others follow by the second.
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BYTES: Final = ("value", "key")
_TIMES: Final = ("timestamp", "created_at")
_NUMBER: Final = (int, "a whole number")
_KINDS: Final = {"attributes": (dict, "a table"), "partition": _NUMBER, "offset": _NUMBER, "seqno": _NUMBER}


@dataclass(frozen=True, slots=True)
class SampleResult:
    """How a test ended: rows that are missing or unexpected, and how many dead letters were found and expected."""

    name: str
    missing: list[dict[str, Any]]
    unexpected: list[dict[str, Any]]
    dead_letters: int
    expected_dead_letters: int | None

    @property
    def is_passed(self) -> bool:
        """Whether everything was as expected; dead letters only count if a number is given."""
        return not self.missing and not self.unexpected and self.expected_dead_letters in (None, self.dead_letters)


def run_tests(spark: SparkSession, description: Description) -> list[SampleResult]:
    """Run all tests of a pipeline."""
    if not description.tests:
        raise InvalidInput("tests", "missing", "the file has no [[tests]]: add sample rows and what must come out")
    return [_run(separate_session(spark), description, test, f"tests.{n}") for n, test in enumerate(description.tests)]


def _run(spark: SparkSession, description: Description, test: SampleTest, place: str) -> SampleResult:
    batch = structs.replace(description, source=structs.replace(description.source, mode="batch"))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for name in test.sources:
        if name not in description.sources:
            raise InvalidInput(f"{place}.sources.{name}", "unknown", "the pipeline has no source of this name")
    for name, source in description.sources.items():
        part = batch.reading(structs.replace(source, mode="batch"))
        rows = _sample(spark, part.source, test.sources.get(name, []), f"{place}.sources.{name}")
        typed(rows, part, f"{METRICS}_{name}").rows.createOrReplaceTempView(name)
    parts = typed(_sample(spark, batch.source, test.source, f"{place}.source"), batch)
    kept = deduplicate(parts.rows, batch.deduplicate) if batch.deduplicate else parts.rows
    made = run_steps(spark, kept, batch, _partitions(spark, batch.source, test.source, f"{place}.source"))
    if isinstance(batch.sink, TopicSink):
        sink = TopicSinkWriter(structs.replace(batch.sink, order_by=[]), {}, None)
        made = sink.messages(made) if batch.sink.values == "typed" else sink.prepare(made)
    try:
        with analysis(place, test.name):
            found = [{name: _plain(row[name]) for name in made.columns} for row in made.collect()]
            dead = 0 if parts.dead is None else parts.dead.count()
    except PipelineFailed as failure:
        raise PipelineFailed(f"test {test.name!r} ended early: {failure}", failure.kind) from None
    missing = [row for row in test.expect if not _take(found, row)]
    return SampleResult(test.name, missing, found, dead, test.dead_letters)


def _sample(spark: SparkSession, source: Source, rows: Sequence[Mapping[str, Any]], place: str) -> DataFrame:
    """Sample rows as the source would give them."""
    if isinstance(source, TopicSource):
        if source.values == "typed":
            rule = "the schema of the values is that of the topic, and a test asks no broker: use source.schema"
            raise InvalidInput(place, 'of values = "typed"', rule)
        columns = source.columns or list(READ_COLUMNS)
        messages = [_message(source, row, number, place) for number, row in enumerate(rows)]
        return spark.createDataFrame([tuple(each[name] for name in columns) for each in messages], read_schema(columns))
    if source.format == "text":
        return spark.createDataFrame([(str(row.get("value", "")),) for row in rows], "value STRING")
    if source.schema is None:
        if not rows:
            raise InvalidInput(place, "empty", "without a schema the columns are those of the rows: give at least one")
        with analysis(place, "given"):
            return spark.createDataFrame([dict(row) for row in rows])
    schema = schema_of(source.schema)
    if source.format in ("json", "csv"):
        schema = StructType([*schema.fields]).add(CORRUPT, "string")
    texts = spark.createDataFrame([(json.dumps(row, default=str),) for row in rows], "text STRING")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return texts.select(F.from_json("text", schema, options).alias("row")).select("row.*")


def _message(source: TopicSource, given: Mapping[str, Any], number: int, place: str) -> dict[str, Any]:
    message: dict[str, Any] = dict.fromkeys(READ_COLUMNS)
    message |= {"topic": next(iter(source.topics), "sample"), "partition": 0, "offset": number, "value": b""}
    message["timestamp"] = _BEGIN + timedelta(seconds=number)
    for name, value in given.items():
        if name not in READ_COLUMNS:
            rule = f"it is not a column of a message: known columns are {', '.join(READ_COLUMNS)}"
            raise InvalidInput(f"{place}.{number}.{name}", "unknown", rule)
        message[name] = _cell(name, value, f"{place}.{number}.{name}")
    return message


def _cell(name: str, value: Any, place: str) -> Any:
    """The value of a column of a message."""
    if name in _BYTES:
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()
    if name in _TIMES:
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            rule = "it must be a time such as 2026-07-01T12:00:00Z"
            raise InvalidInput(place, repr(value)[:100], rule) from None
    kind, shown = _KINDS.get(name, (str, "text"))
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidInput(place, repr(value)[:100], f"it must be {shown}")
    return {key: str(text).encode() for key, text in value.items()} if isinstance(value, dict) else value


def _partitions(spark: SparkSession, source: Source, rows: Sequence[Mapping[str, Any]], place: str) -> DataFrame | None:
    """The view `partitions` of sample messages: those that have any, from the first offset to the last."""
    if not isinstance(source, TopicSource):
        return None
    offsets: dict[tuple[str, int], list[int]] = {}
    for number, row in enumerate(rows):
        message = _message(source, row, number, place)
        offsets.setdefault((message["topic"], message["partition"]), []).append(message["offset"])
    key_hash = DEFAULT_SETTINGS.key_hash
    made = [(*of, min(at), max(at) + 1, max(at) + 1 - min(at), key_hash) for of, at in sorted(offsets.items())]
    return spark.createDataFrame(made, METADATA["partitions"])


def _take(found: list[dict[str, Any]], wanted: Mapping[str, Any]) -> bool:
    """Take the first row that is as wanted out of those found; whether there was one."""
    for place, row in enumerate(found):
        if all(name in row and _is_equal(row[name], value) for name, value in wanted.items()):
            del found[place]
            return True
    return False


def _is_equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, dict | list):
        try:
            found = json.loads(found)
        except ValueError:
            return False
    return bool(found == _plain(wanted))


def _plain(value: Any) -> Any:
    """A value of Spark or TOML as one that can be compared and shown."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
