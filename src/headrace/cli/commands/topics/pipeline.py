"""`headrace pipeline`: run a pipeline from a TOML file on Spark, only check it, or list those that report.

Progress is printed to stderr as text, or to stdout as JSON lines; a report is printed to stdout. SIGTERM and Ctrl-C
stop a stream cleanly: exit code 0, and a checkpoint from which the next run continues. `spark_interrupts` has the rest.

Spark is imported only when a command runs, so that other commands start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from headrace.cli.exits import Exit, Failure, exit_of
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.text import time_shown
from headrace.extras import needing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.core.reports.pipelines import PipelineDescription
    from headrace.spark.pipeline import Pipeline, Progress, Summary

app = typer.Typer(
    help="Run pipelines on Spark: read a topic or files, transform with SQL, write a topic or a table.",
    no_args_is_help=True,
)

EXAMPLES: Final = (
    "Examples: headrace pipeline run orders.toml --once · "
    "headrace pipeline run pipelines/audit.toml --var TOPIC=orders --json"
)

# Spark's default of 200 is meant for clusters: a stateful stream would start 200 tasks for every batch.
_ON_ONE_MACHINE: Final = {"spark.sql.shuffle.partitions": "4"}

File = Annotated[Path, typer.Argument(help="TOML file of the pipeline.", metavar="FILE")]
Master = Annotated[str, typer.Option(help="Spark master.", metavar="URL")]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--var", help="Set a variable of the file; others are read from the environment.", metavar="NAME=VALUE"
    ),
]


@app.command("run", epilog=EXAMPLES)
def run(
    file: File,
    master: Master = "local[*]",
    once: Annotated[bool, typer.Option("--once", help="Process the available messages, then stop.")] = False,
    var: Variables = None,
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="Let a changed query continue from the old checkpoint.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline: a batch to its end, a stream until it is stopped.

    A stream that was stopped or killed continues exactly where it was. Exit code 1 if a report has rows. Ctrl-C or
    SIGTERM stops a stream with exit code 0, and interrupts a batch with 130. While Spark starts, and the second time,
    it ends the command at once with 130 or 143.
    """
    from headrace.cli.spark_interrupts import Interrupts

    starting = Interrupts(None)
    starting.arm(is_running=False)
    with _failures():
        pipeline = _loaded(file, var)
        pipeline.preflight(accept_change)
        interrupts = Interrupts(pipeline.stop if pipeline.description.is_stream else None)
        interrupts.arm(is_running=False)
        try:
            with _spark(pipeline, file, master) as spark:
                interrupts.arm(is_running=True)
                summary = pipeline.run(spark, once=once, accept_change=accept_change, tell=_teller(as_json))
        except Exception:
            if interrupts.was_asked:
                # It broke because it was interrupted; its progress is in the checkpoint.
                raise KeyboardInterrupt from None
            raise
        interrupts.disarm()
        _show_report(pipeline, as_json)
        _tell_end(summary, as_json)
    if summary.is_refused:
        raise Failure(Exit.REFUSED, f"the report of {summary.pipeline} has rows, and it must be empty")


@app.command("check")
def check(file: File, master: Master = "local[*]", var: Variables = None) -> None:
    """Validate a pipeline without running it: its keys, topics and columns."""
    with _failures():
        pipeline = _loaded(file, var)
        pipeline.preflight()
        with _spark(pipeline, file, master) as spark:
            pipeline.check(spark)
    print_line(f"{pipeline.description.name} is ready to run")


@app.command("list", epilog="Example: headrace pipeline list --json")
@with_option_groups
def list_pipelines(*, as_json: Json = False, server: ServerOptions) -> None:
    """List the pipelines that report to this broker: state, batch, rate, lag, dead letters and last error.

    A running pipeline reports every 5 seconds, from whatever machine it runs on; without a report for a minute it is
    lost. Those that have not reported for 7 days are forgotten.
    """
    with server.connected() as client:
        pipelines = client.list_pipelines()
    if as_json:
        print_json(pipelines)
    elif not pipelines:
        print_line("no pipeline has reported to this broker yet: start one with headrace pipeline run FILE")
    else:
        columns = ("pipeline", "topic", "state", "batch", "messages", "per second", "lag", "dead letters", "reported")
        print_table((*columns, "host", "error"), [_row(each) for each in pipelines])


def _row(pipeline: PipelineDescription) -> tuple[Any, ...]:
    report = pipeline.report
    return (
        pipeline.name,
        pipeline.topic,
        pipeline.state,
        report.batch,
        report.messages,
        report.messages_per_second,
        report.lag_messages,
        report.dead_letters,
        time_shown(pipeline.reported_us),
        report.host,
        report.error or "",
    )


@app.command("test")
def test(file: File, master: Master = "local[*]", var: Variables = None) -> None:
    """Run the tests in a pipeline's file: sample rows in, expected rows out.

    It needs no broker and writes nothing. Exit code 1 if a test fails.
    """
    with _failures():
        pipeline = _loaded(file, var)
        with _spark(pipeline, file, master) as spark:
            results = pipeline.test(spark)
    for result in results:
        print_line(f"{'ok' if result.is_passed else 'FAILED'}: {result.name}")
        for label, rows in () if result.is_passed else (("missing", result.missing), ("unexpected", result.unexpected)):
            for row in rows:
                print_line(f"  {label}: {msgspec.json.encode(row, enc_hook=str).decode()}")
        if result.expected_dead_letters not in (None, result.dead_letters):
            print_line(f"  dead letters: {result.dead_letters} (expected {result.expected_dead_letters})")
    failed = [result.name for result in results if not result.is_passed]
    if failed:
        raise Failure(Exit.REFUSED, f"{len(failed)} of {len(results)} tests failed: {', '.join(failed)}")


def _loaded(file: Path, var: list[str] | None) -> Pipeline:
    with needing("spark"):
        from headrace.spark.pipeline import Pipeline
    return Pipeline.load(file, {**os.environ, **dict(_assigned(each) for each in var or [])})


def _assigned(assignment: str) -> tuple[str, str]:
    name, separator, value = assignment.partition("=")
    if not separator or not name:
        raise Failure(Exit.USAGE, f"--var {assignment}: write it as --var NAME=VALUE")
    return name, value


@contextmanager
def _spark(pipeline: Pipeline, file: Path, master: str) -> Iterator[SparkSession]:
    """A Spark session for the pipeline; it and its workers can import modules that are beside the file."""
    from headrace.cli.spark_interrupts import filtered_stderr, handlers_kept
    from headrace.spark.session import is_local, session

    beside = str(file.absolute().parent)
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))
    settings = (_ON_ONE_MACHINE if is_local(master) else {}) | pipeline.description.spark
    with filtered_stderr(), handlers_kept():
        spark = session(master, pipeline.description.name, settings)
    try:
        yield spark
    finally:
        try:
            spark.stop()
        except Exception as error:
            # The same signal may have ended Java too; its progress is in the checkpoint.
            print_note(f"Spark did not stop cleanly: {type(error).__name__}")


def _teller(as_json: bool) -> Any:
    def tell(progress: Progress) -> None:
        if as_json:
            _print_event("progress", progress)
        else:
            print_note(progress.line())

    return tell


def _tell_end(summary: Summary, as_json: bool) -> None:
    if as_json:
        _print_event("done", summary)
    else:
        print_note(summary.line())


def _print_event(event: str, value: Progress | Summary) -> None:
    fields = msgspec.structs.asdict(value)
    sys.stdout.write(msgspec.json.encode({"event": event} | fields).decode() + "\n")
    sys.stdout.flush()


def _show_report(pipeline: Pipeline, as_json: bool) -> None:
    report = pipeline.report
    if report is None:
        return
    if not as_json:
        print_table(report.columns, report.rows)
        return
    rows = [dict(zip(report.columns, row, strict=True)) for row in report.rows]
    sys.stdout.write(msgspec.json.encode({"event": "report", "rows": rows}, enc_hook=str).decode() + "\n")


@contextmanager
def _failures() -> Iterator[None]:
    """Turn every failure of a pipeline into one line and an exit code."""
    try:
        yield
    except HeadraceError as error:
        raise Failure(Exit.USAGE if isinstance(error, InvalidInput) else exit_of(type(error)), str(error)) from None
    except Failure:
        raise
    except OSError as error:
        # A full disk, or files that were removed during the run; errors found before the run name the key.
        raise Failure(Exit.REFUSED, f"the pipeline failed: {error}") from None
    except Exception as error:
        from headrace.spark.pipeline import PipelineFailed

        if not isinstance(error, PipelineFailed):
            raise
        exit = Exit.REFUSED if error.kind is None else exit_of(error.kind)
        raise Failure(exit, " ".join(str(error).split())) from None
