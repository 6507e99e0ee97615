"""Pipelines: source → deduplicate → SQL → sink, described in a TOML file and run on Spark.

description   what a pipeline is          loading      from TOML, with variables
checks        which keys fit together     preflight    what the broker must have
source, typed, deduplication, steps       the DataFrame, from left to right
destination, topic_destination, table_destination, landing, compaction   where rows go
checkpoint    which query it belongs to   lock         one run at a time
progress      how it is doing
pipeline      all of it, run
"""

from headrace.spark.pipeline.pipeline import Pipeline
from headrace.spark.pipeline.run.progress import Progress, Summary
from headrace.spark.pipeline.run.spark_errors import PipelineFailed

__all__ = ["Pipeline", "PipelineFailed", "Progress", "Summary"]
