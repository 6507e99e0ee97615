"""Topics, partitions and groups of the broker as tables: `.option("metadata", "groups")`.

With the option `topic` or `topicPattern` only those topics are described. One task reads a whole table from the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.client import Client
from headrace.core.errors import GroupNotFound
from headrace.core.positions import moment
from headrace.core.reports.descriptions import GroupDescription, TopicDescription
from headrace.spark.options import ReadOptions
from headrace.spark.reader.topic_selection import DELETED


class MetadataReader(DataSourceReader):
    """Reads one of the tables."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """One task for all of it."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The table as one batch."""
        rows = self._options.connection.call(self._rows)
        yield pa.RecordBatch.from_pylist(rows, schema=self._schema)

    def _rows(self, client: Client) -> list[dict[str, Any]]:
        topics = self._topics(client)
        if self._options.metadata == "topics":
            return [_topic_row(topic) for topic in topics]
        if self._options.metadata == "partitions":
            return [row for topic in topics for row in _partition_rows(topic)]
        groups = [_group(client, topic.name, name) for topic in topics for name in topic.groups]
        return [row for group in groups if group is not None for row in _group_rows(group)]

    def _topics(self, client: Client) -> list[TopicDescription]:
        subscription = self._options.subscription
        if subscription.topics or subscription.pattern is not None:
            return subscription.described(client)
        return replace(subscription, pattern="(?s).*").described(client)


def _group(client: Client, topic: str, name: str) -> GroupDescription | None:
    try:
        return client.describe_group(topic, name)
    except (GroupNotFound, *DELETED):
        return None


def _topic_row(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "messages": sum(end - start for start, end in topic.offsets.values()),
        "bytes_stored": topic.bytes_stored,
        "created_at": moment(topic.created_us),
        "groups": len(topic.groups),
        "key_hash": topic.settings.key_hash,
    }


def _partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": partition,
            "start_offset": start,
            "end_offset": end,
            "messages": end - start,
            "key_hash": topic.settings.key_hash,
        }
        for partition, (start, end) in sorted(topic.offsets.items())
    ]


def _group_rows(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": group.topic,
            "group": group.name,
            "important": group.important,
            "members": len(group.members),
            "partition": partition,
            "committed": progress.committed,
            "end_offset": progress.end,
            "lag_messages": progress.lag_messages,
            "lag_seconds": progress.lag_seconds,
        }
        for partition, progress in sorted(group.progress.items())
    ]
