"""Headrace on Spark: the data source `headrace`, its functions, and the pipelines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.spark.listener import QueryReports
    from headrace.spark.pipeline import Pipeline
    from headrace.spark.progress import MessagesBehind, messages_behind, messages_read
    from headrace.spark.reader.frame import read, read_stream
    from headrace.spark.reader.tables.table_frame import table
    from headrace.spark.reader.topic_views import views

__all__ = [
    "MessagesBehind",
    "Pipeline",
    "QueryReports",
    "messages_behind",
    "messages_read",
    "read",
    "read_stream",
    "table",
    "views",
]

_MODULES: Final = {
    "MessagesBehind": "headrace.spark.progress",
    "Pipeline": "headrace.spark.pipeline",
    "QueryReports": "headrace.spark.listener",
    "messages_behind": "headrace.spark.progress",
    "messages_read": "headrace.spark.progress",
    "read": "headrace.spark.reader.frame",
    "read_stream": "headrace.spark.reader.frame",
    "table": "headrace.spark.reader.tables.table_frame",
    "views": "headrace.spark.reader.topic_views",
}


def __getattr__(name: str) -> Any:
    # Pipelines take a second to import, which would delay the workers of the data source.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
