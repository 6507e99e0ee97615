"""A topic as sink: rows made into messages by expressions, published in one commit per batch, exactly once.

The commit has the sink's id and the batch's number, so that the broker takes each batch once, however often Spark tries
it. A batch that is not of a stream is one commit without them: published whole, or not at all.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.analysis import analysis
from headrace.spark.pipeline.checks import MESSAGE_STRUCT
from headrace.spark.pipeline.description import MESSAGE_COLUMNS, TopicSink
from headrace.spark.pipeline.destination import in_order, order_columns, with_order
from headrace.spark.schema import READ_COLUMNS, check_writable

# Taken over by name from the last step. Not the partition, which another topic may not have, and not the codec: values
# are decoded when they are read.
_TAKEN: Final = ("value", "key", "attributes", "producer_id", "message_group_id", "seqno", "created_at")


class TopicDestination:
    """Messages to one topic."""

    def __init__(self, sink: TopicSink, options: dict[str, str], sink_id: str | None) -> None:
        self._sink = sink
        self._options = options | {"topic": sink.topic}
        self._sink_id = sink_id

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The columns of a message."""
        ordered = with_order(rows, self._sink.order_by)
        made = self._columns(rows)
        with analysis("sink", self._sink.topic):
            messages = ordered.select(*made, *order_columns(ordered))
        check_writable(messages.drop(*order_columns(messages)).schema, has_topic=True)
        return messages

    def open(self) -> None:
        """What tasks put aside and nobody published expires in the broker."""

    def write(self, rows: DataFrame, number: int | None) -> None:
        """Publish."""
        once = {} if number is None else {"sinkId": str(self._sink_id), "batchId": str(number)}
        in_order(rows).write.format("headrace").options(**self._options, **once).mode("append").save()

    def _columns(self, rows: DataFrame) -> list[Column]:
        given = {name: getattr(self._sink, name) for name in MESSAGE_COLUMNS if getattr(self._sink, name) is not None}
        if not given and not self._sink.attributes:
            _check_nothing_is_left(rows)
        columns: dict[str, Column] = {name: F.col(name) for name in _TAKEN if name in rows.columns}
        for name, expression in given.items():
            with analysis(f"sink.{name}", expression):
                rows.select(F.expr(expression))
            columns[name] = F.expr(expression)
        if self._sink.attributes:
            columns["attributes"] = self._attributes(rows)
        if "value" not in columns:
            rule = (
                f'the rows have {", ".join(rows.columns)}: write value = "to_json(struct(*))", or name a column value'
            )
            raise InvalidInput("sink.value", "missing", rule)
        return [column.alias(name) for name, column in columns.items()]

    def _attributes(self, rows: DataFrame) -> Column:
        entries = []
        for name, expression in self._sink.attributes.items():
            with analysis(f"sink.attributes.{name}", expression):
                rows.select(F.expr(expression))
            entries += [F.lit(name), F.expr(expression).cast("binary")]
        return F.create_map(*entries)


def _check_nothing_is_left(rows: DataFrame) -> None:
    """A column that is no column of a message would be lost without a word."""
    for name in rows.columns:
        if name not in (*READ_COLUMNS, MESSAGE_STRUCT):
            rule = 'it is no column of a message: say what it becomes, such as value = "to_json(struct(*))"'
            raise InvalidInput("sink", f"given the column {name}", rule)


class DeadTopicDestination(TopicDestination):
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
