"""`headrace status`: is it up, how is it doing, what needs attention. The servers judge; this shows what they say."""

from __future__ import annotations

import time
from typing import Any, Final

import typer

from headrace.cli.exits import Exit
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions
from headrace.cli.terminal.output import print_json, print_line, print_note, shown
from headrace.core.health.findings import Health
from headrace.core.text import bytes_shown, counted, duration_shown

EXAMPLES: Final = """
Exit code 0: nothing needs attention. 1: something does. 5: something could not be judged, or a server did not answer.
3: no server. A token that may not read all topics sees what concerns those that it may.

Examples: headrace status; headrace status --json
"""


@with_option_groups
def status(*, as_json: Json = False, server: ServerOptions) -> None:
    """Show whether a server is up, how it is doing, and what needs attention."""
    from headrace.cli.remote.activity import groups, total
    from headrace.cli.remote.scrape import health, scrape

    address = server.address()
    with server.connected() as client:
        found = scrape(client, address)
        verdict = health(client, address, found.servers)
    now = found.sample
    lagging = [each for each in groups(now, now) if each.lag_messages]
    facts: dict[str, Any] = {
        "url": address.url,
        "servers": found.servers,
        "topics": total(now, "headrace_topics"),
        "bytes_stored": int(sum(each.bytes_stored for each in now.topics.values())) if now.others else None,
        "disk_free_bytes": total(now, "headrace_disk_free_bytes"),
        "disk_size_bytes": total(now, "headrace_disk_size_bytes"),
        "groups_lagging": len(lagging),
        "lag_messages": sum(each.lag_messages for each in lagging),
        "tokens": total(now, "headrace_tokens"),
        "health": verdict,
        "problems": found.problems,
    }
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    if verdict.state != "fine":
        raise typer.Exit(Exit.REFUSED if verdict.state == "attention" else Exit.FAILING)


def _print(facts: dict[str, Any]) -> None:
    for each in facts["servers"]:
        since = duration_shown(time.time() - each.started_us / 1e6)
        where = [f"console {url}" if name == "console" else url for name, url in each.addresses.items()]
        print_line(f"up    headrace {each.version}, {since}, on {', '.join(where)}")
    for problem in facts["problems"]:
        print_note(problem)
    if facts["topics"] is not None:
        print_line(
            f"store {counted(int(facts['topics']), 'topic')}, {bytes_shown(int(facts['bytes_stored']))}{_disk(facts)}"
        )
        behind = f", {counted(facts['groups_lagging'], 'group')} behind by {counted(facts['lag_messages'], 'message')}"
        print_line(f"use   {_tokens(facts['tokens'])}{behind if facts['groups_lagging'] else ', no group is behind'}")
    _print_verdict(facts["health"])


def _print_verdict(health: Health) -> None:
    for finding in health.findings:
        # Names and reasons are of others: what they contain must not control the terminal.
        print_line(shown(f"{finding.severity:<8} {finding.place}: {finding.problem}. {finding.advice}"))
        if finding.command:
            print_line(shown(f"         {finding.command}"))
    if health.omitted:
        print_line(f"         and {counted(health.omitted, 'finding')} more")
    if health.state == "fine":
        where = "" if health.covers_store else " in the topics that this token may read"
        print_line(f"fine  nothing needs attention{where}")


def _disk(facts: dict[str, Any]) -> str:
    free, size = facts["disk_free_bytes"], facts["disk_size_bytes"]
    return (
        f", {bytes_shown(int(free))} of {bytes_shown(int(size))} of the disk free" if free is not None and size else ""
    )


def _tokens(count: float | None) -> str:
    return "no tokens: everyone on the server's machine has full access" if not count else counted(int(count), "token")
