"""A commit of several topics in a database: the connection is cut at every statement, and the outcome is found out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.core.errors import LogFailed, OutcomeUnknown, StoreUnavailable, TopicDeleted
from headrace.core.groups.group import Group
from headrace.core.publish.state import CommitKey
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import RepeatedCommit, StoreCommit
from headrace.storage.postgres.engine import PostgresStore
from headrace.storage.postgres.log.commit import INSERT_ROWS_MAX
from headrace.storage.postgres.log.log import PostgresLog
from tests.group_writes import put_group
from tests.postgres_server import PostgresServer
from tests.storage.builders import NOW_US, publish, state_of, values, values_in
from tests.storage.postgres.proxy import Proxy
from tests.storage.postgres.sites import Site, create, log_of
from tests.storage.store_commit_contract import deciding

PATIENT = "retry_seconds=60&lock_timeout_seconds=60"
IMPATIENT = "retry_seconds=0.01"
KEY = CommitKey("w", 1)
MANY = [b"%d" % number for number in range(INSERT_ROWS_MAX + 1)]


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


class Server:
    """A server with two topics of a database, and a group of the first."""

    def __init__(self, site: Site, options: str, port: int | None, records: list[TopicRecord] | None = None) -> None:
        self.site = site
        self.store: PostgresStore = site.open(options, port)
        self.records = records or [create(self.store, name) for name in ("a", "b")]
        self.logs: list[PostgresLog] = [log_of(self.store, record) for record in self.records]
        if records is None:
            put_group(self.store.catalog, self.records[0].id, Group("g"))

    def neighbour(self) -> Server:
        return Server(self.site, PATIENT, None, self.records)

    def commit(self, *second: bytes, key: CommitKey = KEY) -> None:
        """A message to the first topic, some to the second, and an offset of the group."""
        first = self.records[0]
        decisions = {first.id: deciding(values(b"x")), self.records[1].id: deciding(values(*second))}
        change = self.store.catalog.changing(first, "g", lambda row: row.raise_offsets({0: 1}))
        self.store.commit(StoreCommit(decisions, NOW_US, key, [change]))

    @property
    def content(self) -> tuple[list[bytes], list[bytes], dict[int, int]]:
        first, second = map(values_in, self.logs)
        return first, second, self.store.catalog.offsets(self.records[0].id, "g")


# What is said to the database in a commit: by the catalog, by the topics, and at the end.
WORDS = [b"FOR NO KEY UPDATE", b"all_writers", b"INTO all_consumers", b"topic_2_", b"UPDATE all_topics SET", b"COMMIT"]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_is_cut_off_anywhere_is_written_once(site: Site, proxy: Proxy, word: bytes, when: str) -> None:
    server = Server(site, PATIENT, proxy.port)
    publish(server.logs[1], values(b"0"))
    proxy.cut_at(word, "before" if when == "before" else "after")
    server.commit(b"1")
    assert proxy.has_cut.is_set()
    assert server.content == ([b"x"], [b"0", b"1"], {0: 1})
    with pytest.raises(RepeatedCommit):
        server.commit(b"2")
    publish(server.logs[0], values(b"y"))
    again = server.neighbour()
    assert again.content == ([b"x", b"y"], [b"0", b"1"], {0: 1})
    assert [state_of(log) for log in again.logs] == [state_of(log) for log in server.logs]


def test_a_large_part_that_is_cut_off_is_written_once(site: Site, proxy: Proxy) -> None:
    server = Server(site, PATIENT, proxy.port)
    proxy.cut_at(b"COPY", "before")
    server.commit(*MANY)
    assert proxy.has_cut.is_set()
    assert server.content == ([b"x"], MANY, {0: 1})


def test_a_commit_whose_answer_was_lost_is_found_although_others_committed_since(site: Site, proxy: Proxy) -> None:
    server = Server(site, PATIENT, proxy.port)
    with ThreadPoolExecutor(1) as threads:
        proxy.cut_at(b"COMMIT", "after", stays_down=True)
        committing = threads.submit(server.commit, b"1")
        assert proxy.has_cut.wait(60)
        publish(server.neighbour().logs[1], values(b"2"))
        proxy.come_back()
        committing.result(60)
    assert server.content == ([b"x"], [b"1", b"2"], {0: 1})
    publish(server.logs[1], values(b"3"))
    assert values_in(server.logs[1]) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("word", "error"), [(b"COMMIT", OutcomeUnknown), (b"all_writers", StoreUnavailable)])
def test_what_cannot_be_found_out_in_time_is_unknown(
    site: Site, proxy: Proxy, word: bytes, error: type[Exception]
) -> None:
    server = Server(site, IMPATIENT, proxy.port)
    proxy.cut_at(word, "after", stays_down=True)
    with pytest.raises(error):
        server.commit(b"1")
    proxy.come_back()
    was_there = error is OutcomeUnknown
    assert server.neighbour().content == (([b"x"], [b"1"], {0: 1}) if was_there else ([], [], {}))


def test_a_transaction_that_nobody_knows_any_more_is_unknown(
    site: Site, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(site, PATIENT, proxy.port)
    monkeypatch.setattr("headrace.storage.postgres.store_commit._transaction", lambda connection: "3")
    proxy.cut_at(b"COMMIT", "before")
    with pytest.raises(OutcomeUnknown, match="a transaction is"):
        server.commit(b"1")


def test_two_servers_make_one_commit_of_one_key(site: Site) -> None:
    server = Server(site, PATIENT, None)
    other = server.neighbour()

    def commit(mine: Server) -> bool:
        try:
            mine.commit(b"1")
        except RepeatedCommit:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(commit, [server, other])) == [False, True]
    assert server.content == other.content == ([b"x"], [b"1"], {0: 1})


def test_a_topic_that_was_deleted_elsewhere_stops_the_commit(site: Site) -> None:
    server = Server(site, PATIENT, None)
    neighbour = server.neighbour()
    neighbour.store.catalog.remove_topic(server.records[1].id)
    with pytest.raises(TopicDeleted):
        server.commit(b"1")
    assert values_in(server.logs[0]) == []
    gone = server.store.catalog.changing(server.records[1], "g", lambda row: row.raise_offsets({0: 1}))
    with pytest.raises(TopicDeleted):
        server.store.commit(StoreCommit({}, NOW_US, KEY, [gone]))
    server.logs[0].close()
    with pytest.raises(LogFailed, match="closed"):
        server.commit(b"1")


def test_an_error_of_one_statement_leaves_nothing(site: Site) -> None:
    server = Server(site, PATIENT, None)
    site.do(f"DROP TABLE topic_{server.records[1].id}_0 CASCADE")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        server.commit(b"1")
    assert values_in(server.logs[0]) == []
    assert server.store.catalog.commits.last_key("w") is None
