"""The data source with a fault in it: what goes wrong in a task or in the driver, at an exact moment.

Faults are told from outside by files in a directory: `gate-NAME` must be there before the moment NAME passes, and
`reached-NAME` says that it was reached.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.spark.options import WriteOptions, write_options
from headrace.spark.source import HeadraceSource
from headrace.spark.write.writers import StreamWriter, Written

PATIENCE_SECONDS = 300.0


class FaultySource(HeadraceSource):
    """Writes as the source does, with the fault that the option `fault` names."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        kept = {name: value for name, value in dict(options).items() if name.lower() not in ("fault", "directory")}
        super().__init__(kept)
        given = {name.lower(): value for name, value in dict(options).items()}
        self._fault, self._directory = given["fault"], Path(given["directory"])

    @classmethod
    def name(cls) -> str:
        return "headrace_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        super().streamWriter(schema, overwrite)
        return FaultyWriter(write_options(self._given, is_stream=True), self._fault, self._directory)


class FaultyWriter(StreamWriter):
    """Fails where it is told to, once."""

    def __init__(self, options: WriteOptions, fault: str, directory: Path) -> None:
        super().__init__(options)
        self._fault = fault
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._fault == "pause-before-stage":
            pass_gate(self._directory, "stage")
        if self._fault == "stage-twice":
            batches = list(iterator)
            super().write(iter(batches))
            return super().write(iter(batches))
        written = super().write(iterator)
        if written.pieces and self._fault == "task-fails-after-staging" and _first(self._directory, "failed"):
            raise RuntimeError("this task fails after it staged its rows")
        if written.pieces and self._fault == "executor-killed" and _first(self._directory, "killed"):
            os.kill(_executor(), signal.SIGKILL)
            time.sleep(PATIENCE_SECONDS)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._fault == "pause-before-commit":
            pass_gate(self._directory, "commit")
        if self._fault == f"staged-{batchId}":
            pass_gate(self._directory, self._fault)
        super().commit(messages, batchId)
        if self._fault == f"published-{batchId}":
            pass_gate(self._directory, self._fault)


def pass_gate(directory: Path, name: str) -> None:
    """Say that a moment was reached, and wait until it may pass."""
    (directory / f"reached-{name}").touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (directory / f"gate-{name}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened the gate {name}")
        time.sleep(0.02)


def _first(directory: Path, name: str) -> bool:
    """Whether this is the first of all processes to come here."""
    try:
        os.close(os.open(directory / f"first-{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _executor() -> int:
    """The Java that runs this task: the parent of the process that forked this one."""
    assert TaskContext.get() is not None, "this is a task"
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
