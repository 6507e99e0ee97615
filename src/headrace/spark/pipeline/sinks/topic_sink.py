"""A topic as sink: rows made into messages by expressions, published in one commit per batch, exactly once.

Tasks put rows aside in the broker, and the driver publishes them, as the data source does it. It is done here and not
by way of `.format("headrace")` since Spark hands no result of a commit back, and a pipeline tells how many messages a
topic did not take because it had them.

The commit has the sink's id and the batch's number, so that the broker takes each batch once, however often Spark tries
it. A batch that is not of a stream has an id of its own, that of its load if it has one: published whole, or not at
all. Stages of a batch that failed expire in the broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import InvalidInput
from headrace.spark.options import WriteOptions, write_options
from headrace.spark.pipeline.definition.check import MESSAGE_STRUCT
from headrace.spark.pipeline.definition.description import MESSAGE_COLUMNS, TopicSink
from headrace.spark.pipeline.run.spark_logs import analysis, quoted
from headrace.spark.pipeline.sinks.sink import in_order, order_columns, with_order
from headrace.spark.schema import READ_COLUMNS, check_writable
from headrace.spark.write.fingerprint import BatchId
from headrace.spark.write.staging import StagedPiece, publish_stages, stage_rows
from headrace.spark.write.typed_values import FieldValues, typed_values

# Taken over by name from the last step. Not the partition, which another topic may not have, and not the codec: values
# are decoded when they are read.
_TAKEN: Final = ("value", "key", "attributes", "created_at")
# Taken over only if asked for: a topic takes a seqno that is not above the last one of its source for a repeat, and
# rows of several partitions come in no order of seqnos.
_SOURCES: Final = ("producer_id", "message_group_id", "seqno")
_STAGED: Final = pa.schema([("stage", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])


class TopicSinkWriter:
    """Messages to one topic."""

    def __init__(
        self,
        sink: TopicSink,
        options: dict[str, str],
        sink_id: str | None,
        load: str | None = None,
        field: str = "sink",
    ) -> None:
        self._sink = sink
        self._field = field
        self._load = load
        self._options = write_options(options | {"topic": sink.topic}, is_stream=False)
        self._sink_id = sink_id
        self._typed: FieldValues | None = None
        self.duplicates = 0

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The columns of a message, or fields of its value, which can be written."""
        messages = self.messages(rows)
        schema = messages.drop(*order_columns(messages)).schema
        if self._sink.values == "typed":
            self._typed = typed_values(self._options.connection, self._sink.topic, schema)
        else:
            check_writable(schema, has_topic=True)
        return messages

    def messages(self, rows: DataFrame) -> DataFrame:
        """The same; no broker is asked."""
        ordered = with_order(rows, self._sink.order_by)
        made = self._columns(rows)
        with analysis(self._field, self._sink.topic):
            return ordered.select(*made, *order_columns(ordered))

    def open(self) -> None:
        """What tasks put aside and nobody published expires in the broker."""

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Publish."""
        columns = "stage STRING, rows BIGINT, bytes BIGINT"
        staged = in_order(rows).mapInArrow(_staging(self._options, self._typed), columns).collect()
        pieces = [StagedPiece(self._sink.topic, *row) for row in staged]
        if pieces:
            self.commit(pieces, batch)

    def commit(self, pieces: list[StagedPiece], batch: BatchId | None) -> None:
        """Publish what tasks put aside."""
        single = self._load or f"pipeline-{uuid.uuid4().hex}"
        writer = single if batch is None else str(self._sink_id)
        topic, key = self._sink.topic, BatchId(0) if batch is None else batch
        told = f"{self._field}.sink_id"
        self.duplicates += publish_stages(self._options.connection, topic, pieces, writer, key, told)

    def close(self) -> None:
        """Nothing is held."""

    def _columns(self, rows: DataFrame) -> list[Column]:
        given = {name: getattr(self._sink, name) for name in MESSAGE_COLUMNS if getattr(self._sink, name) is not None}
        is_typed = self._sink.values == "typed"
        if not given and not self._sink.attributes and not is_typed:
            _check_nothing_is_left(rows)
        taken = (*_TAKEN, *_SOURCES) if self._sink.keep_sources else _TAKEN
        # As in Spark, case does not matter.
        named = {name.lower(): quoted(name) for name in rows.columns}
        if self._sink.keep_sources and "seqno" not in (*named, *given):
            rule = f"the column seqno does not exist: the rows have {', '.join(rows.columns)}"
            raise InvalidInput(f"{self._field}.keep_sources", "true", rule)
        columns: dict[str, Column] = {name: F.col(named[name]) for name in taken if name in named}
        for name, expression in given.items():
            with analysis(f"{self._field}.{name}", expression):
                rows.select(F.expr(expression))
            columns[name] = F.expr(expression)
        if self._sink.attributes:
            columns["attributes"] = self._attributes(rows)
        if is_typed:
            columns |= {name: F.col(quoted(name)) for name in rows.columns if _may_be_field(name)}
        elif "value" not in columns:
            rule = f'the rows have {", ".join(rows.columns)}: set value = "to_json(struct(*))", or name a column value'
            raise InvalidInput(f"{self._field}.value", "missing", rule)
        return [column.alias(name) for name, column in columns.items()]

    def _attributes(self, rows: DataFrame) -> Column:
        entries = []
        for name, expression in self._sink.attributes.items():
            with analysis(f"{self._field}.attributes.{name}", expression):
                rows.select(F.expr(expression))
            entries += [F.lit(name), F.expr(expression).cast("binary")]
        return F.create_map(*entries)


def _staging(
    options: WriteOptions, typed: FieldValues | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: put its rows aside, and name the stages that they are in."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = stage_rows(options, batches if typed is None else typed.messages(batches))
        columns = ([getattr(piece, name) for piece in pieces] for name in _STAGED.names)
        yield pa.record_batch(list(columns), schema=_STAGED)

    return stage


def _may_be_field(name: str) -> bool:
    return name.lower() not in (*READ_COLUMNS, MESSAGE_STRUCT)


def _check_nothing_is_left(rows: DataFrame) -> None:
    """A column that is no column of a message would be lost without a word."""
    for name in rows.columns:
        if _may_be_field(name):
            rule = 'it is not a column of a message: map it, such as value = "to_json(struct(*))"'
            raise InvalidInput("sink", f"given the column {name}", rule)


class DeadTopicSinkWriter(TopicSinkWriter):
    """Rows that do not fit, to a topic."""

    def prepare(self, rows: DataFrame) -> DataFrame:
        """Messages as they were; why they are here, and where they were found, is in their attributes."""
        return super().prepare(_dead_messages(rows))


def _dead_messages(dead: DataFrame) -> DataFrame:
    places = [name for name in ("reason", "topic", "partition", "offset", "origin") if name in dead.columns]
    told = F.create_map(
        *(part for name in places for part in (F.lit(f"headrace.{name}"), F.col(name).cast("string").cast("binary")))
    )
    if "attributes" in dead.columns:
        told = F.map_concat(F.coalesce(F.col("attributes"), F.create_map().cast("map<string,binary>")), told)
    kept = [name for name in ("value", "key") if name in dead.columns]
    return dead.select(*kept, told.alias("attributes"))
