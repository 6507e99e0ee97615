"""`headrace bench`: measure a server under load, and verify that every message arrived once and in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json
from headrace.cli.server.tested_server import TestedServer
from headrace.cli.terminal.output import print_json, print_line, print_table
from headrace.cli.terminal.progress import progress

if TYPE_CHECKING:
    from headrace.load.histogram import LatencyHistogram
    from headrace.load.outcome import LoadOutcome

EXAMPLES: Final = """
Without --url the command starts its own server on a temporary store and stops it at the end. The test topic is deleted.

Examples:

  headrace bench

  headrace bench --batch 10000 --producers 2 --consumers 2 --messages 10000000

  headrace bench --url headrace://127.0.0.1:7071 --batch 1 --linger 0 --rate 1000 --messages 10000
"""


@with_option_groups
def bench(
    *,
    messages: Annotated[int, typer.Option(help="Total number of messages to publish.", metavar="N")] = 1_000_000,
    value_bytes: Annotated[int, typer.Option(help="Size of each value; at least 24.", metavar="BYTES")] = 100,
    keys: Annotated[int, typer.Option(help="Number of different keys; 0: no keys.", metavar="N")] = 10_000,
    batch: Annotated[int, typer.Option(help="Messages per batch; 1 sends them one by one.", metavar="N")] = 1_000,
    producers: Annotated[int, typer.Option(help="Number of processes that publish.", metavar="N")] = 1,
    consumers: Annotated[int, typer.Option(help="Number of processes that read, per group.", metavar="N")] = 1,
    groups: Annotated[int, typer.Option(help="Number of groups; each reads all messages.", metavar="N")] = 1,
    partitions: Annotated[int, typer.Option(help="Partitions of the test topic.", metavar="N")] = 8,
    rate: Annotated[
        float, typer.Option(help="Messages per second in total; 0: as fast as possible.", metavar="N")
    ] = 0.0,
    linger: Annotated[
        float,
        typer.Option(help="How long the producer collects messages while a request is in flight.", metavar="SECONDS"),
    ] = 0.005,
    timeout: Annotated[float, typer.Option(help="Give up after this time without progress.", metavar="SECONDS")] = 60.0,
    directory: Annotated[
        Path | None,
        typer.Option(help="Directory for the temporary store: choose the disk to measure.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
    server: TestedServer,
) -> None:
    """Measure throughput and latency of a server, and verify that every message arrived once and in order."""
    # Imported here: other commands do not need it and start faster without it.
    from headrace.load.load import Load
    from headrace.load.run import run

    load = Load(
        messages=messages,
        value_bytes=value_bytes,
        keys=keys,
        batch=batch,
        producers=producers,
        consumers=consumers,
        groups=groups,
        partitions=partitions,
        rate=rate,
        linger_seconds=linger,
        timeout_seconds=timeout,
    )
    with (
        server.running(load.check, directory) as target,
        progress("measuring", messages * groups if consumers else None, "messages", not as_json) as bar,
    ):
        outcome = run(load, target.url, target.token, target.root_certificates, lambda more: bar.advance(more, more))
    if as_json:
        print_json(outcome.as_json())
    else:
        _print(outcome)
    if not outcome.is_good:
        raise Failure(Exit.REFUSED, f"not every message arrived once and in order: {_faults(outcome)}")


def _print(outcome: LoadOutcome) -> None:
    load = outcome.load
    what = f"{load.messages:,} messages of {load.value_bytes:,} bytes, {load.partitions} partitions"
    who = f"{load.producers} producing in batches of {load.batch:,}, {load.groups} x {load.consumers} consuming"
    print_line(f"{what}, {who}, {os.cpu_count()} cores")
    rows = [("published", f"{outcome.published_per_second:,.0f}/s", *_times(outcome.acknowledgements))]
    if outcome.findings:
        rows.append(("read, end to end", f"{outcome.read_per_second:,.0f}/s", *_times(outcome.latencies)))
    print_table(("", "messages", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms"), rows)
    for label, count, bar in outcome.latencies.bars():
        print_line(f"  {label:>12}  {count:>14,}  {bar}")
    if outcome.findings and outcome.is_good:
        print_line("verified: every message arrived once and in order")


def _times(histogram: LatencyHistogram) -> list[str]:
    from headrace.load.outcome import PERCENTS

    return [f"{histogram.percentile(percent) * 1e3:,.2f}" for percent in PERCENTS]


def _faults(outcome: LoadOutcome) -> str:
    return "; ".join(
        f"group {number}: {each.missing:,} missing, {each.doubled:,} duplicated, {each.out_of_order:,} out of order, "
        f"{each.foreign:,} foreign"
        for number, each in enumerate(outcome.findings)
        if not each.are_good
    )
