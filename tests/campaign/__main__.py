"""`python -m tests.campaign`: rounds of `headrace verify` under faults, until the time is over; figures at the end.

Each round has a seed, from which all its choices are made: which clients, which faults, when. A seed does not repeat
the races of a run, but the kind of run. Histories of violated rounds are kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.errors import HeadraceError
from headrace.verify.checks.verdict import check
from headrace.verify.history.file import read_history
from headrace.verify.run import VerifyRun
from headrace.verify.workload import Workload
from tests.campaign.servers import CampaignFailed, has_strace
from tests.campaign.sites import Fault, Site, make_site

ROUND_SECONDS = 40.0
# On a busy machine a shorter one may end before anything was acknowledged.
ROUND_SECONDS_MIN = 20.0
# How often a fault is chosen, if not as often as any other.
WEIGHTS = {"kill": 4, "stop": 2}


@dataclass
class Figures:
    """What a campaign has done and found."""

    rounds: int = 0
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    dropped: int = 0
    seeks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.most_common())
        broken = ", ".join(f"{count} {name}" for name, count in self.violations.most_common()) or "none"
        return (
            f"{self.rounds} rounds, {self.acknowledged:,} messages acknowledged, {self.unknown:,} of unknown outcome, "
            f"{self.read:,} delivered to members, {self.dropped:,} dropped by retention, {self.seeks:,} seeks\n"
            f"  faults: {faults}\n  violations: {broken}"
        )


class Injector:
    """Injects one fault after another while clients publish, and then heals everything."""

    def __init__(self, site: Site, faults: dict[str, Fault], run: VerifyRun, seed: int, figures: Figures) -> None:
        self._site = site
        self._faults = faults
        self._run = run
        self._random = random.Random(f"{seed}-faults")
        self._figures = figures
        self._stop = threading.Event()
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._top, name="campaign-faults")
        self._thread.start()

    def join(self) -> None:
        """Wait until all is healed."""
        self._stop.set()
        self._thread.join()

    def _top(self) -> None:
        self._run.is_publishing.wait()
        while self._run.is_publishing.is_set() and not self._stop.wait(self._random.uniform(0.2, 2)):
            name = self._random.choices(sorted(self._faults), [WEIGHTS.get(each, 1) for each in sorted(self._faults)])[
                0
            ]
            try:
                self._run.note(self._faults[name](self._random, self._run))
                self._figures.faults[name] += 1
            except (CampaignFailed, HeadraceError, OSError) as error:
                self.failures.append(f"{name}: {error}")
                self._run.note(f"{name} failed: {error}")
        try:
            self._site.heal()
        except CampaignFailed as error:
            self.failures.append(str(error))


def main() -> int:
    """Run a campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long, for each store")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of another campaign")
    parser.add_argument("--store", choices=["disk", "postgres", "both"], default="both")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="for stores and histories")
    parser.add_argument("--faults", default="", help="only these, with commas between")
    parser.add_argument("--no-seeks", action="store_true", help="no group is moved")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    # However it is ended, its servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _silence(arguments.directory / "campaign.stderr")
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"campaign with seed {seed}: {arguments.seconds:g} s for each store", flush=True)
    if not has_strace():
        print("skipped: EIO (strace was not found)")
    names = ["disk", "postgres"] if arguments.store == "both" else [arguments.store]
    figures = {name: campaign(name, seed, arguments) for name in names}
    for name, each in figures.items():
        print(f"{name}: {each}")
    return int(any(each.violations for each in figures.values()))


def _silence(path: Path) -> None:
    """What libraries say about connections that break goes to a file: there are thousands."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, sys.stderr.fileno())
    os.close(handle)


def campaign(name: str, seed: int, arguments: argparse.Namespace) -> Figures:
    """Rounds on one store until the time is over."""
    figures = Figures()
    chance = random.Random(f"{seed}-{name}")
    ends_at = time.monotonic() + arguments.seconds
    while (left := ends_at - time.monotonic()) > 0:
        play_round(
            name, chance.randrange(1 << 32), min(ROUND_SECONDS, max(ROUND_SECONDS_MIN, left)), arguments, figures
        )
    return figures


def play_round(name: str, seed: int, seconds: float, arguments: argparse.Namespace, figures: Figures) -> None:
    """One verification on a store of its own, under faults."""
    chance = random.Random(seed)
    workload = Workload(
        seconds=seconds,
        producers=chance.randint(3, 6),
        consumers=chance.randint(1, 4),
        groups=chance.randint(1, 3),
        rate=chance.choice([100, 400]),
        partitions=chance.randint(1, 6),
        partitions_added=chance.choice([0, 3]),
        seeks=not arguments.no_seeks and chance.random() < 0.5,
        retention_bytes=chance.choice([None, 200_000]),
        patience_seconds=chance.choice([2.0, 20.0]),
        seed=seed,
    )
    figures.rounds += 1
    directory = Path(tempfile.mkdtemp(prefix="campaign-", dir=arguments.directory))
    site = make_site(name, directory)
    history = directory / "history.jsonl"
    failures: list[str] = []
    try:
        chosen = {fault for fault in arguments.faults.split(",") if fault}
        faults = {fault: inject for fault, inject in site.faults().items() if not chosen or fault in chosen}
        run = VerifyRun(",".join(server.url for server in site.servers), workload, history)
        injector = Injector(site, faults, run, seed, figures)
        try:
            run.run(keep=True)
        except HeadraceError as error:
            failures.append(f"the verification ended early: {error.code}: {error}")
        finally:
            run.is_publishing.set()
            run.is_publishing.clear()
            injector.join()
        failures += injector.failures
    finally:
        site.close()
    verdict = check(read_history(history))
    figures.acknowledged += verdict.acknowledged
    figures.unknown += verdict.unknown
    figures.read += verdict.read
    figures.dropped += verdict.dropped
    figures.seeks += verdict.seeks
    figures.violations.update(violation.kind for violation in verdict.violations)
    figures.violations.update("failed" for _ in failures)
    is_good = verdict.is_good and not failures
    print(
        f"{name} round {figures.rounds}, seed {seed}: {verdict.word if not failures else 'violated'}, "
        f"{verdict.acknowledged:,} acknowledged, {verdict.faults} faults",
        flush=True,
    )
    for told in [*failures, *map(str, verdict.violations[:10])]:
        print(f"  {told}", flush=True)
    if is_good:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        figures.violations["inconclusive"] += verdict.word == "inconclusive"
        print(f"  history: {history}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
