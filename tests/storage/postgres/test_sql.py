"""What SQL users see and may do: tables and views named safely, and publishing in their own transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.hashes.columns import partition_of
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.postgres.sql.schema import VERSION, is_viewable
from tests.postgres_server import PASSWORD
from tests.storage.builders import EVERYTHING, NOW_US, batch_of, publish, state_of, values, values_in
from tests.storage.postgres.sites import Site, create, log_of, wait_until

DENIED = psycopg.errors.InsufficientPrivilege
TABLE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
REFUSALS = (psycopg.errors.RaiseException, psycopg.errors.CharacterNotInRepertoire)


@dataclass(frozen=True)
class Role:
    """A database role that owns nothing of ours."""

    site: Site
    name: str

    def session(self) -> psycopg.Connection:
        """A connection of this role, which commits each statement."""
        port = self.site.server.port
        return psycopg.connect(
            host="127.0.0.1", port=port, user=self.name, password=PASSWORD, dbname="postgres", autocommit=True
        )

    def grant(self, pattern: str) -> None:
        self.site.ask("SELECT headrace_grant(%s, %s)", [self.name, pattern])


class TestViews:
    def test_messages_that_were_deleted_are_not_shown(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        publish(log_of(store, topic), values(b"a", b"b"), values(b"c", partition=1))
        store.catalog.delete_before(topic, {0: 1})
        shown = "SELECT partition, message FROM orders ORDER BY 1"
        assert site.ask(shown) == [(0, "b"), (1, "c")]

    def test_views_of_an_earlier_version_are_replaced(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        create(store, "other")
        publish(log_of(store, topic), values(b"a", b"b"))
        site.do("DROP VIEW orders")
        site.do(
            'CREATE VIEW orders AS SELECT partition, "offset", "offset" AS messageid, '
            'to_timestamp(time_us / 1e6) AS "timestamp", headrace_text(value) AS message, headrace_text(key) AS key, '
            "headrace_json(attributes) AS attributes, headrace_text(codec) AS codec, "
            "to_timestamp(created_us / 1e6) AS created_at, headrace_text(producer_id) AS producer_id, "
            f"headrace_text(message_group_id) AS message_group_id, seqno, value FROM topic_{topic.id}"
        )
        site.do("DROP VIEW other; CREATE VIEW other AS SELECT 1 AS mine")
        site.do("UPDATE headrace_postgres SET version = 5")
        store.catalog.delete_before(topic, {0: 1})
        assert len(site.ask("SELECT * FROM orders")) == 2
        site.open()
        assert site.ask("SELECT message FROM orders") == [("b",)]
        assert site.ask("SELECT * FROM other") == [(1,)], "someone else made it"


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
            ("headrace_publish('orders', 'k', repeat('x', 11))", "takes at most 10"),
            ("headrace_publish('orders', NULL, 'v'::bytea, ARRAY['a'::bytea])", "names and values in turn"),
            (
                "headrace_publish('orders', NULL, 'v'::bytea, ARRAY[NULL, 'a'::bytea])",
                "the name of an attribute is null",
            ),
            ("headrace_publish('orders', NULL, '', array_fill('a'::bytea, ARRAY[2002]))", "1001 attributes"),
            (r"headrace_publish('orders', NULL, '', ARRAY['\xff'::bytea, ''])", "invalid byte sequence"),
            ("headrace_publish('once', 'k', 'v')", "drops repeated payloads"),
            ("headrace_publish('packed', 'k', 'v')", "takes no raw values"),
            ("headrace_publish('elsewhere', 'k', 'v')", "places keys by murmur2"),
        ],
    )
    def test_what_is_refused(self, site: Site, call: str, reason: str) -> None:
        store = site.open()
        create(store, settings=DEFAULT_SETTINGS.change(message_bytes_max=10))
        create(store, "once", settings=DEFAULT_SETTINGS.change(deduplication="payload"))
        create(store, "packed", settings=DEFAULT_SETTINGS.change(codecs=("zstd",)))
        create(store, "elsewhere", settings=DEFAULT_SETTINGS.change(key_hash="murmur2"))
        with site.plain() as user, pytest.raises(REFUSALS, match=reason):
            user.execute(f"SELECT {call}")
        assert site.ask("SELECT sum(tailid) FROM all_topics") == [(0,)]


class TestGrants:
    """Roles that publish: what they may is in `headrace_grants`, and nothing else is theirs."""

    @pytest.fixture
    def role(self, site: Site) -> Iterator[Role]:
        """A role of its own, and a topic that it may not publish to."""
        create(site.open())
        name = f"app_{site.schema}"
        with site.server.connect() as owner:
            owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
            try:
                yield Role(site, name)
            finally:
                owner.execute(f"DROP OWNED BY {name} CASCADE")
                owner.execute(f"DROP ROLE {name}")

    def test_a_role_without_a_grant_is_refused(self, role: Role) -> None:
        with role.session() as session, pytest.raises(DENIED, match="permission denied for schema"):
            session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')")
        role.site.do(f"GRANT USAGE ON SCHEMA {role.site.schema} TO {role.name}")
        with role.session() as session, pytest.raises(DENIED, match="permission denied for function"):
            session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')")

    @pytest.mark.parametrize("pattern", ["*", "orders", "ORD*", "o*e*s", "orders*"])
    def test_a_role_with_a_grant_publishes(self, role: Role, pattern: str) -> None:
        role.grant(pattern)
        with role.session() as session:
            session.execute(f"SELECT {role.site.schema}.headrace_publish('Orders', 'k', 'v')")
            session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', NULL::bytea, ''::bytea)")
        assert role.site.ask("SELECT tailid FROM all_topics") == [(2,)]

    @pytest.mark.parametrize("pattern", ["order", "rders", "o_ders", "o%", r"\*", "orders.*"])
    def test_a_grant_is_for_the_topics_that_it_matches(self, role: Role, pattern: str) -> None:
        role.grant(pattern)
        with role.session() as session:
            for topic in ("orders", "nowhere"):
                with pytest.raises(DENIED, match=f"may not publish to topic '{topic}'"):
                    session.execute(f"SELECT {role.site.schema}.headrace_publish('{topic}', 'k', 'v')")
        assert role.site.ask("SELECT tailid FROM all_topics") == [(0,)]

    def test_a_grant_that_is_revoked_ends(self, role: Role) -> None:
        role.grant("orders")
        role.grant("other")
        publish = f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')"
        revoke = f"SELECT headrace_revoke('{role.name}', %s)"
        with role.session() as session:
            session.execute(publish)
            assert role.site.ask(revoke, ["orders"]) == [(True,)]
            with pytest.raises(DENIED, match="may not publish"):
                session.execute(publish)
            assert role.site.ask(revoke, ["orders"]) == [(False,)]
            assert role.site.ask(revoke, ["other"]) == [(True,)]
            with pytest.raises(DENIED, match="permission denied for function"):
                session.execute(publish)

    def test_members_of_a_role_have_its_grants_and_a_role_that_is_taken_counts(self, role: Role) -> None:
        member = f"member_{role.site.schema}"
        role.grant("orders")
        publish = f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')"
        with role.site.server.connect() as owner:
            owner.execute(f"CREATE ROLE {member}")
            try:
                owner.execute(f"GRANT {role.name} TO {member}")
                owner.execute(f"SET ROLE {member}")
                owner.execute(publish)
                owner.execute("RESET ROLE")
                owner.execute(f"REVOKE {role.name} FROM {member}")
                owner.execute(f"GRANT USAGE ON SCHEMA {role.site.schema} TO {member}")
                owner.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {role.site.schema} TO {member}")
                owner.execute(f"SET ROLE {member}")
                with pytest.raises(DENIED, match=f"role {member} may not publish"):
                    owner.execute(publish)
            finally:
                owner.execute("RESET ROLE")
                owner.execute(f"DROP OWNED BY {member}")
                owner.execute(f"DROP ROLE {member}")

    def test_who_publishes_cannot_touch_tables_or_other_functions(self, role: Role) -> None:
        role.grant("*")
        ours = "= %s::regnamespace"
        rights = " OR ".join(f"has_table_privilege(oid, '{right}')" for right in TABLE_RIGHTS)
        tables = f"SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace {ours}"
        functions = f"SELECT oid::regproc::text FROM pg_proc WHERE pronamespace {ours}"
        (found,) = role.site.ask(tables, [role.site.schema])
        assert found[0] > 10
        with role.session() as session:
            assert session.execute(f"{tables} AND ({rights})", [role.site.schema]).fetchone() == (0,)
            query = f"{functions} AND has_function_privilege(oid, 'EXECUTE')"
            callable_names = [name for (name,) in session.execute(query, [role.site.schema])]
            assert callable_names == [f"{role.site.schema}.headrace_publish"] * 2
            for statement in (
                f"SELECT {role.site.schema}.headrace_grant('{role.name}', '*')",
                f"INSERT INTO {role.site.schema}.headrace_grants VALUES ('{role.name}', '*')",
                f"UPDATE {role.site.schema}.all_topics SET tailid = 7",
                f"SELECT * FROM {role.site.schema}.orders",
                f"SELECT * FROM {role.site.schema}.all_tokens",
                f"CREATE TABLE {role.site.schema}.mine (x int)",
            ):
                with pytest.raises(DENIED):
                    session.execute(statement)

    def test_objects_of_the_caller_are_not_used(self, role: Role) -> None:
        """Temporary tables, and a schema that comes first in the caller's search_path, with all our names."""
        role.grant("orders")
        schema, mine = role.site.schema, f"mine_{role.site.schema}"
        role.site.do(f"CREATE SCHEMA {mine} AUTHORIZATION {role.name}")
        with role.session() as session:
            session.execute("CREATE TEMP TABLE headrace_grants (grantee regrole, pattern text)")
            session.execute(f"INSERT INTO headrace_grants VALUES ('{role.name}', '*')")
            for place in ("pg_temp", mine):
                session.execute(f"CREATE TABLE {place}.all_topics (topicid int, topickey text, topicname text, x int)")
                session.execute(f"INSERT INTO {place}.all_topics VALUES (1, 'orders', 'orders', 1)")
            session.execute(f"CREATE TABLE {mine}.owned (who text)")
            steal = f"INSERT INTO {mine}.owned VALUES (current_user)"
            for name, arguments, result in (
                ("headrace_granted", "text", "text"),
                ("headrace_matches", "text, text", "boolean"),
                ("headrace_partition", "bytea, integer", "integer"),
                ("lower", "text", "text"),
                ("octet_length", "bytea", "integer"),
                ("pg_has_role", "name, regrole, text", "boolean"),
            ):
                session.execute(
                    f"CREATE FUNCTION {mine}.{name}({arguments}) RETURNS {result} LANGUAGE sql "
                    f"AS $$ {steal}; SELECT NULL::{result} $$"
                )
            rest = f"CREATE FUNCTION {mine}.rest(bigint, integer) RETURNS bigint LANGUAGE sql"
            session.execute(f"{rest} AS $$ {steal}; SELECT 0::bigint $$")
            session.execute(f"CREATE OPERATOR {mine}.% (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = {mine}.rest)")
            for path in (
                f"{mine}, {schema}",
                f"pg_temp, {mine}, {schema}, pg_catalog",
                f"{mine}, pg_catalog, {schema}",
            ):
                session.execute(f"SET search_path = {path}")
                session.execute(f"SELECT {schema}.headrace_publish('orders', 'k', 'v')")
                # Directly, too: the form with text has a search_path of its own.
                session.execute(f"SELECT {schema}.headrace_publish('orders', 'k'::bytea, 'v'::bytea)")
                with pytest.raises(DENIED, match="may not publish"):
                    session.execute(f"SELECT {schema}.headrace_publish('other', 'k'::bytea, 'v'::bytea)")
            assert session.execute(f"SELECT count(*) FROM {mine}.owned").fetchone() == (0,)
        assert role.site.ask("SELECT tailid FROM all_topics") == [(6,)]

    def test_who_may_not_publish_waits_for_nobody(self, role: Role) -> None:
        role.grant("other")
        with role.site.plain() as owner, owner.transaction():
            owner.execute("SELECT * FROM all_topics FOR UPDATE")
            with role.session() as session, pytest.raises(DENIED, match="may not publish"):
                session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')")

    def test_a_grant_needs_a_role_and_a_pattern(self, role: Role) -> None:
        with role.site.plain() as owner:
            with pytest.raises(psycopg.errors.RaiseException, match="role and pattern are needed"):
                owner.execute(f"SELECT headrace_grant('{role.name}', '')")
            with pytest.raises(psycopg.errors.UndefinedObject):
                owner.execute("SELECT headrace_grant('nobody_there', '*')")

    def test_a_store_of_the_first_version_is_upgraded(self, role: Role) -> None:
        functions = "headrace_publish(text, bytea, bytea, bytea[])"
        role.site.do(f"ALTER FUNCTION {functions} SECURITY INVOKER RESET ALL")
        role.site.do(f"GRANT EXECUTE ON FUNCTION {functions} TO PUBLIC")
        role.site.do("GRANT SELECT ON all_tokens TO PUBLIC")
        role.site.do("DROP TABLE headrace_grants")
        role.site.do("ALTER TABLE topic_sources DROP COLUMN digest_seqno, DROP COLUMN digest")
        (topic_id,) = role.site.ask("SELECT topicid FROM all_topics")[0]
        role.site.do(f"ALTER TABLE topic_{topic_id} ALTER COLUMN value SET NOT NULL")
        role.site.do("UPDATE headrace_postgres SET version = 1")
        role.site.open()
        assert role.site.ask("SELECT version FROM headrace_postgres") == [(VERSION,)]
        self.test_a_role_without_a_grant_is_refused(role)
        role.grant("orders")
        with role.session() as session:
            session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', 'k', 'v')")
            session.execute(f"SELECT {role.site.schema}.headrace_publish('orders', 'k', NULL)")
            with pytest.raises(DENIED):
                session.execute(f"SELECT * FROM {role.site.schema}.all_tokens")
        role.site.open()
        assert role.site.ask("SELECT count(*) FROM headrace_grants") == [(1,)]


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
        "name",
        ["all_topics", "topic_1", "topic_1_1", "headrace_publish", "pg_class", "queue_consumers", "x" * 64, "ä" * 32],
    )
    def test_names_that_could_stand_in_the_way_get_no_view(self, site: Site, name: str) -> None:
        assert not is_viewable(name)
        store = site.open()
        log = log_of(store, create(store, name))
        publish(log, values(b"a"))
        assert values_in(log) == [b"a"]
        assert site.ask("SELECT viewname FROM pg_views WHERE schemaname = current_schema()") == [("queue_consumers",)]

    def test_a_name_that_is_taken_stays_with_whom_it_belongs_to(self, site: Site) -> None:
        store = site.open()
        site.do('CREATE TABLE "it\'s ""mine""" (x int)')
        log = log_of(store, create(store, 'It\'s "mine"'))
        publish(log, values(b"a"))
        assert site.ask('SELECT * FROM "it\'s ""mine"""') == []
        assert values_in(log) == [b"a"]
