"""Pipelines: source → deduplicate → SQL → sink, described in a TOML file and run on Spark.

definition   what a pipeline is: the keys of its file, which of them fit together, and its tests
frame        the DataFrame from left to right: source, parse, deduplication, steps
sinks        where rows go: topics, tables of files, Delta, upserts; and how a batch is committed once
run          what surrounds a run: checks against the broker, checkpoint, lock, progress, reports
pipeline     all of it, run
"""

from headrace.spark.pipeline.pipeline import Pipeline
from headrace.spark.pipeline.run.progress import Progress, Summary
from headrace.spark.pipeline.run.spark_errors import PipelineFailed

__all__ = ["Pipeline", "PipelineFailed", "Progress", "Summary"]
