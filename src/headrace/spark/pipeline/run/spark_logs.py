"""Turns Spark's analysis errors into errors that name the key of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.run.spark_errors import carried, failure_of

# Pyspark writes whatever it raises into these logs too, with the frames of Java.
_LOGS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def analysis(field: str, value: str) -> Iterator[None]:
    """While Spark analyses what a key asks for: its refusal is an error about that key."""
    # Made by pyspark: a logger of Python's own kind does not take what pyspark logs, in the whole process.
    logs = [PySparkLogger.getLogger(name) for name in _LOGS]
    were_disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    except AnalysisException as error:
        known = carried(str(error))
        if known is not None:
            raise known from None
        raise InvalidInput(field, " ".join(value.split())[:200], first_line(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        # Not the query: what it looked at to find out its columns, such as files that cannot be read.
        raise failure_of(str(error)) from None
    finally:
        for log, was_disabled in zip(logs, were_disabled, strict=True):
            log.disabled = was_disabled


def check_streaming(rows: DataFrame, output_mode: str) -> None:
    """Raise for a query that Spark cannot run as a stream, such as an aggregation that would never end.

    Spark checks this only when a query starts. On Spark Connect there is no other way to ask, and it is left to that.
    """
    plan, java = getattr(rows, "_jdf", None), getattr(rows.sparkSession, "_jvm", None)
    if plan is None or java is None:
        return
    modes = java.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if output_mode == "update" else modes.Append()
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    with analysis("steps", f"not possible in a stream with output mode {output_mode}"):
        checker.checkForStreaming(plan.queryExecution().analyzed(), mode)


def quoted(name: str) -> str:
    """The name of a column as SQL takes it for one name, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def first_line(error: PySparkException) -> str:
    """The sentence that says what is wrong, without the plan that stands behind it."""
    text = str(error).strip()
    sentence = text.split("SQLSTATE")[0].split("\n")[0]
    return sentence.strip().rstrip(".;(") or type(error).__name__
