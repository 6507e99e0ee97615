"""Headrace on Spark: the data source `headrace`, its functions, and the pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.spark.pipeline import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    # Pipelines take a second to import, which would delay the workers of the data source.
    if name == "Pipeline":
        from headrace.spark.pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
