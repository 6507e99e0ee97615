"""Offsets that are committed again and again are changed in place: the tables of a database do not grow by it."""

from __future__ import annotations

import pytest

from tests.broker.messages import batch
from tests.broker.sites import Site
from tests.postgres_server import PostgresServer

MESSAGES = 1_000
# A table of one page, its index of two, and what may be under way at any moment.
BYTES_MAX = 8 * 8192


def commit_often(site: Site, postgres: PostgresServer, commits: int) -> None:
    broker = site.open()
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(*[b"x"] * (2 * MESSAGES)))
    member = broker.join_group("orders", "readers", "ann")
    schema = site.url.partition("schema=")[2].partition("&")[0]
    size = "SELECT pg_total_relation_size(%s::regclass)"
    tables = [f"{schema}.{name}" for name in ("all_consumers", "all_groups", "all_members")]
    for number in range(commits):
        if number % MESSAGES == 0 and number:
            broker.seek("orders", "readers", {0: 0, 1: 0})
            member = broker.heartbeat("orders", "readers", "ann")
        offset = number % MESSAGES + 1
        broker.commit_offsets("orders", "readers", {0: offset, 1: offset}, "ann", member.generation)
        if number % 10 == 0:
            broker.heartbeat("orders", "readers", "ann")
    assert broker.committed("orders", "readers") == {0: offset, 1: offset}
    with postgres.connect() as connection:
        for table in tables:
            found = connection.execute(size, [table]).fetchone()
            assert found is not None and found[0] <= BYTES_MAX, table


def test_a_thousand_commits_do_not_grow_the_tables(shared_site: Site, postgres: PostgresServer) -> None:
    commit_often(shared_site, postgres, 1_000)


@pytest.mark.campaign
def test_a_million_commits_do_not_grow_the_tables(shared_site: Site, postgres: PostgresServer) -> None:
    commit_often(shared_site, postgres, 1_000_000)
