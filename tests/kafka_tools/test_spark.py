"""Spark's own Kafka source and sink, in an environment with the Spark that they are for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kafka_tools.spark_job import COUNT
from tests.kafka_tools.tools import PATIENCE_SECONDS, Tools

pytestmark = pytest.mark.kafka_tools

HERE = Path(__file__).parent
JARS = HERE / "spark_jars" / "target"
PYTHON = HERE.parents[1] / ".venv-kafka-spark" / "bin" / "python"


def test_source_and_sink(tools: Tools) -> None:
    if not PYTHON.exists() or not list(JARS.glob("spark-sql-kafka-*.jar")):
        pytest.fail("Spark for its Kafka connector is missing: make test-kafka-tools installs it")
    ended = subprocess.run(
        [PYTHON, HERE / "spark_job.py", tools.bootstrap, JARS, tools.directory],
        cwd=tools.directory,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
    )
    assert not ended.returncode, f"{ended.stdout}\n{ended.stderr[-5000:]}"
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["read"] == [COUNT, COUNT, sum(range(COUNT)), 1]
    assert found["copied"] == [COUNT, COUNT]
    assert found["batches"] >= 4
