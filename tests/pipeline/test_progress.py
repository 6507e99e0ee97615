"""Lines about a running pipeline, and errors that came through Spark, out of reports made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pyspark.sql import Row

from headrace.core.errors import TopicNotFound, Unreachable
from headrace.spark.pipeline.run.progress import Progress, Summary, Tally
from headrace.spark.pipeline.run.spark_errors import carried, failure_of


def report(batch: int, rows: int, end: int = 0, latest: int = 0, dead: int | None = None) -> Any:
    offsets = [json.dumps({"version": 1, "topic": "in", "offsets": {"0": number}}) for number in (end, latest)]
    observed = {} if dead is None else {"headrace": {"rows": rows, "dead": dead}}
    return SimpleNamespace(
        batchId=batch,
        # Spark counts rows that go two ways twice.
        numInputRows=rows if dead is None else 2 * rows,
        observedMetrics=observed,
        durationMs={"triggerExecution": 500},
        sources=[SimpleNamespace(endOffset=offsets[0], latestOffset=offsets[1])],
    )


def test_at_most_a_line_a_second() -> None:
    told: list[Progress] = []
    now = 100.0
    tally = Tally("p", told.append, lambda: now)
    tally.take([report(0, 10, 10, 15)])
    tally.take([report(0, 10, 10, 15), report(1, 5, 15, 15)])
    assert [each.messages for each in told] == [10]
    now = 100.5
    tally.take([report(1, 5, 15, 15), report(2, 6, 21, 30, dead=2)])
    assert len(told) == 1
    now = 102.0
    tally.take([])
    assert [(each.batch, each.messages, each.rate, each.lag, each.dead_letters) for each in told] == [
        (0, 10, 20.0, 5, 0),
        (2, 21, 5.5, 9, 2),
    ]
    now = 110.0
    tally.take([report(2, 6, 21, 30, dead=2)])
    assert len(told) == 2, "nothing new is nothing to tell"


def test_the_end_is_told_at_once() -> None:
    told: list[Progress] = []
    tally = Tally("p", told.append, lambda: 1.0)
    tally.take([report(0, 1)])
    tally.take([report(1, 2)], at_end=True)
    assert [each.messages for each in told] == [1, 3]
    assert (tally.batches, tally.messages) == (2, 3)


def test_batches_without_rows_are_none() -> None:
    told: list[Progress] = []
    tally = Tally("p", told.append, lambda: 1.0)
    tally.take([report(0, 0)], at_end=True)
    assert not told and tally.batches == 0


def test_a_source_without_offsets_has_no_lag() -> None:
    told: list[Progress] = []
    made = report(0, 1)
    made.sources = [SimpleNamespace(endOffset='{"logOffset":0}', latestOffset=None)]
    Tally("p", told.append, lambda: 1.0).take([made])
    assert told[0].lag is None and "lag" not in told[0].line()


def test_what_was_counted_is_found_in_reports_of_spark_connect() -> None:
    told: list[Progress] = []
    made = report(0, 6)
    schema = {"type": "struct", "fields": [{"name": "rows"}, {"name": "dead"}]}
    made.observedMetrics = {"headrace": Row("values", "schema")([3, 1], schema)}
    Tally("p", told.append, lambda: 1.0).take([made])
    assert (told[0].messages, told[0].dead_letters) == (3, 1)


def test_lines_for_people() -> None:
    line = Progress(pipeline="p", batch=3, messages=12345, rate=99.6, lag=7, batch_seconds=0.5, dead_letters=2).line()
    assert line == "p: batch 3, 12,345 messages, 100/s, lag 7, 0.50 s per batch, 2 dead letters"
    assert Summary(pipeline="p", batches=2, messages=5, dead_letters=0).line() == "p: done, 5 messages in 2 batches"
    assert Summary(pipeline="p", batches=1, messages=1, dead_letters=0).line() == "p: done, 1 message in 1 batch"
    dropped = Summary(pipeline="p", batches=2, messages=5, dead_letters=1, duplicates=3).line()
    assert dropped == "p: done, 5 messages in 2 batches, 1 dead letter, 3 dropped as duplicates"


def test_errors_of_headrace_are_found_in_what_spark_says() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed\nTraceback (most recent call last):\n  File …\n"
        "headrace.core.errors.TopicNotFound: topic 'x' does not exist: create it first\n\n\tat org.apache.spark…"
    )
    found = carried(text)
    assert found is not None and found.kind is TopicNotFound
    assert str(found) == "topic 'x' does not exist: create it first"
    assert failure_of("headrace.core.errors.Unreachable: no server").kind is Unreachable
    assert carried("headrace.core.errors.Nothing: x") is None


def test_what_spark_says_itself_is_one_line() -> None:
    text = "Job aborted\n[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\nSELECT 1 / 0\n\tat org…"
    failure = failure_of(text)
    assert failure.kind is None and str(failure) == "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
    assert str(failure_of("")) == "no reason given"


def test_what_java_says_is_told_and_not_that_it_was_called() -> None:
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function\nTraceback …\n"
        "py4j.protocol.Py4JJavaError: An error occurred while calling o79.save.\n"
        ": java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream…\n"
    )
    assert str(failure_of(text)) == "java.io.IOException: No space left on device"
    assert str(failure_of(text + "Caused by: java.lang.Error: deeper\n")) == "Caused by: java.lang.Error: deeper"
    assert str(failure_of("py4j.protocol.Py4JJavaError: it was called")).endswith("it was called")
