"""How much a query read, and how far it is behind its topics, from Spark's progress reports.

Spark lets no source in Python add metrics to its reports, but they have the offsets where a batch ended and where the
topics ended then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.errors import InvalidInput
from headrace.spark.reader import stream_offsets
from headrace.spark.reader.splits import PartitionKey

# What `read_stream` lets Spark observe: names that begin like this, with this column.
OBSERVED: Final = "headrace-read-"
MESSAGES: Final = "messages"


@dataclass(frozen=True, slots=True)
class MessagesBehind:
    """Unread messages after a batch: of all partitions, of one at least, at most and on average, and by topic."""

    total: int
    min: int
    max: int
    average: float
    by_topic: dict[str, int]


def messages_behind(progress: Any) -> MessagesBehind | None:
    """How far a query is behind, by `query.lastProgress` or a listener's event; None if it reads no topic."""
    behind = [count for source in progress.sources for count in _behind(source)]
    if not behind:
        return None
    counts = [count for _, count in behind]
    by_topic: dict[str, int] = {}
    for place, count in behind:
        by_topic[place.topic] = by_topic.get(place.topic, 0) + count
    return MessagesBehind(sum(counts), min(counts), max(counts), sum(counts) / len(counts), by_topic)


def messages_read(progress: Any) -> int:
    """How many messages a batch read, by `query.lastProgress` or a listener's event.

    That is `numInputRows`, except with `headrace.spark.read_stream`, where Spark's input rows are the splits. There it
    is the number of messages that the splits have, those included that `onUndecodable=skip` leaves out.
    """
    observed = dict(progress.observedMetrics or {})
    counts = [row[MESSAGES] for name, row in observed.items() if name.startswith(OBSERVED)]
    return sum(counts) if counts else int(progress.numInputRows)


def _behind(source: Any) -> Iterable[tuple[PartitionKey, int]]:
    try:
        end = stream_offsets.decode(json.loads(source.endOffset))
        latest = stream_offsets.decode(json.loads(source.latestOffset))
    except (AttributeError, InvalidInput, KeyError, TypeError, ValueError):
        # A source of another kind, or one without a batch yet.
        return []
    return [(place, max(0, offset - end.get(place, 0))) for place, offset in latest.items()]
