"""The id of a batch load: the same files, loaded by the same pipeline into the same sink, are loaded once.

A topic has the id as a commit key: the second commit publishes nothing. A table keeps the ids of its loads, in
`_headrace/loads`. The id is made of the pipeline and of the names, sizes and times of its files, which Spark's own file
system is asked for where they are not local. `run.load_id` sets it for any other input. Without either, every run
publishes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    Description,
    FormatSource,
    ReportSink,
    TableSink,
)
from headrace.spark.pipeline.run.checkpoint import fingerprint


def load_id(description: Description, files: Iterable[str], spark: SparkSession) -> str | None:
    """The id of a load; None if nothing identifies it.

    files: what is read, as Spark names it.
    """
    sink = description.sink
    if description.is_stream or isinstance(sink, ReportSink) or (isinstance(sink, TableSink) and not sink.is_table):
        return None
    if description.run.load_id is not None:
        return description.run.load_id
    known = [_state(file, spark) for file in sorted(files)] if isinstance(description.source, FormatSource) else []
    if not known or None in known:
        return None
    # Whose address and password may change.
    sink = msgspec.structs.replace(sink, database="") if isinstance(sink, DatabaseSink) else sink
    parts = (fingerprint(description), description.source, sink, description.deduplicate, known)
    return f"load-{sha256(msgspec.json.encode(parts)).hexdigest()[:32]}"


def _state(file: str, spark: SparkSession) -> tuple[str, int, int] | None:
    """Name, size and time of a file; None if they cannot be found out: it may change under its name."""
    parts = urlsplit(file)
    if parts.scheme not in ("", "file"):
        return _remote_state(file, spark)
    try:
        found = Path(unquote(parts.path)).stat()
    except OSError:
        return None
    return parts.path, found.st_size, found.st_mtime_ns


def _remote_state(file: str, spark: SparkSession) -> tuple[str, int, int] | None:
    """The same of a file of another file system; Spark Connect cannot be asked."""
    java: Any = getattr(spark, "_jvm", None)
    if java is None:
        return None
    try:
        path = java.org.apache.hadoop.fs.Path(java.java.net.URI(file))
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        found = path.getFileSystem(configuration).getFileStatus(path)
    except Py4JJavaError:
        return None
    return file, found.getLen(), found.getModificationTime()
