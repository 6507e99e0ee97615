"""What a victim waits while others attack the server: `python -m bench.attacks [--seconds N] [--only NAME]`.

For each attack of `tests.hostile.attacks` a server with tokens of its own. A victim with a token produces, fetches,
asks for metadata, stays in a group, publishes over HTTP and asks for offsets over Flight, each 25 times a second and on
its own connection: first alone, then while an ordinary token with rights on a topic of its own attacks. A call counts
from when it was due. Printed are the p99 of both and their ratio, whose goal is 3 at most; this decides nothing.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.report import Report, percentiles_ms
from tests.hostile.attacks import ATTACKS
from tests.hostile.target import Address, Target
from tests.hostile.victim import Victim, Waits

MIB = 1 << 20
GOAL = 3.0
ALONE_SECONDS = 10.0
# What the server may still do when an attack is over.
AFTER_SECONDS = 1.0


def attack(name: str, address: Address, seconds: float) -> str:
    """Attack, in a process of its own; what was done, in words."""
    return ATTACKS[name](address, seconds)


def measure(report: Report, name: str, seconds: float, directory: Path) -> None:
    """One attack."""
    with (
        Target(directory, installed=True) as target,
        ProcessPoolExecutor(1, get_context("spawn")) as attacker,
        Victim(target.address) as victim,
    ):
        address = target.address
        # Then it has started.
        attacker.submit(time.monotonic).result()
        victim.waits()
        time.sleep(ALONE_SECONDS)
        alone, memory = victim.waits(), address.memory_bytes()
        address.forget_peak()
        done = attacker.submit(attack, name, address, seconds).result()
        beside = victim.waits()
        time.sleep(AFTER_SECONDS)
        report.note(f"{name}: {done}")
        show(report, alone, beside)
        if address.is_running:
            most, left = address.memory_bytes("VmHWM"), address.memory_bytes()
            report.note(
                f"  server: {memory / MIB:,.0f} MiB before, {most / MIB:,.0f} at most, {left / MIB:,.0f} after\n"
            )
        else:
            report.note("  the server has ended\n")


def show(report: Report, alone: dict[str, Waits], beside: dict[str, Waits]) -> None:
    """The p99 of each operation, and their ratio."""
    before = {name: percentiles_ms(waits.seconds)["p99"] for name, waits in alone.items()}
    meanwhile = {name: percentiles_ms(waits.seconds)["p99"] for name, waits in beside.items()}
    ratios = {name: meanwhile[name] / before[name] for name in before}
    report.note("  " + "".join(f"{title:>16}" for title in ("", *before)))
    for title, figures in (("p99 alone, ms", before), ("meanwhile, ms", meanwhile), ("ratio", ratios)):
        report.note("  " + "".join([f"{title:>16}", *(f"{figure:>16,.1f}" for figure in figures.values())]))
    errors = [error for waits in beside.values() for error in waits.errors]
    worst = max(ratios, key=lambda name: ratios[name])
    verdict = "within the goal" if ratios[worst] <= GOAL else "above the goal"
    report.note(
        f"  at most {ratios[worst]:,.1f} times ({worst}): {verdict} of {GOAL:g}; {len(errors)} errors {errors[:1]}"
    )


def main() -> None:
    """Measure all attacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    parser.add_argument("--only", choices=ATTACKS, help="one attack")
    parser.add_argument("--directory", type=Path, help="where the stores are: choose the disk to measure")
    given = parser.parse_args()
    report = Report("what a victim waits while others attack the server")
    report.begin()
    for name in [given.only] if given.only else ATTACKS:
        with TemporaryDirectory(prefix="headrace-bench-", dir=given.directory) as directory:
            measure(report, name, given.seconds, Path(directory))


if __name__ == "__main__":
    main()
