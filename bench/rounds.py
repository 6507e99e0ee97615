"""What actions cost, by the clock and by the processors: the best of rounds in which all are done in turn.

The time by the clock is what users see, on a machine that does nothing else. The time of the processors, of a process
and all that it started, depends less on what else runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.report import Report

# The first rounds do not count: Java compiles what is done often while it is done. To plan a streaming query takes it
# longest: a profile after two rounds had more of the compiler than of the query.
WARMING_ROUNDS = 4
ROUNDS = 5
_TICKS = os.sysconf("SC_CLK_TCK")

Work = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """What an action took: the least time by the clock, the median of the processors' time.

    Not the least of the latter: Spark ends workers that were idle for a minute, and what they had used is missing then.
    """

    seconds: float
    processor_seconds: float


def processor_seconds(*roots: int, without: Collection[int] = ()) -> float:
    """What processes and all that they started have used of the processors, except some of those; this one if none."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                fields = (process / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(process.name))
            # With what their children that ended had used.
            ticks[int(process.name)] = sum(map(int, fields[11:15]))
    total, left = 0, set(roots or {os.getpid()})
    while left:
        pid = left.pop()
        if pid not in without:
            total += ticks.get(pid, 0)
            left |= set(children.get(pid, [])) - set(roots)
    return total / _TICKS


def best_costs(*actions: Work, rounds: int = ROUNDS, used: Callable[[], float] = processor_seconds) -> list[Cost]:
    """The cost of each action; in turn, so that they share the variance of the machine."""
    return best_of([(action, used) for action in actions], rounds)


def best_of(actions: Collection[tuple[Work, Callable[[], float]]], rounds: int = ROUNDS) -> list[Cost]:
    """The same for actions that use processors of different processes."""
    taken: list[list[Cost]] = [[] for _ in actions]
    for _ in range(WARMING_ROUNDS + rounds):
        for (action, used), costs in zip(actions, taken, strict=True):
            used_before, began = used(), time.perf_counter()
            action()
            seconds = time.perf_counter() - began
            costs.append(Cost(seconds, used() - used_before))
    counted = [costs[WARMING_ROUNDS:] for costs in taken]
    return [
        Cost(min(each.seconds for each in costs), median(each.processor_seconds for each in costs)) for costs in counted
    ]


def report_speed(
    report: Report, what: str, ours: Cost, theirs: Cost, least: float | None = None, least_cpu: float | None = None
) -> None:
    """How fast something is beside another: its rate by the clock, and messages for the same processor time."""
    report.line(f"  of {what}", theirs.seconds / ours.seconds, "times", least=least)
    report.line("    by processor time", theirs.processor_seconds / ours.processor_seconds, "times", least=least_cpu)


def report_slowness(report: Report, what: str, ours: Cost, theirs: Cost, most: float) -> None:
    """How much longer something takes than another: by processor time, which is the target, and by the clock."""
    report.line(f"  {what}", ours.processor_seconds / theirs.processor_seconds, "times", most=most)
    report.line("    by the clock", ours.seconds / theirs.seconds, "times", most=most)
