"""A call to the operating system fails: each call that changes something, of everything that writes, one at a time.

Either the work succeeds all the same, or it ends with an error of the tree that says what is true. After `DiskFull`
and errors of the store work goes on at once, after an unknown outcome reading does; and once the store is opened
again everything is as the book says.
"""

from __future__ import annotations

import copy
import errno
import itertools
import shutil
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import DiskFull, HeadraceError, LogFailed, OutcomeUnknown, StoreUnavailable
from headrace.core.publish.state import CommitKey
from headrace.storage.disk.engine import DiskStore
from tests.faults.crashes import DAY_US, ManualClock, Scenario, Session, Template, prepare
from tests.faults.filesystems import EVERY_CHANGE, NEEDS_ROOM, FailingFileSystem
from tests.faults.invariants import Ledger, batch_of, check, extend, opened, settle, settle_topics, verify
from tests.faults.scenarios import SCENARIOS

# The system fails once, or from some call on until it is repaired.
ONCE, FROM_THEN_ON = 1, 1 << 30
WORK = [scenario for scenario in SCENARIOS if not scenario.opens]
OPENING = [scenario for scenario in SCENARIOS if scenario.opens and not scenario.is_new]


def fail_everywhere(scenario: Scenario, place: Path, error: int, calls: frozenset[str], times: int) -> list[str]:
    """Let each call of a scenario fail; the names of the errors that came of it."""
    template = prepare(scenario, place / "template")
    outcomes: list[str] = []
    for skip in itertools.count():
        files = FailingFileSystem()
        outcome = fail_at(scenario, template, place / "home", files, error, calls, skip, times)
        if not files.hits:
            assert outcome is None
            return outcomes
        outcomes.append(type(outcome).__name__)
    raise AssertionError("a scenario has an end")


def fail_at(
    scenario: Scenario,
    template: Template,
    home: Path,
    files: FailingFileSystem,
    error: int,
    calls: frozenset[str],
    skip: int,
    times: int,
) -> HeadraceError | None:
    """Let one call of a scenario fail, look at the store before and after it is opened again; what the work raised."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(template.directory, home)
    ledger, clock = copy.deepcopy(template.ledger), copy.copy(template.clock)
    broker = Broker(DiskStore(home, scenario.options, files), scenario.settings, clock)
    session = Session(broker, ledger, clock)
    scenario.warm_up(session)
    outcome = None
    # Half of a write that fails is on the disk.
    with files.failing(error, calls, skip=skip, times=times, written=0.5):
        try:
            scenario.act(session)
        except HeadraceError as raised:
            outcome = raised
    try:
        if scenario.name not in CLOSING:
            check_going_on(session, outcome)
        broker.close()
        verify(home, ledger, scenario.options, clock, again=False)
    except BaseException as failed:
        failed.add_note(f"after {outcome!r} because {files.hits[:1]} failed")
        raise
    return outcome


def has_failed(broker: Broker, topic: str) -> bool:
    """Whether a topic takes no more messages; if it does, a commit key that says nothing shows it."""
    try:
        broker.publish(topic, batch_of([]), CommitKey("probe", 0))
    except LogFailed:
        return True
    return False


# A lasting failure differs from a single one only where more than one thing is written.
CASES = [(scenario, ONCE) for scenario in WORK]
CASES += [(scenario, FROM_THEN_ON) for scenario in WORK if not scenario.name.startswith("publish to")]
IDS = [f"{scenario.name}, {'once' if times == ONCE else 'from then on'}" for scenario, times in CASES]
CLOSING = {"seal and close", "seal and close a full segment", "seal and close with room"}


def check_going_on(session: Session, outcome: HeadraceError | None) -> None:
    """Work goes on, as far as the error says so; reading always does."""
    broker, ledger = session.broker, session.ledger
    assert outcome is None or isinstance(outcome, OutcomeUnknown | DiskFull | StoreUnavailable), repr(outcome)
    settle_topics(broker, ledger)
    failed = [topic for topic in broker.list_topics() if has_failed(broker, topic)]
    if isinstance(outcome, OutcomeUnknown):
        # A commit of several topics names all of them once it may be decided, and before that the first that failed.
        named = outcome.topic.split(", ")
        assert failed == named or (len(named) == 1 and named[0] in failed and bool(session.ledger.transactions))
    if failed:
        check(broker, ledger, failed)
        return
    check(broker, ledger)
    settle(broker, ledger)
    extend(broker, ledger, "at-once")
    check(broker, ledger)


@pytest.mark.parametrize(("scenario", "times"), CASES, ids=IDS)
def test_disk_full_at_every_call(scenario: Scenario, times: int, place: Path) -> None:
    outcomes = set(fail_everywhere(scenario, place, errno.ENOSPC, NEEDS_ROOM, times))
    # The last frames of a transaction have their room, but a file system that copies on write may want more.
    unknown = {"OutcomeUnknown"} if scenario.name.startswith("commit transactions") else set()
    assert outcomes <= {"NoneType", "DiskFull", "StoreUnavailable"} | unknown
    assert scenario.name.startswith("publish") <= ("DiskFull" in outcomes)


@pytest.mark.parametrize(("scenario", "times"), CASES, ids=IDS)
def test_input_output_error_at_every_call(scenario: Scenario, times: int, place: Path) -> None:
    outcomes = set(fail_everywhere(scenario, place, errno.EIO, EVERY_CHANGE, times))
    assert scenario.name.startswith("publish") <= ("OutcomeUnknown" in outcomes)


@pytest.mark.parametrize("scenario", OPENING, ids=lambda scenario: str(scenario.name).replace(" ", "-"))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["no room", "input/output"])
def test_failing_call_while_a_store_is_opened(scenario: Scenario, error: int, place: Path) -> None:
    """The store, or the topic, cannot be opened now and says why; the next time it can, and nothing was lost."""
    template = prepare(scenario, place / "template")
    home = place / "home"
    for skip in itertools.count():
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(template.directory, home)
        files, ledger, clock = FailingFileSystem(), copy.deepcopy(template.ledger), copy.copy(template.clock)
        with files.failing(error, EVERY_CHANGE, skip=skip, times=1, written=0.5):
            try:
                with opened(home, scenario.options, files, clock) as broker:
                    check(broker, ledger)
            except (StoreUnavailable, DiskFull) as caught:
                assert caught.retry
        verify(home, ledger, scenario.options, clock)
        if not files.hits:
            break
    assert skip > 5


def test_retention_that_could_not_remove_a_segment_removes_it_later(place: Path) -> None:
    """If it went on with the next one, messages in the middle would be missing at the next opening."""
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "retention of everything"]
    for skip in range(6):
        home = place / f"home{skip}"
        files, clock, ledger = FailingFileSystem(), ManualClock(), Ledger()
        broker = Broker(DiskStore(home, scenario.options, files), scenario.settings, clock)
        session = Session(broker, ledger, clock)
        scenario.prepare(session)
        scenario.warm_up(session)
        clock.time_us += DAY_US
        with files.failing(errno.EIO, frozenset({"remove"}), skip=skip, times=1):
            broker.maintenance.run_all()
        assert len(files.hits) == 1
        check(broker, ledger)
        extend(broker, ledger, "between")
        broker.alter_topic("t", retention_bytes=1)
        broker.maintenance.run_all()
        check(broker, ledger)
        broker.close()
        verify(home, ledger, scenario.options, clock)
