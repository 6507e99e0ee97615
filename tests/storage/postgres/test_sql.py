"""What SQL users see and may do: tables and views named safely, and publishing in their own transactions."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.hashing import partition_of
from headrace.core.settings import DEFAULT_SETTINGS
from headrace.storage.postgres.sql.schema import is_viewable
from tests.storage.builders import EVERYTHING, NOW_US, batch_of, publish, state_of, values, values_in
from tests.storage.postgres.sites import Site, create, log_of, wait_until

REFUSALS = (psycopg.errors.RaiseException, psycopg.errors.CharacterNotInRepertoire)


class TestPublishing:
    def test_it_commits_with_the_transaction_of_its_caller(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        log = log_of(store, topic)
        publish(log, values(b"before"))
        with site.plain() as user:
            user.execute("CREATE TABLE sales (id int)")
            with user.transaction():
                user.execute("INSERT INTO sales VALUES (1)")
                user.execute("SELECT headrace_publish('Orders', NULL::bytea, 'one'::bytea)")
                assert log.offsets().end.sum() == 1
            with pytest.raises(ZeroDivisionError), user.transaction():
                user.execute("SELECT headrace_publish('orders', 'k', 'never')")
                raise ZeroDivisionError
        assert log.offsets().end.sum() == 2
        publish(log, values(b"after"))
        found = values_in(log) + values_in(log, 1)
        assert sorted(found) == [b"after", b"before", b"one"]
        assert state_of(log) == state_of(log_of(site.open(), topic))

    def test_a_message_is_as_it_was_given(self, site: Site) -> None:
        store = site.open()
        log = log_of(store, create(store, partitions=1))
        query = "SELECT * FROM headrace_publish('orders', %s, %s, %s)"
        with site.plain() as user:
            attributes = [b"a", b"1", b"a", b"\0\xff"]
            assert user.execute(query, [b"k\0", b"\0\xff", attributes]).fetchone() == (0, 0)
            assert user.execute(query, [b"", b"", []]).fetchone() == (0, 1)
            assert user.execute("SELECT * FROM headrace_publish('orders', 'ä', 'ö')").fetchone() == (0, 2)
        rows = log.read(0, 0, 10, EVERYTHING).to_pylist()
        assert [(row["key"], row["value"]) for row in rows] == [
            (b"k\0", b"\0\xff"),
            (b"", b""),
            ("ä".encode(), "ö".encode()),
        ]
        assert rows[0]["attributes"] == [("a", b"1"), ("a", b"\0\xff")]
        assert rows[1]["attributes"] == []
        assert rows[2]["attributes"] is None
        assert rows[0]["timestamp"] < rows[1]["timestamp"] < rows[2]["timestamp"]

    def test_keys_go_where_servers_put_them_and_the_rest_takes_turns(self, site: Site) -> None:
        store = site.open()
        log = log_of(store, create(store, partitions=3))
        rows: list[dict[str, Any]] = [{"value": b"%d" % number} for number in range(2)]
        publish(log, batch_of(rows, 3))
        with site.plain() as user:
            turns = [
                user.execute("SELECT partition FROM headrace_publish('orders', NULL, 'x')").fetchone() for _ in range(4)
            ]
            assert turns == [(2,), (0,), (1,), (2,)]
        receipts = publish(log, batch_of([{"value": b"next"}], 3))[0]
        assert receipts.partition.tolist() == [0]

    def test_fnv_is_the_same_in_sql(self, site: Site) -> None:
        site.open()
        with site.plain() as user:

            @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
            @given(st.binary(min_size=0, max_size=60), st.integers(1, 10_000))
            def compare(key: bytes, partitions: int) -> None:
                found = user.execute("SELECT headrace_partition(%s, %s)", [key, partitions]).fetchone()
                assert found == (partition_of(key, partitions),)

            compare()

    def test_readers_are_woken(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        heard: list[str | None] = []
        store.signals.listen(heard.append)
        wait_until(lambda: None in heard, "the first word")
        with site.plain() as user:
            user.execute("SET search_path = public")
            user.execute(f"SELECT {site.schema}.headrace_publish('orders', 'k', 'v')")
        wait_until(lambda: f"topic:{topic.id}" in heard, "the word of the publish")

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            ("headrace_publish('nowhere', 'k', 'v')", "topic 'nowhere' does not exist"),
            ("headrace_publish('orders', 'k', NULL::text)", "value is null"),
            ("headrace_publish('orders', 'k', repeat('x', 11))", "takes at most 10"),
            ("headrace_publish('orders', NULL, 'v'::bytea, ARRAY['a'::bytea])", "names and values in turn"),
            ("headrace_publish('orders', NULL, 'v'::bytea, ARRAY['a'::bytea, NULL])", "none of them null"),
            ("headrace_publish('orders', NULL, '', array_fill('a'::bytea, ARRAY[2002]))", "1001 attributes"),
            (r"headrace_publish('orders', NULL, '', ARRAY['\xff'::bytea, ''])", "invalid byte sequence"),
            ("headrace_publish('once', 'k', 'v')", "drops repeated payloads"),
            ("headrace_publish('packed', 'k', 'v')", "takes no raw values"),
        ],
    )
    def test_what_is_refused(self, site: Site, call: str, reason: str) -> None:
        store = site.open()
        create(store, settings=DEFAULT_SETTINGS.change(message_bytes_max=10))
        create(store, "once", settings=DEFAULT_SETTINGS.change(deduplication="payload"))
        create(store, "packed", settings=DEFAULT_SETTINGS.change(codecs=("zstd",)))
        with site.plain() as user, pytest.raises(REFUSALS, match=reason):
            user.execute(f"SELECT {call}")
        assert site.ask("SELECT sum(tailid) FROM all_topics") == [(0,)]


class TestReading:
    def test_a_topic_can_be_read_under_its_name(self, site: Site) -> None:
        store = site.open()
        log = log_of(store, create(store, "My Orders"))
        rows: list[dict[str, Any]] = [
            {
                "value": b"plain",
                "key": b"k",
                "attributes": [("a", b"1")],
                "producer_id": "p",
                "seqno": 3,
                "codec": "raw",
            },
            {"value": b"\xff\0", "attributes": []},
        ]
        publish(log, batch_of([{**row, "partition": 0} for row in rows]))
        query = """SELECT partition, messageid, extract(epoch FROM "timestamp") * 1000000 = %s, message, key,
            attributes, codec, created_at, producer_id, message_group_id, seqno, value
            FROM "my orders" ORDER BY "offset" """
        assert site.ask(query, [NOW_US]) == [
            (0, 0, True, "plain", "k", [["a", "1"]], "raw", None, "p", None, 3, b"plain"),
            (0, 1, True, "\\377\\000", None, [], None, None, None, None, None, b"\xff\0"),
        ]
        assert site.ask("SELECT topicname, tailid FROM all_topics") == [("My Orders", 2)]

    @pytest.mark.parametrize(
        "name", ["all_topics", "topic_1", "topic_1_1", "headrace_publish", "pg_class", "x" * 64, "ä" * 32]
    )
    def test_names_that_could_stand_in_the_way_get_no_view(self, site: Site, name: str) -> None:
        assert not is_viewable(name)
        store = site.open()
        log = log_of(store, create(store, name))
        publish(log, values(b"a"))
        assert values_in(log) == [b"a"]
        assert site.ask("SELECT count(*) FROM pg_views WHERE schemaname = current_schema()") == [(0,)]

    def test_a_name_that_is_taken_stays_with_whom_it_belongs_to(self, site: Site) -> None:
        store = site.open()
        site.do('CREATE TABLE "it\'s ""mine""" (x int)')
        log = log_of(store, create(store, 'It\'s "mine"'))
        publish(log, values(b"a"))
        assert site.ask('SELECT * FROM "it\'s ""mine"""') == []
        assert values_in(log) == [b"a"]
