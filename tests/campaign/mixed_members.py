"""`python -m tests.campaign.mixed_members`: members of all protocols come, go, pause and are killed, and servers too.

    shared      native members, read sessions of YDB and members of cursus in one group
    classic     Kafka's members that assign by themselves
    assigned    Kafka's members that the server assigns (KIP-848)
    either      native and Kafka's members: those that come second are refused until the first have left
    copies      what is read is written to another topic, in a transaction with its offsets

Each member is a process (`mixed_member`). In rounds, on one server with a disk and on three with a PostgreSQL. A round
is a history of `headrace verify`, judged by its checks and by two more: no commit of a member was taken after another
was given the partition, and each message was copied once. A seed does not repeat the races of a run, but its kind.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import msgspec

import headrace
from headrace.client import Client
from headrace.core.errors import HeadraceError
from headrace.core.limits import SERVER_EXPIRY_SECONDS
from headrace.verify.checks.verdict import check
from headrace.verify.history.events import Began, Event, LogRead, Note, OffsetsCommitted, Poll, Stalled
from headrace.verify.history.file import Recorder, read_history
from headrace.verify.operators import Observer
from headrace.verify.publishers import BatchPublisher, MessagePublisher, StagePublisher, message_id
from headrace.verify.run import read_log
from tests.campaign.mixed_member import COPIES
from tests.campaign.servers import CampaignFailed
from tests.campaign.sites import Fault, Site, make_site

TOPIC: Final = "orders"
GROUPS: Final = {
    "shared": ("native", "ydb", "cursus"),
    "classic": ("classic",),
    "assigned": ("kip848",),
    "either": ("native", "classic", "kip848"),
    "copies": ("copier",),
}
# What a member is connected to.
PROTOCOLS: Final = {"classic": "kafka", "kip848": "kafka", "ydb": "ydb", "cursus": "cursus"}
FAULTS: Final = ("kill", "stop", "pause", "database crash", "database pause", "connections ended")
# Longer than the others wait for a sign of a server, and than the sessions of its members.
_LONG_PAUSE_SECONDS: Final = SERVER_EXPIRY_SECONDS + 8.0
_PARTITIONS: Final = 6
_ROUND_SECONDS: Final = 60.0
_ROUND_SECONDS_MIN: Final = 20.0
_STALL_SECONDS: Final = 120.0
_LEAVE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5


class MemberProcess:
    """A member, and the thread that puts what it prints into the history."""

    def __init__(self, kind: str, address: str, group: str, number: int, recorder: Recorder, errors: Path) -> None:
        self.kind = kind
        self.group = group
        self.is_paused = False
        command = [sys.executable, "-m", "tests.campaign.mixed_member", kind, address, TOPIC, group, str(number)]
        with errors.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self._thread = threading.Thread(target=self._record, args=(recorder,), daemon=True)
        self._thread.start()

    def _record(self, recorder: Recorder) -> None:
        decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A last line without an end is that of a member that was killed while it wrote.
            if line.endswith(b"\n"):
                recorder.record(decoder.decode(line))

    def pause(self) -> None:
        """Stop it as it is."""
        self.is_paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False
        self._process.send_signal(signal.SIGCONT)

    def stay(self) -> None:
        """It leaves no more by itself."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stay\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """Ask it to leave; `join` waits for that."""
        self.resume()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self) -> int:
        """Wait until it has ended, and all that it printed is recorded; its exit code."""
        try:
            code = self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code


@dataclass
class Crowd:
    """The members that run, and what happens to them."""

    site: Site
    recorder: Recorder
    random: random.Random
    errors: Path
    faults: Counter[str]
    running: list[MemberProcess] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _joined: int = 0
    _leaving: list[MemberProcess] = field(default_factory=list)
    _killed: list[MemberProcess] = field(default_factory=list)

    def add(self, group: str, kind: str | None = None) -> None:
        """Let a member come."""
        self._joined += 1
        chosen = kind or self.random.choice(GROUPS[group])
        servers = self.random.sample(self.site.servers, len(self.site.servers))
        addresses = [server.address(PROTOCOLS[chosen]) if chosen in PROTOCOLS else server.url for server in servers]
        # SDKs of YDB and clients of cursus begin with one address.
        address = ",".join(addresses if chosen not in ("ydb", "cursus") else addresses[:1])
        self.running.append(MemberProcess(chosen, address, group, self._joined, self.recorder, self.errors))
        self.faults[f"{chosen} came"] += 1

    def disturb(self) -> None:
        """One member comes, goes, pauses, goes on, or is killed."""
        group = self.random.choice(sorted(GROUPS))
        members = [member for member in self.running if member.group == group]
        if len(members) < 2 or (len(members) < 4 and self.random.random() < 0.3):
            self.add(group)
            return
        member, what = self.random.choice(members), self.random.choice(("leave", "kill", "pause", "pause"))
        if member.is_paused:
            member.resume()
        elif what == "pause":
            member.pause()
            self.faults["paused"] += 1
        else:
            self.running.remove(member)
            getattr(member, what)()
            (self._leaving if what == "leave" else self._killed).append(member)
            self.faults["left" if what == "leave" else "killed"] += 1

    def settle(self) -> None:
        """Whoever is there stays; each group has a member."""
        for group, kinds in GROUPS.items():
            if not any(member.group == group for member in self.running):
                self.add(group, kinds[0])
        for member in self.running:
            member.resume()
            member.stay()

    def end(self) -> None:
        """Let all leave."""
        for member in self.running:
            member.leave()
        for member in [*self.running, *self._leaving]:
            if code := member.join():
                self.failures.append(f"a {member.kind} member of group {member.group} ended with {code}")
        for member in self._killed:
            member.join()

    def kill(self) -> None:
        """End all that is left at once."""
        for member in [*self.running, *self._leaving, *self._killed]:
            member.kill()


@dataclass
class Figures:
    """What a campaign has done and found."""

    rounds: int = 0
    acknowledged: int = 0
    read: int = 0
    again: int = 0
    copied: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lost = self.violations["lost"] + self.violations["passed_over"] + self.violations["not copied"]
        doubled = self.violations["doubled"] + self.violations["copied twice"]
        others = {
            kind: count
            for kind, count in self.violations.items()
            if kind not in ("lost", "passed_over", "not copied", "doubled", "copied twice", "two_owners")
        }
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.most_common())
        return (
            f"{self.rounds} rounds, {self.acknowledged:,} messages acknowledged, {lost} lost, {doubled} doubled, "
            f"{self.violations['two_owners']} two owners; "
            f"{self.read:,} given to members, {self.again:,} of them again, "
            f"{self.copied:,} copied; other violations: {others or 'none'}\n  {faults}"
        )


def owners_at_once(events: Iterable[Event]) -> Iterator[str]:
    """Commits of a member that were taken although another was given messages of the partition since it was itself.

    A member forgets what it was given of a partition when it loses it, so that it commits nothing of what another has.
    """
    given: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    commits: list[OffsetsCommitted] = []
    for event in events:
        if isinstance(event, Poll):
            for partition, _, _ in event.runs:
                given[event.group, partition].append((event.at_ns, event.member))
        elif isinstance(event, OffsetsCommitted) and event.outcome == "ok":
            commits.append(event)
    for commit in commits:
        for partition in commit.offsets:
            before = [each for each in given[commit.group, partition] if each[0] < commit.called_ns]
            last = max(before, default=(0, commit.member))[1]
            if last != commit.member:
                what = f"{commit.member} committed {commit.offsets[partition]} after it was given to {last}"
                yield f"two owners: group {commit.group}, partition {partition}: {what}"


def given_again(events: Iterable[Event]) -> int:
    """How many messages members of a group were given that one of it had been given before."""
    places: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Poll):
            for partition, offset, ids in event.runs:
                places.update(f"{event.group} {partition} {offset + place}" for place in range(len(ids)))
    return places.total() - len(places)


def read_copies(client: Client) -> Counter[str]:
    """The messages in the topic of the copies."""
    return Counter(map(message_id, client.to_arrow(COPIES + TOPIC)["value"].to_pylist()))


def wrong_copies(events: Iterable[Event], copies: Counter[str]) -> list[tuple[str, str]]:
    """What the topic has and its copies do not, and what they have twice."""
    written = {message for event in events if isinstance(event, LogRead) for message in event.messages}
    missing = [("not copied", f"{message} was not copied") for message in sorted(written - copies.keys())]
    return missing + [
        ("copied twice", f"{message} was copied {times} times") for message, times in copies.items() if times > 1
    ]


def play_round(name: str, seed: int, seconds: float, directory: Path, figures: Figures) -> None:
    """One round on a store of its own."""
    figures.rounds += 1
    directory = Path(tempfile.mkdtemp(prefix="members-", dir=directory))
    site, history = make_site(name, directory, ("kafka", "ydb", "cursus")), directory / "history.jsonl"
    failures: list[str] = []
    copies: Counter[str] = Counter()
    try:
        with Recorder(history) as recorder:
            copies = _play(site, seed, seconds, recorder, directory, figures, failures)
    except (HeadraceError, CampaignFailed) as error:
        failures.append(f"the round ended early: {error}")
    finally:
        site.close()
    events = list(read_history(history))
    verdict = check(events)
    violations: list[tuple[str, str]] = [(each.kind, str(each)) for each in verdict.violations]
    violations += [("two_owners", what) for what in owners_at_once(events)]
    if not failures:
        violations += wrong_copies(events, copies)
    figures.acknowledged += verdict.acknowledged
    figures.read += verdict.read
    figures.again += given_again(events)
    figures.copied += copies.total()
    figures.violations.update(kind for kind, _ in violations)
    figures.violations.update("failed" for _ in failures)
    word = "violated" if violations or failures else verdict.word
    print(f"{name} round {figures.rounds}, seed {seed}: {word}, {verdict.acknowledged:,} acknowledged", flush=True)
    for told in [*failures, *(what for _, what in violations[:10])]:
        print(f"  {told}", flush=True)
    if word == "good":
        shutil.rmtree(directory, ignore_errors=True)
    else:
        figures.violations["inconclusive"] += word == "inconclusive"
        print(f"  history and logs: {directory}", flush=True)


def _play(
    site: Site, seed: int, seconds: float, recorder: Recorder, directory: Path, figures: Figures, failures: list[str]
) -> Counter[str]:
    chance, urls = random.Random(seed), [server.url for server in site.servers]

    def connected() -> Client:
        return headrace.connect(chance.sample(urls, len(urls)), timeout_seconds=20.0)

    recorder.record(Began(TOPIC, seed=seed))
    crowd = Crowd(site, recorder, chance, directory / "members.log", figures.faults)
    stop, stop_looking, threads = threading.Event(), threading.Event(), list[threading.Thread]()
    with connected() as client:
        for topic in (TOPIC, COPIES + TOPIC):
            client.create_topic(topic, partitions=_PARTITIONS)
        for group in GROUPS:
            client.register_group(TOPIC, group)
        common = (TOPIC, recorder, 100.0, seed)
        publishers: list[BatchPublisher | MessagePublisher | StagePublisher] = [
            BatchPublisher("source", *common, is_source=True, has_keys=True),
            MessagePublisher("single", *common),
            StagePublisher("writer", *common),
        ]
        for publisher in publishers:
            threads.append(threading.Thread(target=publisher.run, args=(connected, stop, 20.0), daemon=True))
        observer = Observer(TOPIC, list(GROUPS), recorder)
        looking = threading.Thread(target=observer.run, args=(connected, stop_looking), daemon=True)
        try:
            for thread in [*threads, looking]:
                thread.start()
            for group in GROUPS:
                crowd.add(group)
            _disturb(site, crowd, recorder, seconds, failures)
            stop.set()
            for thread in threads:
                thread.join()
            crowd.settle()
            _catch_up(client, observer, recorder)
            crowd.end()
            failures += crowd.failures
            read_log(client, TOPIC, recorder)
            return read_copies(client)
        finally:
            stop.set()
            stop_looking.set()
            looking.join()
            crowd.kill()


def _disturb(site: Site, crowd: Crowd, recorder: Recorder, seconds: float, failures: list[str]) -> None:
    """Members come and go, and meanwhile something happens to a server now and then."""
    over = threading.Event()
    breaking = threading.Thread(target=_break, args=(site, crowd, recorder, over, failures), daemon=True)
    breaking.start()
    try:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            time.sleep(crowd.random.uniform(0.5, 2.5))
            crowd.disturb()
    finally:
        over.set()
        breaking.join()


def _break(site: Site, crowd: Crowd, recorder: Recorder, over: threading.Event, failures: list[str]) -> None:
    """One fault of a server after another, healed each time."""

    def pause(chance: random.Random, _: object) -> str:
        server = chance.choice(site.servers)
        server.pause(_LONG_PAUSE_SECONDS)
        return f"SIGSTOP of {server.name} for {_LONG_PAUSE_SECONDS:g} s"

    chance = random.Random(crowd.random.random())
    faults: dict[str, Fault] = {name: fault for name, fault in site.faults().items() if name in FAULTS}
    faults["long pause"] = pause
    try:
        while not over.wait(chance.uniform(3, 10)):
            name = chance.choice(sorted(faults))
            # Those that are asked for here need no run.
            recorder.record(Note(faults[name](chance, cast(Any, None)), time.monotonic_ns()))
            crowd.faults[name] += 1
        site.heal()
    except (CampaignFailed, OSError) as error:
        failures.append(str(error))


def _catch_up(client: Client, observer: Observer, recorder: Recorder) -> None:
    """Wait until all groups have committed everything, as long as they make progress."""
    least, moved_at = sys.maxsize, time.monotonic()
    while time.monotonic() - moved_at < _STALL_SECONDS:
        try:
            lag = observer.look(client)
        except HeadraceError:
            continue
        if not lag:
            return
        if lag < least:
            least, moved_at = lag, time.monotonic()
        time.sleep(_LOOK_SECONDS)
    for group in GROUPS:
        if lag := client.describe_group(TOPIC, group).lag_messages:
            recorder.record(Stalled(group, lag, _STALL_SECONDS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.mixed_members", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long, for each store")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of another campaign")
    parser.add_argument("--store", choices=["disk", "postgres", "both"], default="both")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="for stores and histories")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"mixed members with seed {seed}: {given.seconds:g} s for each store", flush=True)
    is_broken = False
    for name in ["disk", "postgres"] if given.store == "both" else [given.store]:
        figures, chance = Figures(), random.Random(f"{seed}-{name}")
        ends_at = time.monotonic() + given.seconds
        while (left := ends_at - time.monotonic()) > 0:
            seconds = min(_ROUND_SECONDS, max(_ROUND_SECONDS_MIN, left))
            play_round(name, chance.randrange(1 << 32), seconds, given.directory, figures)
        print(f"{name}: {figures}", flush=True)
        is_broken |= bool(figures.violations.total())
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
