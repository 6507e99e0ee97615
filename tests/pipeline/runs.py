"""Pipelines run in the session that all tests share, what they leave behind, and batches that Spark does again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client import Client
from headrace.spark import Pipeline
from headrace.spark.pipeline import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def run(spark: SparkSession, tables: Mapping[str, Any]) -> Summary:
    """Run what tables describe, on what is there now."""
    return Pipeline.of(tables, "test").run(spark, once=True)


def run_ready(spark: SparkSession, name: str, **variables: str) -> tuple[Pipeline, Summary]:
    """Run a ready pipeline."""
    pipeline = Pipeline.load(ROOT / "pipelines" / f"{name}.toml", variables)
    return pipeline, pipeline.run(spark, once=True)


def forget_last_batch(checkpoint: Path) -> int:
    """As if the driver was killed when a batch was written and Spark had not noted it: the next run does it again."""
    commits = checkpoint / "spark" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def publish(client: Client, topic: str, values: Iterable[Any], key: str = "key") -> None:
    """Publish values as JSON, or as they are if they are bytes."""
    with client.producer(topic) as producer:
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(data, key=str(value[key]).encode() if isinstance(value, dict) and key in value else b"k")


def messages(client: Client, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, one partition after the other."""
    return [
        row for partition in sorted(client.offsets(topic))
        for row in client.read(topic, partition, 0, 1_000_000).to_pylist()
    ]  # fmt: skip


def values(client: Client, topic: str) -> list[Any]:
    """All values of a topic as JSON, sorted."""
    return sorted((json.loads(row["value"]) for row in messages(client, topic)), key=str)
