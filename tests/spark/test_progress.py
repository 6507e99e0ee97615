"""How far a query is behind, out of reports made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

from headrace.spark import MessagesBehind, messages_behind, messages_read
from headrace.spark.reader.splits import Offsets, PartitionKey
from headrace.spark.reader.stream_offsets import encode

ORDERS, SALES = PartitionKey(3, "orders", 0), PartitionKey(4, "sales", 0)


def source(end: Offsets, latest: Offsets) -> SimpleNamespace:
    return SimpleNamespace(endOffset=json.dumps(encode(end)), latestOffset=json.dumps(encode(latest)))


def test_over_partitions_and_topics() -> None:
    new = ORDERS._replace(partition=1)
    sources = [source({ORDERS: 5, SALES: 9}, {ORDERS: 7, SALES: 9, new: 4}), SimpleNamespace(endOffset="{}")]
    behind = messages_behind(SimpleNamespace(sources=sources))
    assert behind == MessagesBehind(6, 0, 4, 2.0, {"orders": 6, "sales": 0})


def test_a_query_without_topics_is_not_behind() -> None:
    other = SimpleNamespace(endOffset='{"logOffset": 0}', latestOffset=None)
    assert messages_behind(SimpleNamespace(sources=[other])) is None


def test_messages_are_input_rows_unless_these_are_splits() -> None:
    assert messages_read(SimpleNamespace(observedMetrics={}, numInputRows=7)) == 7
    observed = {"headrace-read-1": {"messages": 40}, "headrace-read-2": {"messages": 2}, "mine": {"messages": 5}}
    assert messages_read(SimpleNamespace(observedMetrics=observed, numInputRows=3)) == 42
