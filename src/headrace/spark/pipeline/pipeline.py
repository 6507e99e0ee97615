"""The pipeline: checks itself, builds its DataFrame on Spark, and runs to its end or until it is stopped.

    Pipeline.load("orders.toml").run()

    source ─► typed ─► deduplicate ─► steps ─► sink          one DataFrame, built before anything runs
                 └─► dead rows ──────────────► dead letters

A stream is one query with one checkpoint, even with dead letters: both kinds of rows are in one DataFrame, and each
batch is split when it is written. So a row is in exactly one of the two sinks, even after a crash.

Errors before the first batch are errors of Headrace that name the key. Later errors are `PipelineFailed`; the
checkpoint remains, and the next run continues from it.

One thread runs a pipeline; `stop` may be called by any thread and by a signal handler, and is final.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.core.errors import HeadraceError, InvalidInput
from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    DeadTopic,
    Description,
    FormatSource,
    ReportSink,
    Sink,
    TableSink,
    TopicSink,
)
from headrace.spark.pipeline.definition.load import describe, load
from headrace.spark.pipeline.definition.paths import is_url
from headrace.spark.pipeline.definition.sample_test import SampleResult, run_tests
from headrace.spark.pipeline.frame.deduplication import deduplicate
from headrace.spark.pipeline.frame.file_systems import check_file_systems
from headrace.spark.pipeline.frame.parse import METRICS, typed
from headrace.spark.pipeline.frame.source import connection_options, read_source, with_watermark
from headrace.spark.pipeline.frame.steps import run_steps
from headrace.spark.pipeline.run.checkpoint import Checkpoint, held, is_on_object_store, open_checkpoint
from headrace.spark.pipeline.run.claim import Claim
from headrace.spark.pipeline.run.load_id import load_id
from headrace.spark.pipeline.run.preflight import (
    check_sink_id,
    check_tables,
    check_topics,
    is_loaded,
    make_topics,
    writer_of,
)
from headrace.spark.pipeline.run.progress import LINE_SECONDS, Progress, Summary, Tally
from headrace.spark.pipeline.run.reporter import Reporter
from headrace.spark.pipeline.run.spark_errors import PipelineFailed, failure_of
from headrace.spark.pipeline.run.spark_logs import analysis, check_streaming
from headrace.spark.pipeline.sinks.database.writer import DatabaseSinkWriter
from headrace.spark.pipeline.sinks.object_table_sink import ObjectTableSinkWriter, ObjectUpsertSinkWriter
from headrace.spark.pipeline.sinks.sink import AnyFormat, BatchReport, SinkWriter, order_columns
from headrace.spark.pipeline.sinks.table_sink import DeltaSinkWriter, TableSinkWriter
from headrace.spark.pipeline.sinks.topic_sink import DeadTopicSinkWriter, TopicSinkWriter
from headrace.spark.pipeline.sinks.upsert_sink import UpsertSinkWriter
from headrace.spark.session import separate_session
from headrace.spark.write.fingerprint import BatchId

_ROW: Final = "_headrace_good"
_DEAD: Final = "_headrace_dead"
_NAMED: Final = "_headrace_sink_"
_LOOK_SECONDS: Final = 0.2
# Spark gives the process that plans a stream ten seconds to start, and has no setting for it. A busy machine may need
# more. Nothing has been read by then, so the query is just started again. Spark names the error or its cause.
_SLOW_START: Final = re.compile("Python worker (failed )?to connect back")
_STARTS_MAX: Final = 10
_CONFIGURATION: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Timestamps as other readers of Parquet know them, Delta among them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A part of a plan that turns out to be empty is else dropped together with what was counted in it.
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
    # A message that was a dead letter before has attributes that are replaced.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}


@dataclass(frozen=True)
class _Built:
    """A pipeline on Spark, ready to be started."""

    rows: DataFrame
    # The writers of all sinks by the column that has their rows, those of dead letters first.
    sinks: dict[str, SinkWriter]
    checkpoint: Checkpoint | None
    counts: Observation | None
    load: str | None

    def duplicates(self) -> int:
        """The number of rows that the sinks dropped as duplicates."""
        return sum(sink.duplicates for sink in self.sinks.values())

    def open(self) -> None:
        """Finish what an earlier run left incomplete."""
        for sink in self.sinks.values():
            sink.open()

    def close(self) -> None:
        """Release the sinks for other runs."""
        for sink in self.sinks.values():
            sink.close()

    def write_batch(self, rows: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        assert self.checkpoint is not None
        self.write(rows, self.checkpoint.batch(number))

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Write rows to their sinks. Rows used twice are cached, so that they are computed and counted once."""
        if len(self.sinks) == 1 and not order_columns(rows):
            self.sinks[_ROW].write(rows, batch)
            return
        rows.persist()
        try:
            if len(self.sinks) == 1:
                self.sinks[_ROW].write(rows, batch)
            else:
                for column, sink in self.sinks.items():
                    sink.write(rows.where(F.col(column).isNotNull()).select(f"{column}.*"), batch)
        finally:
            rows.unpersist()


def _together(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Rows of all kinds in one DataFrame, those of each kind as a struct in a column of their own."""
    if len(frames) == 1:
        return frames[_ROW]
    kinds = {column: StructType(frame.schema.fields) for column, frame in frames.items()}
    parts = [
        frame.select(
            *(
                F.struct("*").alias(other) if other == column else F.lit(None).cast(kind).alias(other)
                for other, kind in kinds.items()
            )
        )
        for column, frame in frames.items()
    ]
    return reduce(DataFrame.unionAll, parts)


def _configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what can be set for one session; what needs a session of its own must be so already."""
    for name, value in settings.items():
        if spark.conf.get(name, None) != value:
            with analysis(name, value):
                spark.conf.set(name, value)


def _with_counts(rows: DataFrame, counted: DataFrame) -> DataFrame:
    """The same rows, in a plan in which Spark Connect finds what is counted.

    A client of Spark Connect is told of an Observation only if its own plan has it. SQL names the rows that are counted
    by a view, whose plan is the server's. So they are joined as a side without rows, which the optimizer removes before
    anything is read.
    """
    if getattr(rows, "_jdf", None) is not None:
        return rows
    return rows.join(counted.where(F.lit(False)), F.lit(True), "left_anti")


def _counted(counts: Observation) -> dict[str, Any]:
    """What was counted; nothing if Spark saw that no row can come, and read none."""
    try:
        return counts.get
    except Py4JJavaError:
        return {}


def _add_sources(spark: SparkSession, description: Description) -> None:
    """The named sources as views."""
    for name, source in description.sources.items():
        part = description.reading(source)
        with _errors_about(f"sources.{name}"):
            rows = typed(read_source(spark, part), part, f"{METRICS}_{name}").rows
        with_watermark(rows, source, f"sources.{name}").createOrReplaceTempView(name)


@contextmanager
def _errors_about(place: str) -> Iterator[None]:
    """Errors about keys of `source` are about those of this source."""
    try:
        yield
    except InvalidInput as error:
        if error.field.split(".")[0] != "source":
            raise
        raise InvalidInput(place + error.field.removeprefix("source"), error.value, error.rule) from None


def _written_rows(spark: SparkSession, sink: Sink, last: DataFrame) -> DataFrame:
    """The rows of the step that a sink writes: the last one unless it names another."""
    step = None if isinstance(sink, ReportSink) else sink.step
    return last if step is None else spark.table(step)


def _files(read: DataFrame, description: Description) -> list[str]:
    """The files of a batch; none of a source that has none."""
    if description.is_stream or not isinstance(description.source, FormatSource):
        return []
    with analysis("source.format", description.source.format):
        return list(read.inputFiles())


def _file_name(name: str) -> str:
    """The name of a pipeline as a part of file names, unlike that of any other."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', name)[:40]}-{sha256(name.encode()).hexdigest()[:8]}"


def _silent(progress: Progress) -> None:
    pass


class Pipeline:
    """Source, deduplication, steps and sink, ready to run."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self.report: BatchReport | None = None
        self._stopping = threading.Event()

    @classmethod
    def load(cls, file: str | os.PathLike[str], variables: Mapping[str, str] | None = None) -> Pipeline:
        """Load the pipeline in a TOML file; variables default to the environment."""
        return cls(load(Path(file), os.environ if variables is None else variables))

    @classmethod
    def of(cls, tables: Mapping[str, Any], name: str = "pipeline") -> Pipeline:
        """Build a pipeline from tables of values, as they would be in a file."""
        return cls(describe(tables, {}, name))

    def preflight(self, accept_change: bool = False) -> None:
        """Run the checks that need no Spark: of the broker, and of a checkpoint that is a directory."""
        if is_on_object_store(self.description):
            check_topics(self.description)
        else:
            self._preflight(open_checkpoint(self.description), accept_change)

    def _preflight(self, checkpoint: Checkpoint | None, accept_change: bool, spark: SparkSession | None = None) -> None:
        if checkpoint is not None:
            checkpoint.check(accept_change)
        check_topics(self.description, checkpoint is None or checkpoint.is_new)
        if checkpoint is not None and checkpoint.is_new:
            check_sink_id(self.description, checkpoint.sink_id, spark)

    def check(self, spark: SparkSession) -> None:
        """Run all checks without running the pipeline."""
        self._build(separate_session(spark), accept_change=False)

    def test(self, spark: SparkSession) -> list[SampleResult]:
        """Run the tests of the file with their sample rows; neither broker nor sink is used."""
        return run_tests(spark, self.description)

    def run(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        accept_change: bool = False,
        tell: Callable[[Progress], None] = _silent,
    ) -> Summary:
        """Run a batch to its end; a stream to the current end of its source if `once`, otherwise until `stop`."""
        with held(self.description, spark, self._stopping.wait) as claim, Reporter(self.description) as reporter:

            def tell_all(progress: Progress) -> None:
                reporter.progressed(progress)
                tell(progress)

            built = self._build(separate_session(spark), accept_change, claim)
            try:
                summary = self._run(built, once, tell_all)
            finally:
                built.close()
            reporter.ended(summary, self._stopping.is_set())
            return summary

    def _run(self, built: _Built, once: bool, tell: Callable[[Progress], None]) -> Summary:
        make_topics(self.description)
        built.open()
        if built.checkpoint is None:
            return self._run_batch(built)
        if built.checkpoint.is_new:
            # Another run may have written since the check, before it let go of the table.
            check_tables(self.description, built.checkpoint.sink_id, built.rows.sparkSession)
        built.checkpoint.store()
        tally = Tally(self.description.name, tell, time.monotonic, built.duplicates)
        for attempt in range(_STARTS_MAX):
            try:
                built.checkpoint.query_starts()
                if self._wait(self._start(built, built.checkpoint, once), tally):
                    built.checkpoint.query_ended()
                break
            except PipelineFailed as failure:
                if not _SLOW_START.search(str(failure)) or attempt == _STARTS_MAX - 1:
                    raise
        return Summary(
            pipeline=self.description.name,
            batches=tally.batches,
            messages=tally.messages,
            dead_letters=tally.dead_letters,
            duplicates=built.duplicates(),
        )

    def stop(self) -> None:
        """Ask a running stream to stop; the current batch is aborted, and repeated by the next run."""
        self._stopping.set()

    def _build(self, spark: SparkSession, accept_change: bool, claim: Claim | None = None) -> _Built:
        description = self.description
        checkpoint = open_checkpoint(description, spark, claim)
        _configure(spark, _CONFIGURATION | description.spark)
        self._preflight(checkpoint, accept_change, spark)
        writer = checkpoint.sink_id if checkpoint is not None else _file_name(description.name)
        counts = Observation() if checkpoint is None else None
        check_file_systems(spark, description)
        read = read_source(spark, description)
        load = load_id(description, _files(read, description), spark)
        dead = self._dead_letters(writer, load)
        parts = typed(read, description, counts or METRICS)
        kept = deduplicate(parts.rows, description.deduplicate) if description.deduplicate else parts.rows
        _add_sources(spark, description)
        last = run_steps(spark, with_watermark(kept, description.source), description)
        sinks: dict[str, SinkWriter] = {}
        frames: dict[str, DataFrame] = {}
        if dead is not None and parts.dead is not None:
            sinks[_DEAD], frames[_DEAD] = dead, dead.prepare(parts.dead)
        for name, named in description.sinks.items():
            column = f"{_NAMED}{name}"
            sinks[column] = self._sink(named, writer_of(writer, name), load, f"sinks.{name}")
            frames[column] = sinks[column].prepare(_written_rows(spark, named, last))
        sinks[_ROW] = self._sink(description.sink, writer, load, "sink")
        frames[_ROW] = sinks[_ROW].prepare(_written_rows(spark, description.sink, last))
        rows = _together(frames)
        if checkpoint is None:
            rows = _with_counts(rows, parts.rows)
        else:
            check_streaming(rows, description.run.output_mode)
        return _Built(rows, sinks, checkpoint, counts, load)

    def _sink(self, sink: Sink, writer: str, load: str | None, field: str) -> SinkWriter:
        if isinstance(sink, ReportSink):
            self.report = BatchReport(sink)
            return self.report
        if isinstance(sink, TopicSink):
            options = connection_options(self.description.server, self.description.url_of(sink))
            return TopicSinkWriter(sink, options, writer, load, field)
        if isinstance(sink, DatabaseSink):
            return DatabaseSinkWriter(sink, writer, field, load)
        return self._table(sink, writer, field, load) if sink.is_table else AnyFormat(sink)

    def _dead_letters(self, writer: str, load: str | None) -> SinkWriter | None:
        dead = self.description.dead_letters
        if dead is None:
            return None
        if isinstance(dead, DeadTopic):
            options = connection_options(self.description.server, self.description.url_of(dead))
            return DeadTopicSinkWriter(TopicSink(topic=dead.topic), options, writer, load)
        return self._table(TableSink(format=dead.format, path=dead.path), writer, "dead_letters", load)

    def _table(self, sink: TableSink, writer: str, field: str, load: str | None) -> SinkWriter:
        kind = TableSinkWriter
        if sink.format == "delta" and is_url(str(sink.path)):
            kind = ObjectUpsertSinkWriter if sink.mode == "upsert" else ObjectTableSinkWriter
        elif sink.format == "delta":
            kind = UpsertSinkWriter if sink.mode == "upsert" else DeltaSinkWriter
        return kind(sink, writer, self.description.is_stream, field, load)

    def _run_batch(self, built: _Built) -> Summary:
        if built.load is not None and is_loaded(self.description, built.load, built.rows.sparkSession):
            return Summary(pipeline=self.description.name, batches=0, messages=0, dead_letters=0, is_repeated=True)
        try:
            built.write(built.rows, None)
        except (PySparkException, Py4JJavaError) as error:
            raise failure_of(str(error)) from None
        except HeadraceError as error:
            raise PipelineFailed(str(error), type(error)) from None
        assert built.counts is not None
        counted = _counted(built.counts)
        return Summary(
            pipeline=self.description.name,
            batches=1,
            messages=counted.get("rows", 0),
            dead_letters=counted.get("dead", 0),
            duplicates=built.duplicates(),
            is_refused=self.report is not None and self.report.is_refused,
        )

    def _start(self, built: _Built, checkpoint: Checkpoint, once: bool) -> StreamingQuery:
        run = self.description.run
        writer = (
            built.rows.writeStream.queryName(self.description.name)
            .outputMode(run.output_mode)
            .option("checkpointLocation", checkpoint.spark)
            .foreachBatch(built.write_batch)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        elif run.trigger_seconds is not None:
            writer = writer.trigger(processingTime=f"{int(run.trigger_seconds * 1000)} milliseconds")
        with analysis("steps", self.description.name):
            return writer.start()

    def _wait(self, query: StreamingQuery, tally: Tally) -> bool:
        """Until the query ends, or is to end; whether it has surely ended."""
        try:
            look_at = time.monotonic()
            while query.isActive and not self._stopping.wait(_LOOK_SECONDS):
                # Rarely, since Spark hands out its last hundred reports each time.
                if time.monotonic() >= look_at:
                    tally.take(query.recentProgress)
                    look_at = time.monotonic() + LINE_SECONDS
            if query.isActive:
                query.stop()
            query.awaitTermination()
            tally.take(query.recentProgress, at_end=True)
        except Exception as error:
            # A signal to the whole process group ends Java too: then there is nobody left to ask.
            if not self._stopping.is_set():
                raise failure_of(str(error)) from None
            return False
        return True
