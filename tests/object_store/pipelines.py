"""Pipelines on a bucket of a real S3 server: the settings of Spark for it, and runs that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.spark.file_systems import s3a_options
from tests.server_process import ROOT
from tests.storage.archive.object_store import BUCKET, CREDENTIALS, ObjectStore

# Another bucket than that of the archive.
LANDING = "landing"
PATIENCE_SECONDS = 600.0
JARS = Path(__file__).parent / "spark_jars" / "target"


def settings_of(lake: ObjectStore) -> dict[str, str]:
    """Settings of Spark for the second bucket."""
    jars = sorted(str(jar) for jar in JARS.glob("*.jar"))
    assert jars, "Spark's file system for S3 is missing: make s3-jars"
    options = s3a_options(lake.url.replace(BUCKET, LANDING))
    return {"spark.jars": ",".join(jars), **{f"spark.hadoop.{name}": value for name, value in options.items()}}


def orders(first: int, end: int) -> list[dict[str, int]]:
    return [{"key": number % 7, "id": number} for number in range(first, end)]


class PipelineProcess:
    """`headrace pipeline run` in a process group of its own."""

    def __init__(self, tables: dict[str, Any], directory: Path) -> None:
        file = directory / "pipeline.toml"
        file.write_text("".join(f"{head}\n{_toml(keys)}" for head, keys in _sections(tables)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "pipeline", "run", str(file), "--master", "local[1]"],
            cwd=ROOT,
            env={**os.environ, **CREDENTIALS},
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def signal(self, number: int) -> None:
        """To Python and Java."""
        os.killpg(self._process.pid, number)

    def end(self) -> tuple[int, str]:
        """The exit code and what was said, once it has ended."""
        _, said = self._process.communicate(timeout=PATIENCE_SECONDS)
        return self._process.returncode, said.decode()


def _sections(tables: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, content in tables.items():
        if isinstance(content, list):
            yield from ((f"[[{name}]]", keys) for keys in content)
        elif name == "sinks":
            yield from ((f"[{name}.{below}]", keys) for below, keys in content.items())
        else:
            yield f"[{name}]", content


def _toml(keys: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in keys.items())


def await_in(is_so: Callable[[], bool], process: PipelineProcess) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            process.signal(signal.SIGKILL)
            raise AssertionError(process.end())
        time.sleep(0.05)
