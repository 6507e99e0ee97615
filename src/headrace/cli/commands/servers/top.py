"""`headrace top`: rates and lag of topics and groups, live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions
from headrace.cli.terminal.output import make_table, print_json_line, print_shown
from headrace.core.text import bytes_shown

if TYPE_CHECKING:
    from headrace.cli.remote.activity import GroupActivity, TopicActivity
    from headrace.cli.remote.scrape import Scrape
    from headrace.console.monitor.sample import Sample

EXAMPLES: Final = """
Rates are per second since the last refresh. Needs a token that may read all topics. Ctrl-C ends it.

Examples: headrace top; headrace top --once; headrace top --json --interval 10 | tee rates.jsonl
"""


@with_option_groups
def top(
    *,
    interval: Annotated[float, typer.Option(help="Time between refreshes.", min=1.0, metavar="SECONDS")] = 2.0,
    rows: Annotated[int, typer.Option(help="At most N topics and N groups.", min=1, metavar="N")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each refresh.")] = False,
    server: ServerOptions,
) -> None:
    """Watch the rates and the lag of topics and groups."""
    from headrace.cli.remote.scrape import scrape

    address = server.address()
    with server.connected(30.0) as client:

        def look() -> Scrape:
            found = scrape(client, address)
            if not found.sample.others:
                raise Failure(
                    Exit.DENIED if "token" in "".join(found.problems) else Exit.FAILING, "; ".join(found.problems)
                )
            return found

        before = look().sample
        with _Screen(once or as_json) as screen:
            while True:
                time.sleep(interval)
                now = look().sample
                if as_json:
                    _print_json(before, now, rows)
                else:
                    screen(_view(before, now, rows, address.url))
                if once:
                    return
                before = now


def _print_json(before: Sample, now: Sample, rows: int) -> None:
    from headrace.cli.remote.activity import groups, topics

    found = {"time": now.time, "topics": topics(before, now)[:rows], "groups": groups(before, now)[:rows]}
    print_json_line(found)


def _view(before: Sample, now: Sample, rows: int, url: str) -> Any:
    from rich.console import Group

    from headrace.cli.remote.activity import groups, topics

    return Group(
        f"{url}   {time.strftime('%H:%M:%S')}",
        make_table(
            ("topic", "in/s", "in bytes/s", "out/s", "out bytes/s", "size", "partitions"),
            [_topic_row(each) for each in topics(before, now)[:rows]],
        ),
        make_table(
            ("topic", "group", "lag", "lag seconds", "lag grows by/s", "members"),
            [_group_row(each) for each in groups(before, now)[:rows]],
        ),
    )


def _topic_row(each: TopicActivity) -> tuple[Any, ...]:
    flows = (each.messages_in, bytes_shown(int(each.bytes_in)), each.messages_out, bytes_shown(int(each.bytes_out)))
    return each.topic, *flows, bytes_shown(each.bytes_stored), each.partitions


def _group_row(each: GroupActivity) -> tuple[Any, ...]:
    return each.topic, each.group, each.lag_messages, each.lag_seconds, each.lag_growth, each.members


class _Screen:
    """Shows a view in place of the one before, or prints each if it is not a terminal."""

    def __init__(self, is_plain: bool) -> None:
        import sys

        self._live: Any = None
        if not is_plain and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(screen=False, auto_refresh=False)

    def __enter__(self) -> Any:
        if self._live is None:
            return print_shown
        self._live.__enter__()
        return lambda view: self._live.update(view, refresh=True)

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
