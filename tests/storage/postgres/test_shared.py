"""Several servers on one store: what one commits the others know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.core.errors import LogFailed, OffsetOutOfRange, StoreUnavailable, TopicDeleted, UnknownFormat
from headrace.core.publish.plan import plan_reset
from headrace.core.publish.state import Commit, CommitKey, TopicState
from headrace.core.publish.writers import one_time_writer
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.interface import Fences
from headrace.storage.open import open_catalog, open_store
from headrace.storage.postgres.engine import PostgresStore
from headrace.storage.postgres.log import topic_state
from headrace.storage.postgres.pool import Connection, ConnectionPool
from headrace.storage.postgres.sql.schema import VERSION, making_tables
from headrace.storage.tokens import TokenRecord
from tests.postgres_server import PostgresServer
from tests.storage.builders import EVERYTHING, NOW_US, batch_of, publish, state_of, values, values_in
from tests.storage.postgres.sites import Site, create, log_of, wait_until

SECOND_US = 1_000_000
PAYLOAD = DEFAULT_SETTINGS.change(deduplication="payload", deduplication_window_seconds=100)


class TestState:
    def test_commits_of_two_servers_make_one_order(self, site: Site) -> None:
        stores = [site.open(), site.open()]
        topic = create(stores[0], partitions=3, settings=PAYLOAD)
        logs = [log_of(store, topic) for store in stores]
        for number in range(12):
            rows: list[dict[str, Any]] = [
                {"value": b"a%d" % number},
                {"value": b"b%d" % number, "producer_id": f"p{number % 5}", "seqno": number},
                {"value": b"c%d" % number, "producer_id": "p", "message_group_id": f"g{number % 2}"},
            ]
            key = CommitKey(f"w{number % 3}", number)
            publish(logs[number // 2 % 2], batch_of(rows), now_us=NOW_US, settings=PAYLOAD, keys=(key,))
        for log in logs:
            log.commit(lambda state, fences: [])
        assert state_of(logs[0]) == state_of(logs[1]) == state_of(log_of(site.open(), topic))
        assert sum(len(values_in(logs[0], partition)) for partition in range(3)) == 36
        assert [values_in(logs[0], partition) for partition in range(3)] == [
            values_in(logs[1], partition) for partition in range(3)
        ]

    def test_what_was_written_through_another_server_is_a_duplicate_here(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first, settings=PAYLOAD)
        here, there = log_of(first, topic), log_of(second, topic)
        rows = batch_of([{"value": b"a", "producer_id": "p", "seqno": 1}])
        assert publish(there, rows, settings=PAYLOAD)[0].outcome.tolist() == [0]
        assert publish(here, values(b"other"), settings=PAYLOAD, keys=(CommitKey("w", 4),))[0].outcome.tolist() == [0]
        again = batch_of([{"value": b"a", "producer_id": "p", "seqno": 1}, {"value": b"a"}, {"value": b"other"}])
        assert publish(there, again, settings=PAYLOAD)[0].outcome.tolist() == [1, 2, 2]
        assert there.state.is_repeated(CommitKey("w", 4))

    def test_what_another_server_wrote_with_a_seqno_is_distinguished_from_another_message(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first)
        here, there = log_of(first, topic), log_of(second, topic)
        for seqno in (1, 2):
            publish(here, batch_of([{"value": b"%d" % seqno, "producer_id": "p", "seqno": seqno}]))
            publish(there, batch_of([{"value": b"x", "producer_id": "other", "seqno": seqno}]))
        again = batch_of([{"value": b"2", "producer_id": "p", "seqno": 2}])
        other = batch_of([{"value": b"x", "producer_id": "p", "seqno": 2}])
        for log in (here, there, log_of(site.open(), topic)):
            assert [publish(log, rows)[0].outcome.tolist() for rows in (again, other)] == [[1], [4]]
        # A server of an earlier version moves the seqno on alone.
        site.do("UPDATE topic_sources SET seqno = 3")
        later = batch_of([{"value": b"x", "producer_id": "p", "seqno": 3}])
        assert publish(log_of(site.open(), topic), later)[0].outcome.tolist() == [1]

    def test_a_source_that_another_server_reset_starts_over_here(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first)
        here, there = log_of(first, topic), log_of(second, topic)
        rows = batch_of([{"producer_id": name, "seqno": 9} for name in ("p", "q")])
        assert publish(here, rows)[0].outcome.tolist() == [0, 0]
        assert publish(there, rows)[0].outcome.tolist() == [1, 1]
        here.commit(lambda state, fences: [plan_reset(state, [("p", "")], NOW_US)])
        assert publish(there, rows)[0].outcome.tolist() == [0, 1]
        assert publish(here, rows)[0].outcome.tolist() == [1, 1]

    def test_time_rises_over_all_servers_whatever_their_clocks_say(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first)
        publish(log_of(first, topic), values(b"a"), now_us=NOW_US + SECOND_US)
        late = log_of(second, topic)
        publish(late, values(b"b"), now_us=NOW_US)
        times = [late.time_of(0, offset) for offset in (0, 1)]
        assert times == [NOW_US + SECOND_US, NOW_US + SECOND_US + 1]

    def test_nothing_is_loaded_before_it_is_needed(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        log = log_of(store, topic)
        assert log.peek() is None
        assert log.offsets().end.tolist() == [0, 0]
        assert log.bytes_stored() == 0
        assert log.seal() == 0
        assert log.peek() is None
        assert log.state.partitions == 2
        assert log.peek() is log.state

    def test_the_window_is_that_of_all_servers(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first, settings=PAYLOAD)
        here, there = log_of(first, topic), log_of(second, topic)
        assert len(here.window()) == 0
        publish(there, values(b"a", b"b"), settings=PAYLOAD)
        assert len(here.window()) == 2

    def test_partitions_that_another_server_added_are_used(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first)
        here, there = log_of(first, topic), log_of(second, topic)
        publish(here, values(b"a"))
        publish(there, values(b"b"))
        grown = type(topic)(topic.id, topic.name, topic.key, 4, topic.settings, topic.created_us)
        second.catalog.change_topic(topic, lambda _: grown)
        there.add_partitions(4)
        publish(there, values(b"c", partition=3))
        publish(here, values(b"d", partition=3))
        here.add_partitions(4)
        assert values_in(here, 3) == [b"c", b"d"]
        assert values_in(here) == [b"a", b"b"]

    def test_old_state_is_trimmed(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, limit in {"TRIM_COMMITS": 4, "WRITERS_MAX": 3, "ONE_TIME_WRITERS_MAX": 4, "SOURCES_MAX": 3}.items():
            monkeypatch.setattr(topic_state, name, limit)
        monkeypatch.setattr("headrace.core.publish.state.WRITERS_MAX", 3)
        monkeypatch.setattr("headrace.core.publish.state.ONE_TIME_WRITERS_MAX", 4)
        monkeypatch.setattr("headrace.storage.postgres.log.log.TRIM_COMMITS", 4)
        stores = [site.open(), site.open()]
        topic = create(stores[0], settings=PAYLOAD)
        log, other = (log_of(store, topic) for store in stores)
        log.commit(lambda state, fences: [])
        for number in range(9):
            rows = batch_of([{"value": b"v%d" % number, "producer_id": f"p{number}", "seqno": 1}])
            now_us = NOW_US + number * 20 * 86_400 * SECOND_US
            once = CommitKey(one_time_writer("ö", f"{number:032d}"), 1, 7).recorded()
            publish(log, rows, now_us=now_us, settings=PAYLOAD, keys=(CommitKey(f"w{number}", 1), *once))
        # The last run is that of the eighth commit, which is yet to count itself.
        assert site.ask("SELECT count(*) FROM topic_payloads") == [(2,)]
        assert site.ask("SELECT count(*) FROM topic_writers WHERE name LIKE 'w%'") == [(4,)]
        assert site.ask("SELECT count(DISTINCT commit), count(*) FROM topic_writers WHERE name NOT LIKE 'w%'") == [
            (3, 6)
        ]
        assert site.ask("SELECT count(*) FROM topic_sources") == [(4,)]
        other.commit(lambda state, fences: [])
        assert list(other.state.writers) == ["w6", "w7", "w8"]
        assert len(other.state.one_time_writers) == 4

    def test_where_there_is_nothing_to_trim_nothing_is_asked(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.storage.postgres.log.log.TRIM_COMMITS", 2)
        store = site.open()
        log = log_of(store, create(store))
        for number in range(5):
            publish(log, values(b"%d" % number))
        assert values_in(log) == [b"0", b"1", b"2", b"3", b"4"]


class TestStoreWide:
    def test_store_wide_commits_see_what_the_others_wrote(self, site: Site) -> None:
        """Many threads of two servers publish the same values to two topics: each value is written once in all."""
        stores = [site.open(), site.open()]
        settings = PAYLOAD.change(deduplication_scope="store")
        topics = [create(stores[0], name, 1, settings) for name in ("a", "b")]
        logs = [[log_of(store, topic) for topic in topics] for store in stores]
        locks = [threading.Lock() for _ in stores]

        def write(place: int) -> None:
            server = place % 2
            for number in range(12):
                log, other = logs[server][number % 2], logs[server][1 - number % 2]

                def decide(
                    state: TopicState, fences: Fences, other: Any = other, number: int = number
                ) -> Sequence[Commit]:
                    from headrace.core.publish.plan import plan

                    rows = values(b"%d" % (number // 2), partition=0)
                    commit, _ = plan(rows, state, settings, NOW_US, (), [other.window()])
                    return [commit] if commit.rows.num_rows or commit.keys else []

                with locks[server]:
                    log.commit(decide, store_wide=True)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
        written = values_in(logs[0][0]) + values_in(logs[0][1])
        assert sorted(written) == sorted(b"%d" % number for number in range(6))


class TestReading:
    def test_a_read_at_the_end_that_is_known_looks_again(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic = create(first)
        here, there = log_of(first, topic), log_of(second, topic)
        assert here.read(0, 0, 10, EVERYTHING).num_rows == 0
        publish(there, values(b"a"))
        assert here.read(0, 0, 10, EVERYTHING)["value"].to_pylist() == [b"a"]
        assert here.time_of(0, 1) is None
        publish(there, values(b"b"))
        assert here.time_of(0, 1) == NOW_US + 1
        assert here.offsets().end.tolist() == [2, 0]

    def test_large_reads_take_several_statements(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.storage.postgres.log.log.READ_MESSAGES", 3)
        store = site.open("segment_commits=2")
        log = log_of(store, create(store))
        for number in range(5):
            publish(log, values(*(b"%d" % (4 * number + row) for row in range(4))))
            # Some segments have nothing of this partition.
            for _ in range(number):
                publish(log, values(b"elsewhere", partition=1))
        assert values_in(log) == [b"%d" % number for number in range(20)]
        assert log.read(0, 2, 11, EVERYTHING).num_rows == 11
        assert log.read(0, 2, 11, 0).num_rows == 1

    def test_messages_that_somebody_deleted_are_missed(self, site: Site) -> None:
        from headrace.core.errors import Damaged

        store = site.open()
        topic = create(store)
        log = log_of(store, topic)
        publish(log, values(b"a", b"b", b"c"))
        site.do(f'DELETE FROM topic_{topic.id} WHERE "offset" = 1')
        with pytest.raises(Damaged, match="messages are missing"):
            log.read(0, 0, 10, EVERYTHING)
        with pytest.raises(Damaged):
            log.read(0, 1, 1, EVERYTHING)
        assert log.read(0, 2, 1, EVERYTHING)["value"].to_pylist() == [b"c"]


class TestDeletion:
    def test_a_topic_that_another_server_deleted_is_an_error(self, site: Site) -> None:
        first, second = site.open(), site.open()
        topic, neighbour = create(first), create(first, "neighbour")
        log, other = log_of(first, topic), log_of(first, neighbour)
        publish(log, values(b"a"))
        publish(other, values(b"b"))
        second.catalog.remove_topic(topic.id)
        for use in (
            lambda: publish(log, values(b"b")),
            log.offsets,
            lambda: log.read(0, 1, 1, EVERYTHING),
            lambda: log.first_at(0, 0),
        ):
            with pytest.raises(TopicDeleted):
                use()
        second.delete_log(topic.id)
        with pytest.raises(TopicDeleted):
            log.read(0, 0, 1, EVERYTHING)
        assert values_in(other) == [b"b"]
        left = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname ~ %s"
        assert site.ask(left, [f"^topic_{topic.id}(_|$)"]) == [(0,)]

    def test_what_a_deletion_left_behind_goes_at_the_next_opening(self, site: Site) -> None:
        store = site.open()
        doomed, kept = create(store), create(store, "kept")
        publish(log_of(store, kept), values(b"a"))
        store.catalog.remove_topic(doomed.id)
        site.open()
        assert site.ask("SELECT topicid FROM topic_segments") == [(kept.id,)]
        assert values_in(log_of(store, kept)) == [b"a"]

    def test_what_a_deletion_left_behind_and_somebody_reads_keeps_no_server_from_starting(
        self, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = site.open()
        doomed = create(store)
        with site.plain() as reader, reader.transaction():
            reader.execute(f"SELECT count(*) FROM topic_{doomed.id}")
            store.catalog.remove_topic(doomed.id)
            assert site.open().catalog.topics() == []
            assert "cannot clean up the deleted topic" in caplog.text
        assert site.ask("SELECT topicid FROM topic_segments") == [(doomed.id,)]
        site.open()
        assert site.ask("SELECT topicid FROM topic_segments") == []

    def test_a_closed_log_accepts_nothing(self, site: Site) -> None:
        store = site.open()
        log = log_of(store, create(store))
        log.close()
        with pytest.raises(LogFailed, match="closed"):
            publish(log, values(b"a"))


class TestOpening:
    def test_many_servers_may_open_a_new_store_at_once(self, postgres: PostgresServer) -> None:
        url = postgres.fresh_url()
        with ThreadPoolExecutor(6) as threads, ExitStack() as closing:
            for store in threads.map(lambda _: open_store(url), range(6)):
                closing.callback(store.close)
                assert store.catalog.topics() == []

    def test_a_newer_version_is_refused(self, site: Site) -> None:
        site.open()
        site.do(f"UPDATE headrace_postgres SET version = {VERSION + 1}")
        with pytest.raises(UnknownFormat) as caught:
            site.open()
        assert (caught.value.version, caught.value.known) == (VERSION + 1, VERSION)

    def test_a_schema_that_exists_needs_no_right_to_make_it(self, site: Site) -> None:
        role = site.schema + "_role"
        site.do(f"CREATE SCHEMA {site.schema}")
        site.do(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        site.do(f"GRANT ALL ON SCHEMA {site.schema} TO {role}")
        url = f"postgresql://{role}:x@127.0.0.1:{site.server.port}/postgres?schema={site.schema}"
        store = site.opened(url)
        topic = create(store)
        publish(log_of(store, topic), values(b"a"))
        assert values_in(log_of(store, topic)) == [b"a"]
        with pytest.raises(StoreUnavailable, match="permission denied"):
            site.opened(url + "_other")

    def test_stages_and_catalog_are_closed_with_the_store(self, site: Site) -> None:
        from headrace.core.errors import Closed

        store = site.open()
        store.close()
        with pytest.raises(Closed):
            store.stages.read(1, "s")
        store.signals.announce("nobody hears it")

    def test_connections_are_durable_whatever_the_role_says(self, site: Site) -> None:
        store = site.open()
        site.do("ALTER ROLE postgres SET synchronous_commit = off")
        try:
            shown = store._connections.connect()
            assert shown.execute("SHOW synchronous_commit").fetchone() == ("on",)
            shown.close()
        finally:
            site.do("ALTER ROLE postgres RESET synchronous_commit")

    def test_the_catalog_alone_can_be_opened_for_tokens(self, site: Site) -> None:
        with pytest.raises(StoreUnavailable, match="there is no store here"):
            open_catalog(site.url)
        assert site.open().catalog.topics() == []
        catalog = open_catalog(site.url)
        assert catalog.tokens.all() == []
        catalog.close()

    def test_the_catalog_alone_waits_for_nobody_who_makes_tables(self, site: Site) -> None:
        store = site.open()
        with store._connections.connect() as holder, making_tables(holder, site.url):
            catalog = open_catalog(site.url)
            catalog.tokens.add(TokenRecord("a", "ann", "hash", (), 1))
            catalog.close()
        assert [token.name for token in store.catalog.tokens.all()] == ["ann"]

    def test_the_catalog_alone_upgrades_nothing(self, site: Site) -> None:
        store = site.open()
        with store._connections.connect() as connection:
            connection.execute("UPDATE headrace_catalog SET version = 1")
            with pytest.raises(StoreUnavailable, match="earlier version"):
                open_catalog(site.url)
            connection.execute("ALTER TABLE all_tokens DROP COLUMN expires_us, DROP COLUMN used_us")
            site.open()
            open_catalog(site.url).close()
            connection.execute("UPDATE headrace_catalog SET version = 1000")
            with pytest.raises(UnknownFormat):
                open_catalog(site.url)

    def test_a_database_that_does_not_sync_is_named(self, site: Site, caplog: pytest.LogCaptureFixture) -> None:
        site.open()
        assert "fsync" not in caplog.text
        try:
            site.do("ALTER SYSTEM SET fsync = off")
            site.do("SELECT pg_reload_conf()")
            wait_until(lambda: site.ask("SHOW fsync") == [("off",)], "the new setting")
            site.open()
            assert "runs with fsync off" in caplog.text
        finally:
            site.do("ALTER SYSTEM RESET fsync")
            site.do("SELECT pg_reload_conf()")
            wait_until(lambda: site.ask("SHOW fsync") == [("on",)], "the old setting")


class TestSignals:
    def test_words_reach_every_server(self, site: Site) -> None:
        first, second = site.open(), site.open()
        heard: list[list[str | None]] = [[], []]
        for store, words in zip((first, second), heard, strict=True):
            store.signals.listen(words.append)
        wait_until(lambda: all(None in words for words in heard), "the first word")
        topic = create(first)
        publish(log_of(first, topic), values(b"a"))
        second.signals.announce("it's 'quoted' 🛞")
        expected = {f"topic:{topic.id}", "it's 'quoted' 🛞"}
        wait_until(lambda: all(expected <= set(words) for words in heard), "a word")

    def test_words_stay_in_their_schema(self, site: Site, postgres: PostgresServer) -> None:
        store, stranger = site.open(), site.opened(postgres.fresh_url())
        heard: list[str | None] = []
        store.signals.listen(heard.append)
        wait_until(lambda: None in heard, "the first word")
        stranger.signals.announce("far")
        stranger.signals.close()
        store.signals.announce("near")
        wait_until(lambda: "near" in heard, "a word")
        assert "far" not in heard

    def test_a_listener_that_fails_continues(self, site: Site, caplog: pytest.LogCaptureFixture) -> None:
        store = site.open()
        heard: list[str | None] = []

        def hear(word: str | None) -> None:
            heard.append(word)
            raise ValueError("deaf")

        store.signals.listen(hear)
        wait_until(lambda: None in heard, "the first word")
        store.signals.announce("a")
        wait_until(lambda: "a" in heard, "a word")
        assert "cannot apply a notification" in caplog.text

    def test_after_a_lost_connection_anything_may_have_happened(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headrace.storage.postgres.notify.RECONNECT_SECONDS", 0.01)
        store = site.open()
        heard: list[str | None] = []
        store.signals.listen(heard.append)
        wait_until(lambda: None in heard, "the first word")
        store.signals.announce("before")
        wait_until(lambda: "before" in heard, "a word")
        terminate_all(site)
        wait_until(lambda: heard.count(None) >= 2, "the second connection")

        def says(word: str) -> bool:
            store.signals.announce(word)
            return word in heard

        wait_until(lambda: says("after"), "a word after it")


def terminate_all(site: Site) -> None:
    """Cut every connection of Headrace to this schema's servers, from inside the database."""
    site.do(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'headrace' AND pid <> pg_backend_pid()"
    )


def test_connections_that_were_terminated_are_replaced(site: Site) -> None:
    store = site.open()
    topic = create(store)
    log = log_of(store, topic)
    publish(log, values(b"a"))
    for number in range(3):
        terminate_all(site)
        publish(log, values(b"%d" % number))
        terminate_all(site)
        assert log.read(0, number + 1, 1, EVERYTHING)["value"].to_pylist() == [b"%d" % number]
    assert isinstance(store, PostgresStore)
    assert [record.id for record in store.catalog.topics()] == [topic.id]


def test_a_look_that_a_deletion_overtook_brings_nothing_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store = site.open()
    topic = create(store)
    log = log_of(store, topic)
    publish(log, values(b"0", b"1", b"2"))
    look = ConnectionPool.read

    def overtaken(pool: ConnectionPool, work: Callable[[Connection], Any]) -> Any:
        found = look(pool, work)
        log.delete_before(store.catalog.delete_before(topic, {0: 2}).deleted_before)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ConnectionPool, "read", overtaken)
        assert log.offsets().start.tolist() == [0, 0], "it was looked up before"
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1, EVERYTHING, EVERYTHING)
    assert values_in(log) == [b"2"]
