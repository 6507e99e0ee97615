"""A pipeline with three sinks that stops at a chosen moment of a batch, to be killed there.

It copies a topic into a topic (`sinks.copy`), into Parquet files (`sinks.landed`) and into a Delta table that keeps the
newest row of each key (`sink`). The fault `MOMENT NUMBER FIELD` names a moment in the commit of one of them:

    staged      all rows of the batch are written where no reader sees them
    published   the batch is committed, and nothing else has noted it
    written     the sink has done all that it does for a batch; Spark has not recorded it

A batch that a sink has from before the last kill is not committed again: then each moment is that after it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.pipeline import Pipeline
from headrace.spark.pipeline.definition.description import Sink
from headrace.spark.pipeline.definition.load import describe
from headrace.spark.pipeline.sinks.sink import SinkWriter
from tests.spark.scenarios import pass_gate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.write.fingerprint import BatchId

MOMENTS = ("staged", "published", "written")
COPY, LANDED, NEWEST = "sinks.copy", "sinks.landed", "sink"
FIELDS = (COPY, LANDED, NEWEST)


def tables_of(query: dict[str, Any]) -> dict[str, Any]:
    """The pipeline as its file would describe it."""
    tables = Path(query["tables"])
    return {
        "server": {"url": query["url"]},
        "source": {"topic": query["source"], "max_messages_per_trigger": 100, "min_partitions": 2},
        "steps": [
            {"name": "rows", "sql": "SELECT string(key) AS key, value, bigint(string(value)) AS id, offset FROM source"}
        ],
        "sink": {
            "format": "delta", "path": str(tables / "newest"),
            "mode": "upsert", "keys": ["key"], "order_by": ["offset"],
        },
        "sinks": {
            "copy": {"topic": query["sink"], "step": "source"},
            "landed": {"format": "parquet", "path": str(tables / "landed")},
        },
        "run": {"checkpoint": query["checkpoint"], "report": False},
    }  # fmt: skip


def run_pipeline(spark: SparkSession, query: dict[str, Any]) -> None:
    """Run it up to the end of the topic or, if the query says so, for ever."""
    pipeline = FaultyPipeline(tables_of(query), query["fault"], Path(query["directory"]))
    pipeline.run(spark, once=not query.get("forever"))


class FaultyPipeline(Pipeline):
    """Stops where it is told to."""

    def __init__(self, tables: dict[str, Any], fault: str, directory: Path) -> None:
        super().__init__(describe(tables, {}, "killed"))
        self._fault, self._directory = fault, directory

    def _sink(self, sink: Sink, writer: str, load: str | None, field: str) -> SinkWriter:
        made = super()._sink(sink, writer, load, field)
        parts = self._fault.split()
        if parts[1:] and parts[2] == field:
            _Stop(made, parts[0], int(parts[1]), lambda: pass_gate(self._directory, self._fault))
        return made


class _Stop:
    """Put around what a sink does."""

    def __init__(self, sink: Any, moment: str, number: int, stop: Callable[[], None]) -> None:
        self._commit, self._write = sink.commit, sink.write
        self._moment, self._number, self._stop = moment, number, stop
        sink.commit, sink.write = self.commit, self.write

    def commit(self, *batch: Any) -> None:
        is_here = any(getattr(part, "number", None) == self._number for part in batch)
        if is_here and self._moment == "staged":
            self._stop()
        self._commit(*batch)
        if is_here and self._moment == "published":
            self._stop()

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        self._write(rows, batch)
        if batch.number == self._number:
            self._stop()
