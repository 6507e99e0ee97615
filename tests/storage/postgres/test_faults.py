"""The database fails in every way it can: a clear error or a retry that ends, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

import psycopg
import pytest
from psycopg import errors

from headrace.core.errors import Closed, DiskFull, OutcomeUnknown, StoreUnavailable
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.topics.settings import TopicSettings
from headrace.storage.interface import Fences, TopicLog
from headrace.storage.postgres.engine import PostgresStore
from headrace.storage.postgres.errors import failure_of, is_lost
from headrace.storage.postgres.log.commit import INSERT_ROWS_MAX
from headrace.storage.postgres.options import parse
from headrace.storage.postgres.pool import ConnectionPool
from tests.postgres_server import PostgresServer
from tests.storage.builders import EVERYTHING, NOW_US, commit_of, publish, state_of, values, values_in
from tests.storage.postgres.proxy import Proxy, error_message
from tests.storage.postgres.sites import Site, create, log_of, wait_until

# Long enough that a slow machine does not run out of it where a retry is to succeed.
PATIENT = "retry_seconds=60&lock_timeout_seconds=60"
IMPATIENT = "retry_seconds=0.01"


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


def cut_off_and_overtaken(
    proxy: Proxy, threads: ThreadPoolExecutor, log: TopicLog, theirs: TopicLog
) -> Future[list[Receipts]]:
    """A commit of b that had no answer while another server committed c, behind a; the proxy is down."""
    publish(log, values(b"a"))
    proxy.cut_at(b"COMMIT", "after", stays_down=True)
    publishing = threads.submit(publish, log, values(b"b"))
    assert proxy.has_cut.wait(60)
    publish(theirs, values(b"c"))
    return publishing


@contextmanager
def _room_taken(store: PostgresStore) -> Iterator[None]:
    """While others have the only connection."""
    room = store._connections._room
    assert room.acquire(timeout=60)
    try:
        yield
    finally:
        room.release()


class TestLostConnections:
    @pytest.mark.parametrize("word", [b"FOR NO KEY UPDATE", b"INSERT INTO", b"UPDATE all_topics SET", b"COMMIT"])
    def test_a_commit_that_was_cut_off_before_the_database_had_it_is_written_once(
        self, site: Site, proxy: Proxy, word: bytes
    ) -> None:
        store = site.open(PATIENT, proxy.port)
        log = log_of(store, create(store))
        publish(log, values(b"a"))
        proxy.cut_at(word, "before")
        receipts = publish(log, values(b"b"), keys=(CommitKey("w", 1),))
        assert proxy.has_cut.is_set()
        assert receipts[0].offset.tolist() == [1]
        assert values_in(log) == [b"a", b"b"]
        publish(log, values(b"c"))
        assert state_of(log) == state_of(log_of(site.open(), store.catalog.topics()[0]))

    @pytest.mark.parametrize("word", [b"COPY", b"UPDATE all_topics SET"])
    def test_a_large_commit_that_was_cut_off_is_written_once(self, site: Site, proxy: Proxy, word: bytes) -> None:
        store = site.open(PATIENT, proxy.port)
        log = log_of(store, create(store))
        publish(log, values(b"a"))
        proxy.cut_at(word, "before")
        many = [b"%d" % number for number in range(INSERT_ROWS_MAX + 1)]
        publish(log, values(*many))
        assert proxy.has_cut.is_set()
        assert values_in(log) == [b"a", *many]
        assert state_of(log) == state_of(log_of(site.open(), store.catalog.topics()[0]))

    def test_a_commit_whose_answer_was_lost_is_found_and_not_written_again(self, site: Site, proxy: Proxy) -> None:
        store = site.open(PATIENT, proxy.port)
        log = log_of(store, create(store))
        publish(log, values(b"a"))
        proxy.cut_at(b"COMMIT", "after")
        receipts = publish(log, values(b"b", b"c", partition=None), values(b"d"), keys=(CommitKey("w", 1),))
        assert proxy.has_cut.is_set()
        assert len(receipts) == 2
        publish(log, values(b"e"))
        assert sorted(values_in(log) + values_in(log, 1)) == [b"a", b"b", b"c", b"d", b"e"]
        assert state_of(log) == state_of(log_of(site.open(), store.catalog.topics()[0]))

    def test_a_commit_whose_answer_was_lost_is_found_although_others_committed_since(
        self, site: Site, proxy: Proxy
    ) -> None:
        store, other = site.open(PATIENT, proxy.port), site.open()
        topic = create(other)
        log, theirs = log_of(store, topic), log_of(other, topic)
        with ThreadPoolExecutor(1) as threads:
            publishing = cut_off_and_overtaken(proxy, threads, log, theirs)
            proxy.come_back()
            assert publishing.result(60)[0].offset.tolist() == [1]
        publish(log, values(b"d"))
        assert values_in(log) == [b"a", b"b", b"c", b"d"]

    def test_a_commit_that_others_overtook_is_decided_again(self, site: Site, proxy: Proxy) -> None:
        for word in (b"FOR NO KEY UPDATE", b"COMMIT"):
            store, other = site.open(PATIENT, proxy.port), site.open()
            topic = create(other, word.decode())
            log, theirs = log_of(store, topic), log_of(other, topic)
            publish(log, values(b"a"))
            proxy.cut_at(word, "before", stays_down=True)
            with ThreadPoolExecutor(1) as threads:
                publishing = threads.submit(publish, log, values(b"b"))
                assert proxy.has_cut.wait(60)
                publish(theirs, values(b"c"))
                proxy.come_back()
                assert publishing.result(60)[0].offset.tolist() == [2]
            assert values_in(log) == [b"a", b"c", b"b"]
            assert state_of(log) == state_of(log_of(site.open(), topic))

    def test_keys_alone_that_others_overtook_leave_it_open(self, site: Site, proxy: Proxy) -> None:
        store, other = site.open(PATIENT, proxy.port), site.open()
        topic = create(other)
        log, theirs = log_of(store, topic), log_of(other, topic)
        publish(log, values(b"a"))
        proxy.cut_at(b"COMMIT", "after", stays_down=True)
        with ThreadPoolExecutor(1) as threads:
            publishing = threads.submit(publish, log, values(), keys=(CommitKey("w", 1),))
            assert proxy.has_cut.wait(60)
            publish(theirs, values(b"c"))
            proxy.come_back()
            with pytest.raises(OutcomeUnknown, match="no trace"):
                publishing.result(60)
        log.commit(lambda state, fences: [])
        assert log.state.is_repeated(CommitKey("w", 1))

    def test_an_outcome_that_cannot_be_found_out_in_time_is_unknown(self, site: Site, proxy: Proxy) -> None:
        store = site.open(IMPATIENT, proxy.port)
        topic = create(store)
        log = log_of(store, topic)
        publish(log, values(b"a"))
        proxy.cut_at(b"COMMIT", "after", stays_down=True)
        with pytest.raises(OutcomeUnknown, match="no answer to COMMIT"):
            publish(log, values(b"b"))
        proxy.come_back()
        publish(log, values(b"c"))
        assert values_in(log) == [b"a", b"b", b"c"]

    def test_an_outcome_is_unknown_although_no_connection_is_free(self, site: Site, proxy: Proxy) -> None:
        store = site.open("connections=1&retry_seconds=60&lock_timeout_seconds=0.05", proxy.port)
        log = log_of(store, create(store))
        publish(log, values(b"a"))
        proxy.cut_at(b"COMMIT", "after", stays_down=True)
        with ThreadPoolExecutor(1) as threads:
            publishing = threads.submit(publish, log, values(b"b"))
            assert proxy.has_cut.wait(60)
            with _room_taken(store), pytest.raises(OutcomeUnknown, match="all 1 connections are in use"):
                publishing.result(60)
        proxy.come_back()
        assert values_in(log) == [b"a", b"b"]

    @pytest.mark.parametrize(
        ("severity", "code"), [(b"FATAL", b"08P01"), (b"PANIC", b"58030"), (b"PANIC", b"53100"), (b"FATAL", b"57P01")]
    )
    def test_a_commit_that_was_answered_by_the_end_of_the_connection_is_found(
        self, site: Site, proxy: Proxy, severity: bytes, code: bytes
    ) -> None:
        """As a pooler says it whose connection broke, and a database that fails in the middle."""
        store = site.open(PATIENT, proxy.port)
        log = log_of(store, create(store))
        publish(log, values(b"a"))
        proxy.cut_at(b"COMMIT", "after", farewell=error_message(severity, code, b"it is over"))
        publish(log, values(b"b"))
        assert proxy.has_cut.is_set()
        assert values_in(log) == [b"a", b"b"]

    def test_what_was_found_and_then_lost_again_is_not_called_unwritten(self, site: Site, proxy: Proxy) -> None:
        store, other = site.open("retry_seconds=1", proxy.port), site.open("segment_commits=1")
        topic = create(other)
        log, theirs = log_of(store, topic), log_of(other, topic)
        with ThreadPoolExecutor(1) as threads:
            # The other begins a segment, of which the first server has yet to hear.
            publishing = cut_off_and_overtaken(proxy, threads, log, theirs)
            proxy.cut_at(b"FROM topic_segments", "before", stays_down=True)
            proxy.come_back()
            with pytest.raises(OutcomeUnknown, match="COMMIT"):
                publishing.result(60)
        proxy.come_back()
        assert values_in(theirs) == [b"a", b"b", b"c"]

    def test_a_commit_that_could_not_be_applied_in_memory_is_loaded_from_the_database(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = site.open()
        log = log_of(store, create(store))
        key = CommitKey("w", 0)
        kept: list[object] = []

        def add(window: object, payloads: object) -> None:
            kept.append(window)
            # The first is that of the draft that the commit is planned on.
            if len(kept) > 1:
                raise MemoryError

        with monkeypatch.context() as broken:
            broken.setattr(PayloadWindow, "add", add)
            with pytest.raises(OutcomeUnknown, match="after COMMIT: MemoryError"):
                publish(log, values(b"a"), settings=TopicSettings(deduplication="payload"), keys=(key,))
        assert log.state.is_repeated(key)
        publish(log, values(b"b"))
        assert values_in(log) == [b"a", b"b"]

    def test_a_look_that_lost_its_answer_is_no_failure(self, site: Site, proxy: Proxy) -> None:
        store, other = site.open(PATIENT, proxy.port), site.open()
        topic = create(other)
        log = log_of(store, topic)
        looked: list[int] = []
        proxy.cut_at(b"COMMIT", "after")
        log.commit(lambda state, fences: looked.append(state.next_number) or [])  # type: ignore[func-returns-value]
        assert looked == [0, 0]

    def test_a_commit_is_decided_again_although_others_only_opened_a_producer(self, site: Site, proxy: Proxy) -> None:
        store, other = site.open(PATIENT, proxy.port), site.open()
        topic = create(other)
        log, theirs = log_of(store, topic), log_of(other, topic)
        source = ("p", "p")
        epochs: list[dict[tuple[str, str], int]] = []

        def open_producer(state: TopicState, fences: Fences) -> list[Commit]:
            fences.put(source, 7)
            return []

        def decide(state: TopicState, fences: Fences) -> list[Commit]:
            epochs.append(dict(fences.epochs([source])))
            return commit_of([values(b"a")], state)[0]

        proxy.cut_at(b"INSERT INTO", "before", stays_down=True)
        with ThreadPoolExecutor(1) as threads:
            publishing = threads.submit(log.commit, decide)
            assert proxy.has_cut.wait(60)
            theirs.commit(open_producer)
            proxy.come_back()
            publishing.result(60)
        assert [seen.get(source, 0) for seen in epochs] == [0, 7]
        assert values_in(log) == [b"a"]

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_rows_whose_answer_was_lost_are_staged_once(
        self, site: Site, proxy: Proxy, when: Literal["before", "after"]
    ) -> None:
        store = site.open(PATIENT, proxy.port)
        topic = create(store)
        proxy.cut_at(b"COMMIT", when)
        assert store.stages.write(topic.id, "s", values(b"a", b"b"), NOW_US) == 2
        assert proxy.has_cut.is_set()
        assert store.stages.write(topic.id, "s", values(b"c"), NOW_US) == 3
        staged = store.stages.read(topic.id, "s")
        assert staged is not None
        assert [value for piece in staged for value in piece.rows.column("value").to_pylist()] == [b"a", b"b", b"c"]

    def test_a_server_that_is_down_is_a_clear_error_in_the_end(self, site: Site, proxy: Proxy) -> None:
        store = site.open(IMPATIENT, proxy.port)
        topic = create(store)
        log = log_of(store, topic)
        publish(log, values(b"a"))
        proxy.cut_at(b"FOR NO KEY UPDATE", "before", stays_down=True)
        with pytest.raises(StoreUnavailable):
            publish(log, values(b"b"))
        with pytest.raises(StoreUnavailable):
            log.offsets()
        with pytest.raises(StoreUnavailable):
            log.read(0, 0, 1, EVERYTHING)
        proxy.come_back()
        publish(log, values(b"c"))
        assert values_in(log) == [b"a", b"c"]


class TestHeldLocks:
    def test_a_session_that_idles_in_its_transaction_makes_publishers_fail_in_time(self, site: Site) -> None:
        topic = create(site.open())
        log = log_of(site.open("lock_timeout_seconds=0.05"), topic)
        publish(log, values(b"a"))
        with site.plain() as idle, idle.transaction():
            idle.execute("SELECT 1 FROM all_topics FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="idle in transaction"):
                publish(log, values(b"b"))
            assert values_in(log) == [b"a"]
            assert log.bytes_stored() > 0
        publish(log, values(b"b"))
        assert values_in(log) == [b"a", b"b"]

    def test_a_statement_that_is_cancelled_is_a_clear_error(self, site: Site) -> None:
        """As the database itself does after statement_timeout."""
        store = site.open(PATIENT)
        log = log_of(store, create(store))
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'headrace'"
        with site.plain() as idle, idle.transaction(), ThreadPoolExecutor(1) as threads:
            idle.execute("SELECT 1 FROM all_topics FOR UPDATE")
            publishing = threads.submit(publish, log, values(b"a"))
            wait_until(lambda: bool(site.ask(waiting)), "the publisher")
            site.ask("SELECT pg_cancel_backend(%s)", list(site.ask(waiting)[0]))
            with pytest.raises(StoreUnavailable, match="took too long"):
                publishing.result(60)
        assert values_in(log) == []

    def test_nobody_waits_for_a_connection_for_ever(self, site: Site) -> None:
        topic = create(site.open())
        store = site.open("connections=1&lock_timeout_seconds=0.05")
        log, other = log_of(store, topic), log_of(store, topic)
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            def decide(state: object, fences: object) -> list[object]:
                # The thread that has the only connection may ask again.
                assert other.offsets().end.tolist() == [0, 0]
                entered.set()
                assert leave.wait(60)
                return []

            log.commit(decide)  # type: ignore[arg-type]

        with ThreadPoolExecutor(1) as threads:
            holding = threads.submit(hold)
            try:
                assert entered.wait(60)
                with pytest.raises(StoreUnavailable, match="all 1 connections are in use"):
                    other.offsets()
            finally:
                leave.set()
            holding.result(60)
        assert other.offsets().end.tolist() == [0, 0]


class TestReadOnly:
    def test_a_read_only_database_can_be_read(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        log = log_of(store, topic)
        publish(log, values(b"a"))
        reading = site.open("options=-c%20default_transaction_read_only%3Don")
        log = log_of(reading, topic)
        assert values_in(log) == [b"a"]
        with pytest.raises(StoreUnavailable, match="read-only"):
            publish(log, values(b"b"))

    def test_what_a_full_disk_means(self, site: Site) -> None:
        address, _ = parse("postgresql://host/db")
        error = failure_of(errors.DiskFull("no space left"), address, "Orders")
        assert isinstance(error, DiskFull)
        assert (error.topic, error.reason) == ("Orders", "no space left")

    def test_a_full_disk_is_named_by_the_catalog_too_unless_an_earlier_attempt_may_count(self, site: Site) -> None:
        transactions = site.open().catalog._transactions
        full = "DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$"
        with pytest.raises(DiskFull, match=r"the store could not be written .*no space left"):
            transactions.do(lambda connection: connection.exec_driver_sql(full))
        steps = ["SELECT pg_terminate_backend(pg_backend_pid())", full]
        with pytest.raises(StoreUnavailable, match="no space left"):
            transactions.do(lambda connection: connection.exec_driver_sql(steps.pop(0)))
        assert steps == []


class TestConnections:
    def test_what_is_worth_another_try(self) -> None:
        assert is_lost(psycopg.OperationalError("server closed the connection unexpectedly"))
        assert is_lost(errors.AdminShutdown())
        assert not is_lost(errors.DiskFull())
        assert not is_lost(errors.UniqueViolation())

    def test_a_nested_failure_is_not_retried_inside(self, site: Site, proxy: Proxy) -> None:
        store = site.open(PATIENT, proxy.port)
        topic = create(store)
        log, other = log_of(store, topic), log_of(store, topic)

        def decide(state: object, fences: object) -> list[object]:
            proxy.cut()
            other.offsets()
            return []

        with pytest.raises(StoreUnavailable):
            log.commit(decide)  # type: ignore[arg-type]
        assert log.offsets().end.tolist() == [0, 0]

    def test_a_connection_that_is_in_use_at_the_end_is_closed_when_it_comes_back(
        self, postgres: PostgresServer
    ) -> None:
        connections = ConnectionPool(*parse(postgres.url()))
        with connections.transact() as connection:
            connections.close()
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.closed
        with pytest.raises(Closed), connections.transact():
            pass

    def test_options_of_the_url_come_first(self, postgres: PostgresServer) -> None:
        url = postgres.url(options="schema=a%20b%5Cc%22d&options=-c%20work_mem%3D5MB")
        connection = ConnectionPool(*parse(url)).connect()
        with connection:
            assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
            assert connection.execute("SHOW search_path").fetchone() == ('"a b\\c""d"',)
            assert connection.execute("SHOW lock_timeout").fetchone() == ("10s",)

    def test_a_database_that_isolates_more_is_used_as_others_are(self, site: Site) -> None:
        options = "options=-c%20default_transaction_isolation%3Dserializable"
        store, other = site.open(options), site.open(options)
        topic = create(store)
        log, theirs = log_of(store, topic), log_of(other, topic)
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'headrace'"
        with ThreadPoolExecutor(1) as threads:

            def decide(state: TopicState, fences: Fences) -> list[Commit]:
                later.append(threads.submit(publish, theirs, values(b"b")))
                wait_until(lambda: bool(site.ask(waiting)), "the other publisher")
                return commit_of([values(b"a")], state)[0]

            later: list[Future[list[Receipts]]] = []
            log.commit(decide)
            assert later[0].result(60)[0].offset.tolist() == [1]
        assert values_in(log) == [b"a", b"b"]


def test_a_killed_database_loses_nothing_that_was_acknowledged() -> None:
    server = PostgresServer()
    try:
        from headrace.storage.open import open_store

        store = open_store(server.fresh_url(PATIENT))
        topic = create(store)  # type: ignore[arg-type]
        log = store.open_log(topic, NOW_US)
        acknowledged: list[bytes] = []
        enough = threading.Event()

        def write() -> None:
            for number in range(60):
                publish(log, values(b"%d" % number))
                acknowledged.append(b"%d" % number)
                if number == 20:
                    enough.set()

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            try:
                assert enough.wait(60)
            finally:
                server.kill()
                server.start()
            writing.result(120)
        wait_until(lambda: len(acknowledged) == 60, "the last message")
        assert values_in(log) == acknowledged
        assert log.read(0, 59, 10, EVERYTHING).num_rows == 1
        store.close()
    finally:
        server.stop()
