"""Commits of several topics on disk: all ways to fail before, at and after the decision, and what opening does then."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from headrace.core.errors import DiskFull, LogFailed, OutcomeUnknown, StoreUnavailable
from headrace.core.publish.state import CommitKey
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.commits.store_commits import JournalEntry
from headrace.storage.disk.backup import back_up
from headrace.storage.disk.doctor.doctor import examine
from headrace.storage.disk.engine import CATALOG, DiskStore
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.log import DiskLog
from headrace.storage.disk.opening.journal import read_journal
from headrace.storage.interface import StoreCommit
from tests.storage.builders import CREATED_US, NOW_US, publish, values, values_in
from tests.storage.disk.builders import BROKEN, NO_SPACE, ROOMY_OPTIONS, TINY_OPTIONS, FailingFiles, flip
from tests.storage.store_commit_contract import deciding

TOPICS = ("a", "b", "c")


def journal_of(catalog: Path) -> tuple[int, list[JournalEntry]]:
    """What a catalog that is a file has of commits of several topics."""
    with closing(sqlite3.connect(catalog)) as database:
        return read_journal(database)


KEY = CommitKey("w", 1)


class Site:
    """A store with some topics, whose files may fail."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        self.files = FailingFiles()
        self.options = ROOMY_OPTIONS
        self.open()

    def open(self) -> None:
        self.store = DiskStore(self.root, self.options, self.files)
        catalog = self.store.catalog
        for name in TOPICS if not catalog.topics() else ():
            catalog.add_topic(
                name, name, 1, DEFAULT_SETTINGS, CREATED_US, lambda made: self.store.create_log(made, CREATED_US)
            )
        self.logs = {topic.name: self.store.open_log(topic, NOW_US) for topic in catalog.topics()}

    def commit(self, number: int, *names: str, key: CommitKey | None = None, lazily: bool = False) -> None:
        """A message with this number to each topic named, by default to the first two."""
        decide = deciding(values(b"%d" % number), lazily=lazily)
        decisions = {self.logs[name].topic.id: decide for name in names or TOPICS[:2]}
        self.store.commit(StoreCommit(decisions, NOW_US, key))

    def publish(self, name: str, number: int) -> None:
        publish(self.logs[name], values(b"%d" % number))

    @property
    def values(self) -> list[list[bytes]]:
        return [values_in(log) for log in self.logs.values()]

    @property
    def last_key(self) -> CommitKey | None:
        return self.store.catalog.commits.last_key("w")

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """Continue with the files as a process that is killed leaves them."""
        after = self.root.with_name(self.root.name + "+")
        shutil.copytree(self.root, after)
        self.close()
        self.root = after

    def segment(self, name: str) -> Path:
        return self.logs[name].newest.path


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "store")
    made.publish("a", 0)
    yield made
    made.close()


# The calls of a commit to two topics: frames, room, and a sync of each; then the last frame of each and its sync.
BEFORE = [("write", 0), ("write", 1), ("sync", 0), ("write", 2), ("write", 3), ("sync", 1)]
AFTER = [("write", 4), ("sync", 2), ("write", 5), ("sync", 3)]


@pytest.mark.parametrize("number", [NO_SPACE, BROKEN])
@pytest.mark.parametrize(("call", "passing"), BEFORE)
def test_what_fails_before_the_decision_leaves_nothing(site: Site, call: str, passing: int, number: int) -> None:
    site.files.fail(call, *[None] * passing, number)
    with pytest.raises((DiskFull, OutcomeUnknown)):
        site.commit(1, key=KEY)
    assert (site.values, site.last_key) == ([[b"0"], [], []], None)
    site.publish("c", 9)
    site.reopen()
    site.commit(2, key=KEY)
    site.reopen()
    assert site.values == [[b"0", b"2"], [b"2"], [b"9"]]


@pytest.mark.parametrize(("call", "passing"), AFTER)
def test_what_fails_after_the_decision_is_finished_by_the_next_opening(site: Site, call: str, passing: int) -> None:
    site.files.fail(call, *[None] * passing, BROKEN)
    with pytest.raises(OutcomeUnknown, match="a, b"):
        site.commit(1, key=KEY)
    assert site.values == [[b"0"], [], []], "no reader sees half of it"
    for name in ("a", "b"):
        with pytest.raises(LogFailed):
            site.publish(name, 2)
        with pytest.raises(LogFailed):
            site.commit(2, name, "c")
    site.commit(3, "c")
    site.reopen()
    site.reopen()
    assert (site.values, site.last_key) == ([[b"0", b"1"], [b"1"], [b"3"]], KEY)


def test_a_log_that_cannot_be_cut_accepts_nothing_and_the_others_do(site: Site) -> None:
    site.files.fail("write", None, None, NO_SPACE)
    site.files.fail("truncate", None, BROKEN)
    with pytest.raises(DiskFull):
        site.commit(1)
    for names in (("a",), ("b", "a")):
        with pytest.raises(LogFailed):
            site.commit(1, *names)
    site.publish("b", 2)
    site.reopen()
    assert site.values == [[b"0"], [b"2"], []]


Do = Callable[[Callable[[Connection], Any]], Any]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_decision_in_doubt_is_found_out_by_the_next_opening(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    commits = site.store.catalog.commits
    do: Do = commits.do

    class Undone(Exception):
        pass

    def undo(work: Callable[[Connection], Any], connection: Connection) -> None:
        work(connection)
        raise Undone

    def unanswered(work: Callable[[Connection], Any]) -> None:
        if is_there:
            do(work)
        else:
            with pytest.raises(Undone):
                do(lambda connection: undo(work, connection))
        raise StoreUnavailable("the catalog", "no answer")

    monkeypatch.setattr(commits, "do", unanswered)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        site.commit(1, key=KEY)
    monkeypatch.undo()
    with pytest.raises(LogFailed):
        site.publish("a", 2)
    site.kill()
    site.open()
    assert site.values == ([[b"0", b"1"], [b"1"], []] if is_there else [[b"0"], [], []])
    assert site.last_key == (KEY if is_there else None)


def test_a_full_disk_of_the_catalog_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = site.store.catalog.commits
    do: Do = commits.do

    def full(work: Callable[[Connection], Any]) -> None:
        def fail(connection: Connection) -> None:
            work(connection)
            raise DiskFull("", "full")

        do(fail)

    monkeypatch.setattr(commits, "do", full)
    with pytest.raises(DiskFull):
        site.commit(1, key=KEY)
    monkeypatch.undo()
    assert (site.values, site.last_key) == ([[b"0"], [], []], None)
    site.commit(1, key=KEY)
    assert site.values == [[b"0", b"1"], [b"1"], []]


def test_an_interrupt_after_the_decision_is_one_still(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DiskLog, "end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        site.commit(1, lazily=True)
    monkeypatch.undo()
    site.reopen()
    assert site.values == [[b"0", b"1"], [b"1"], []]


def decided(site: Site) -> None:
    """A commit of three topics whose process dies right after the decision."""
    site.files.fail("write", *[None] * 6, BROKEN)
    with pytest.raises(OutcomeUnknown):
        site.commit(1, *TOPICS, key=KEY)
    site.kill()


def test_an_opening_that_fails_is_followed_by_one_that_finishes(site: Site) -> None:
    decided(site)
    for call in ("write", "sync"):
        site.files.fail(call, None, BROKEN)
        with pytest.raises(StoreUnavailable):
            site.open()
    site.files.fail("sync")
    site.open()
    assert site.values == [[b"0", b"1"], [b"1"], [b"1"]]
    assert journal_of(site.root / CATALOG) == (site.store.catalog.commits.number(), [])


def test_entries_of_topics_and_segments_that_do_not_exist_are_passed_over(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    decided(site)
    # One topic was deleted, and of another the end was lost.
    with closing(sqlite3.connect(site.root / CATALOG)) as catalog, catalog:
        catalog.execute("DELETE FROM all_topics WHERE topicname = 'a'")
    _, entries = journal_of(site.root / CATALOG)
    (lost,) = (entry for entry in entries if entry.topic_id == site.logs["b"].topic.id)
    flip(site.root / "topics" / f"{lost.topic_id:09d}" / site.segment("b").name, lost.before_position + 100)
    site.open()
    assert "the end of a commit of several topics" in caplog.text
    assert site.values == [[], [b"1"]]


def test_the_doctor_knows_what_the_next_opening_finishes(site: Site) -> None:
    decided(site)
    report = examine(site.root)
    found = [(finding.kind, finding.repair) for finding in report.findings if "several topics" in finding.what]
    assert found == [("leftover", "possible")] * 3
    assert [finding.repair for finding in examine(site.root, repair=True).findings] == ["done"] * 3
    assert examine(site.root).findings == []
    site.open()
    assert site.values == [[b"0", b"1"], [b"1"], [b"1"]]


def test_a_journal_is_empty_after_a_close_and_short_before(site: Site) -> None:
    for number in range(3):
        site.commit(number)
        assert len(journal_of(site.root / CATALOG)[1]) == 2
    site.close()
    assert journal_of(site.root / CATALOG)[1] == []
    site.open()
    assert journal_of(site.root / CATALOG)[0] == 3


def test_a_catalog_without_a_journal_has_none(site: Site, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "older.sqlite")) as catalog, catalog:
        catalog.execute("CREATE TABLE headrace_catalog (version INTEGER)")
    assert journal_of(tmp_path / "older.sqlite") == (0, [])


class Meanwhile(FileSystem):
    """Before files of some topics are copied for the first time after the catalog, something happens."""

    def __init__(self, *happenings: Callable[[], object], ending: str = ".log") -> None:
        self._happenings = list(happenings)
        self._ending = ending

    def copy(self, source: Path, target: Path) -> None:
        if source.suffix == self._ending and self._happenings:
            self._happenings.pop(0)()
        super().copy(source, target)


def test_a_backup_has_all_of_a_commit_or_nothing(site: Site, tmp_path: Path) -> None:
    site.commit(1, *TOPICS)

    def write() -> None:
        site.commit(2, *TOPICS)
        site.publish("a", 3)

    # Topics are copied one after the other: each time another one has what the ones before it lack.
    back_up(site.root, tmp_path / "copy", Meanwhile(*[write] * 3))
    site.kill()
    site.root = tmp_path / "copy"
    site.open()
    assert site.values == [[b"0", b"1"], [b"1"], [b"1"]]
    assert examine_closed(site) == []


def examine_closed(site: Site) -> list[object]:
    site.close()
    found: list[object] = list(examine(site.root).findings)
    site.open()
    return found


def test_a_backup_of_what_is_decided_has_the_end_of_it(site: Site, tmp_path: Path) -> None:
    decided(site)
    back_up(site.root, tmp_path / "copy")
    site.root = tmp_path / "copy"
    site.open()
    assert site.values == [[b"0", b"1"], [b"1"], [b"1"]]


def test_a_backup_starts_over_if_a_segment_with_a_later_commit_was_completed(site: Site, tmp_path: Path) -> None:
    site.close()
    site.options = TINY_OPTIONS
    site.open()

    def roll() -> None:
        site.commit(1, *TOPICS)
        for number in range(2, 6):
            site.publish("b", number)

    # The first topic is copied by then.
    back_up(site.root, tmp_path / "copy", Meanwhile(roll))
    site.kill()
    site.root = tmp_path / "copy"
    site.open()
    assert site.values == [[b"0", b"1"], [b"1", b"2", b"3", b"4", b"5"], [b"1"]]


def test_a_backup_starts_over_if_a_snapshot_knows_a_later_commit(site: Site, tmp_path: Path) -> None:
    def commit_and_snapshot() -> None:
        site.commit(2, "b", "c")
        with site.logs["b"].writing:
            site.logs["b"]._write_snapshot()

    back_up(site.root, tmp_path / "copy", Meanwhile(commit_and_snapshot))
    site.kill()
    site.root = tmp_path / "copy"
    site.open()
    assert site.values == [[b"0"], [b"2"], [b"2"]]
