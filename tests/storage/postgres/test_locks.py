"""What another role of the database can block, and what an operator is told about a lock that is held."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headrace.core.errors import StoreUnavailable
from headrace.core.groups.group import Group
from headrace.storage.open import open_catalog
from headrace.storage.postgres.sql.schema import _start_lock_held
from tests.storage.builders import commit_of, values, values_in
from tests.storage.postgres.sites import Site, create, log_of


@pytest.fixture
def stranger(site: Site) -> Iterator[psycopg.Connection]:
    """A role that may do nothing but connect."""
    role = site.schema + "_stranger"
    site.do(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    connection = psycopg.connect(
        host="127.0.0.1", port=site.server.port, user=role, password="x", dbname="postgres", autocommit=True
    )
    yield connection
    connection.close()
    site.do(f"DROP ROLE {role}")


def test_a_role_that_may_only_connect_blocks_nothing(site: Site, stranger: psycopg.Connection) -> None:
    store = site.open("lock_timeout_seconds=0.2&statement_timeout_seconds=0.5")
    topic = create(store)
    # All that servers ever locked in this way: their start, commits of the whole store, names of groups.
    for space in (0x48454144, 0x48454145):
        stranger.execute("SELECT pg_advisory_lock(%s::integer, hashtext(%s))", [space, site.schema])
    stranger.execute("SELECT pg_advisory_lock(%s::integer, hashtext('g'))", [topic.id])
    other = site.open("lock_timeout_seconds=0.2&statement_timeout_seconds=5")
    for each in (store, other):
        batches = [values(b"a")]
        log_of(each, topic).commit(lambda state, fences: commit_of(batches, state)[0], store_wide=True)  # noqa: B023
    assert values_in(log_of(store, topic)) == [b"a", b"a"]
    other.catalog.change_group(topic, "g", "back", lambda row: row.put(Group("g")))
    assert store.catalog.group(topic.id, "g") == Group("g")
    for statement in ("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", "SELECT * FROM {} FOR UPDATE"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(statement.format(f"{site.schema}.headrace_locks"))


def test_a_start_that_waits_too_long_names_the_session(site: Site) -> None:
    store = site.open()
    with site.plain() as holder, holder.transaction():
        holder.execute("SET LOCAL application_name = 'a forgotten psql'")
        holder.execute("LOCK TABLE headrace_locks IN EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable) as refused:
            site.open("statement_timeout_seconds=0.2")
        pid = holder.info.backend_pid
        told = str(refused.value)
        assert f"process {pid} of role postgres (a forgotten psql from 127.0.0.1) holds headrace_locks" in told
        assert f"SELECT pg_terminate_backend({pid})" in told and "statement_timeout_seconds" in told
        # What needs no start is not held up.
        open_catalog(site.url).close()
        assert values_in(log_of(store, create(store))) == []
    site.open("statement_timeout_seconds=5")
    with store._connections.connect() as connection:
        assert _start_lock_held(connection).endswith("it is free now: start again")


def test_groups_of_other_names_and_commits_of_the_whole_store_do_not_hold_up_a_start(site: Site) -> None:
    store = site.open()
    with site.plain() as busy, busy.transaction():
        busy.execute("SELECT * FROM headrace_locks FOR UPDATE")
        site.open("statement_timeout_seconds=5&lock_timeout_seconds=5")
        with pytest.raises(StoreUnavailable, match="a lock was held too long"):
            topic = create(store)
            other = site.open("lock_timeout_seconds=0.05")
            other.catalog.change_group(topic, "g", "back", lambda row: row.put(Group("g")))


def test_a_store_of_before_the_locks_gets_them(site: Site) -> None:
    store = site.open()
    topic = create(store)
    site.do("DROP TABLE headrace_locks")
    store = site.open()
    assert site.ask("SELECT count(*), min(lock) FROM headrace_locks") == [(64, 0)]
    store.catalog.change_group(topic, "g", "back", lambda row: row.put(Group("g")))
