"""Running a scenario to death at every file-system call, and looking at what is left in several worlds.

A scenario is prepared once, on the real file system, and closed. Then it is acted out on a simulated disk that holds
the prepared store, dying at call 1, 2, 3 and so on until it gets through. Each time what is left is opened with the
real file system and compared with the book, in these worlds:

- the process died: everything it wrote stays; of the write it died in, some bytes;
- the power was cut: what was not synced is lost, or is there in parts;
- the process died, the next one repeated what was not acknowledged, and then the power was cut.

A store that does not sync promises nothing after a power cut: of such a one only the process dies. Worlds that are the
same to the byte, with the same book, are opened once in a scenario: every other one is.

The catalog is SQLite on the real disk in all of them; its own promises are not tested here.
"""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from headrace.broker import Broker
from headrace.broker.settings import BrokerSettings
from headrace.core.limits import MICROSECONDS
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.faults.filesystems import (
    Crash,
    PowerCut,
    ProcessDeath,
    ScatteredPowerCut,
    SimulatedDisk,
    SimulatedFileSystem,
    World,
)
from tests.faults.invariants import TINY, Ledger, check, extend, settle, verify

CATALOG = "catalog.sqlite"
DAY_US = 24 * 3600 * MICROSECONDS


@dataclass
class ManualClock:
    """A clock that stands still until it is moved."""

    time_us: int = 1_700_000_000 * MICROSECONDS

    def now_us(self) -> int:
        self.time_us += 1
        return self.time_us

    def monotonic_us(self) -> int:
        return self.time_us


@dataclass
class Session:
    """One process's work with a store: the broker, and the book that is kept of it."""

    broker: Broker
    ledger: Ledger
    clock: ManualClock


Step = Callable[[Session], None]


def nothing(session: Session) -> None:
    """A step that does nothing."""


@dataclass(frozen=True)
class Scenario:
    """What is done before the store is closed, after it is opened, and then with a crash at every call of it.

    With `opens` the crash comes while the store is being opened; with `is_new` there is none before. `spoil` changes
    the files of the prepared store. `seeds` says in how many ways what is not synced is lost in parts, `segments_made`
    how many segments are begun, so that a scenario of a roll rolls.
    """

    name: str
    prepare: Step = nothing
    warm_up: Step = nothing
    act: Step = nothing
    opens: bool = False
    is_new: bool = False
    spoil: Callable[[Path], None] = lambda directory: None
    options: DiskOptions = TINY
    seeds: int = 2
    segments_made: int = 0
    settings: BrokerSettings | None = None


@dataclass
class Template:
    """A prepared store that was closed, and the book of it."""

    directory: Path
    ledger: Ledger
    clock: ManualClock


@dataclass
class Death:
    """How a run ended: the disk and the book as they were, and the file system that saw it."""

    home: Path
    files: SimulatedFileSystem
    ledger: Ledger
    clock: ManualClock
    crashed: bool
    options: DiskOptions = field(default=TINY)
    segments_made: int = 0

    @property
    def disk(self) -> SimulatedDisk:
        return self.files.disk

    @property
    def state(self) -> tuple[int, int, int, bool]:
        """What two deaths must share to leave the same behind."""
        acknowledged = sum(attempt.places is not None for attempt in self.ledger.attempts)
        path = self.home / "store" / CATALOG
        catalog = hash(path.read_bytes()) if path.exists() else 0
        return self.disk.version, acknowledged, catalog, self.files.unfinished is not None


def crash_everywhere(scenario: Scenario, place: Path) -> int:
    """Die at every call of a scenario and verify each time; the number of calls."""
    template = prepare(scenario, place / "template")
    seen: set[object] = set()
    for crash_at in itertools.count(1):
        death = run(scenario, template, place / "home", crash_at)
        if not death.crashed:
            # Nothing stopped it: the power may still be cut right after.
            assert death.segments_made == scenario.segments_made
            verify_worlds(death, place / "world", seeds(scenario, crash_at), seen)
            return crash_at - 1
        if death.state not in seen:
            seen.add(death.state)
            verify_worlds(death, place / "world", seeds(scenario, crash_at), seen)
    raise AssertionError("a scenario has an end")


def seeds(scenario: Scenario, crash_at: int) -> range:
    """The seeds for one crash."""
    return range(crash_at * scenario.seeds, (crash_at + 1) * scenario.seeds)


def prepare(scenario: Scenario, directory: Path) -> Template:
    """Make the store that a scenario begins with, if it begins with one."""
    clock, ledger = ManualClock(), Ledger()
    if scenario.is_new:
        return Template(directory, ledger, clock)
    broker = Broker(DiskStore(directory, scenario.options), scenario.settings, clock)
    scenario.prepare(Session(broker, ledger, clock))
    broker.close()
    scenario.spoil(directory)
    return Template(directory, ledger, clock)


def run(scenario: Scenario, template: Template, home: Path, crash_at: int) -> Death:
    """Act a scenario out on a simulated disk, dying at some call."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "store").mkdir(parents=True)
    disk = SimulatedDisk(home)
    if template.directory.exists():
        shutil.copy(template.directory / CATALOG, home / "store")
        disk.load({"store": template.directory}, lambda name: name.startswith(CATALOG))
    files = SimulatedFileSystem(disk)
    death = Death(home, files, copy.deepcopy(template.ledger), copy.copy(template.clock), True, scenario.options)
    if scenario.opens:
        files.arm(crash_at)
    store = None
    try:
        store = DiskStore(home / "store", scenario.options, files)
        session = Session(Broker(store, scenario.settings, death.clock), death.ledger, death.clock)
        scenario.warm_up(session)
        if not scenario.opens:
            files.arm(crash_at)
        scenario.act(session)
        death.segments_made = files.segments_made
        death.crashed = False
    except Crash:
        pass
    if store is not None:
        store.catalog.close()
    return death


def verify_worlds(death: Death, place: Path, seeds: range, seen: set[object]) -> None:
    """Look at what is left in every world that was not seen before."""
    for name, world in worlds(death, seeds):
        try:
            verify_in(world, death, place, isinstance(world, ProcessDeath), seen)
        except BaseException as error:
            error.add_note(f"world: {name}, after {death.files.calls} calls")
            raise
    try:
        verify_second_life(death, place)
    except BaseException as error:
        error.add_note(f"world: power cut after a second life, after {death.files.calls} calls")
        raise


def worlds(death: Death, seeds: range) -> Iterator[tuple[str, World]]:
    """All worlds that a death is looked at in."""
    yield "process death", ProcessDeath()
    unfinished = death.files.unfinished
    if unfinished is not None:
        length = len(unfinished.data)
        for written in sorted({1, length // 2, length - 1}):
            yield f"process death, {written} of {length} bytes written", ProcessDeath(unfinished, written)
    if death.options.durability == "os":
        return
    yield "power cut", PowerCut()
    if death.disk.has_unsynced:
        for seed in seeds:
            yield f"scattered power cut, seed {seed}", ScatteredPowerCut(seed)


def lay_out(world: World, death: Death, place: Path, catalog: Path) -> None:
    """Make the files that are left in a world, with the catalog of a store."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    death.disk.lay_out(world, place)
    (place / "store").mkdir(exist_ok=True)
    for path in catalog.glob(CATALOG + "*"):
        shutil.copy(path, place / "store")


def is_new(seen: set[object], place: Path, *more: object) -> bool:
    """Whether these files were never seen with what else counts; they are now."""
    content = sha256()
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        content.update(f"{path.relative_to(place)} {path.stat().st_size} ".encode())
        content.update(path.read_bytes())
    key = content.digest(), repr(more)
    before = len(seen)
    seen.add(key)
    return len(seen) > before


def verify_in(
    world: World, death: Death, place: Path, keeps_stages: bool = False, seen: set[object] | None = None
) -> None:
    """Lay out what is left in a world, open it and compare it with the book, unless it was seen before."""
    lay_out(world, death, place, death.home / "store")
    # One more opening after the clean close shows nothing new in every single way to lose what was not synced.
    again = not isinstance(world, ScatteredPowerCut)
    if seen is not None and not is_new(seen, place, death.ledger, keeps_stages, again):
        return
    ledger, clock = copy.deepcopy(death.ledger), copy.copy(death.clock)
    verify(place / "store", ledger, death.options, clock, keeps_stages, again)


def verify_second_life(death: Death, place: Path) -> None:
    """The next process repeats what was not acknowledged and does some more; then the power is cut."""
    files = SimulatedFileSystem(death.disk)
    store = DiskStore(death.home / "store", death.options, files)
    broker = Broker(store, clock=death.clock)
    check(broker, death.ledger)
    settle(broker, death.ledger)
    death.ledger.create_topic(broker, "later", 1)
    extend(broker, death.ledger, "second-life")
    store.catalog.close()
    verify_in(ProcessDeath() if death.options.durability == "os" else PowerCut(), death, place)
