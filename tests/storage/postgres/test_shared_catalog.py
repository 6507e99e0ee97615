"""The catalog of a shared store: groups that servers change under the lock of a row, epochs, and broken connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.core.errors import MemberNotFound, StoreUnavailable, TopicDeleted, TopicExists
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group
from headrace.core.groups.member import Member
from headrace.core.groups.notes import CommitNote
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import Catalog, GroupOffsets, TopicRecord
from headrace.storage.group_row import GroupRow
from headrace.storage.interface import Fences, TopicLog
from headrace.storage.postgres.engine import PostgresStore
from tests.broker.background import together
from tests.postgres_server import PASSWORD, PostgresServer
from tests.storage.postgres.sites import Site, create, log_of

SECOND_US = 1_000_000


@pytest.fixture
def two(site: Site) -> tuple[PostgresStore, PostgresStore]:
    return site.open(), site.open()


def put(group: Group, offsets: dict[int, int] | None = None) -> Callable[[GroupRow], None]:
    return lambda row: row.put(group, offsets)


def joined(row: GroupRow, member: str) -> Group:
    group = rules.join(row.group or Group("g"), member, 30, 4)
    row.put(group)
    return group


class TestGroups:
    def test_a_group_and_its_offsets_are_seen_at_one_moment(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=3)
        assert first.standing(topic.id, "g") is None
        group = Group("g", 1, False, "earliest", 4)
        first.change_group(topic, "g", "back", put(group))
        assert second.standing(topic.id, "g") == (group, {})
        first.change_group(topic, "g", "back", put(group, {2: 6, 0: 5}))
        assert second.standing(topic.id, "g") == (group, {0: 5, 2: 6})
        first.change_group(topic, "g", "back", lambda row: row.drop_offsets([1, 2]))
        assert second.standing(topic.id, "g") == (group, {0: 5})

    def test_groups_are_found_by_name_through_an_index(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        for name in ("a", "b"):
            store.catalog.change_group(topic, name, "back", put(Group(name)))
        # As an earlier version made the tables.
        site.do("DROP INDEX all_groups_by_name")
        second = site.open()
        assert second.catalog.named_groups(["b", "none"]) == [(topic.id, "b")]
        with site.plain() as connection:
            connection.execute("SET enable_seqscan = off")
            plan = connection.execute("EXPLAIN SELECT topicid FROM all_groups WHERE groupname IN ('b', 'none')")
            assert "all_groups_by_name" in str(plan.fetchall())

    def test_a_group_is_claimed_by_one_live_server_at_a_time(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic, other = create(two[0]), create(two[0], name="other")

        def claim(server: str, group: str = "g", of: TopicRecord = topic) -> None:
            first.change_group(of, group, "group", lambda row: row.claim(server, "Kafka"))

        def holder(asking: str) -> tuple[str, str] | None:
            return second.change_group(topic, "g", "group", lambda row: row.holder(asking))

        claim("a")
        assert holder("b") is None, "a server that is not listed claims nothing"
        assert second.servers.claims() == []
        for server in ("a", "b"):
            first.servers.put(server, "1", {})
        claim("a")
        assert (holder("b"), holder("a")) == (("a", "Kafka"), None)
        claim("b")
        assert (holder("a"), holder("b")) == (("b", "Kafka"), None)
        claim("b", "h")
        claim("b", of=other)
        assert sorted(second.servers.claims()) == [(topic.id, "g"), (topic.id, "h"), (other.id, "g")]
        first.servers.release_claims("a", {(topic.id, "g")})
        first.servers.release_claims("b", {(topic.id, "h"), (other.id, "g")})
        first.servers.release_claims("b", set())
        assert holder("a") == ("b", "Kafka")
        first.servers.remove("b")
        assert holder("a") is None

    def test_of_those_who_advance_from_one_place_one_does(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=3)
        first.change_group(topic, "g", "back", put(Group("g"), {0: 5, 2: 6}))
        first.change_group(topic, "other", "back", put(Group("other"), {0: 5, 2: 6}))

        def advance(catalog: Catalog, committed: dict[int, int]) -> bool:
            moved: list[bool] = []
            catalog.advance(topic.id, "g", committed, 2, moved)
            return moved[-1]

        tries = [lambda catalog=each: advance(catalog, {0: 5, 2: 6}) for each in (first, second) * 3]
        tried = together(tries)
        assert sorted(tried) == [False] * 5 + [True]
        assert second.offsets(topic.id, "g") == {0: 5, 2: 7}
        # Another partition moved since, one was added, or the group is gone.
        for outdated in ({0: 4, 2: 7}, {2: 7}, {0: 5, 1: 0, 2: 7}):
            assert not advance(first, outdated)
        assert advance(first, {0: 5, 2: 7})
        assert second.offsets(topic.id, "other") == {0: 5, 2: 6}
        first.change_group(topic, "g", "group", lambda row: row.remove())
        assert not advance(second, {0: 5, 2: 8})

    def test_a_group_is_the_same_through_both(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=3)
        ann = Member(5 * SECOND_US, 3, {0: 2, 2: 4}, {2: 4}, release_timeout_us=SECOND_US, server="one")
        members = {"ann": ann, "b\N{GREEK SMALL LETTER OMEGA}b '\"\\": Member(SECOND_US)}
        group = Group("g", None, True, 77, 4, members)
        first.change_group(topic, "g", "back", put(group, {0: 5, 2: 6}))
        assert second.group(topic.id, "g") == group
        assert second.groups(topic.id) == [group]
        assert second.offsets(topic.id, "g") == {0: 5, 2: 6}
        assert second.change_group(topic, "g", "offsets", lambda row: row.offsets()) == {0: 5, 2: 6}
        assert second.group(topic.id, "other") is None
        changed = replace_members(group, {"ann": members["ann"]})
        second.change_group(topic, "g", "group", put(changed))
        assert first.group(topic.id, "g") == changed
        renewed = rules.register(changed, None, important=False)
        second.change_group(topic, "g", "back", put(renewed))
        assert first.group(topic.id, "g") == renewed != changed

    def test_a_commit_raises_and_never_lowers_and_says_how_many(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=3)
        first.change_group(topic, "g", "back", put(Group("g"), {0: 5, 1: 5}))

        def commit(offsets: dict[int, int]) -> Callable[[GroupRow], int]:
            return lambda row: row.raise_offsets(offsets)

        assert second.change_group(topic, "g", "offsets", commit({2: 1, 1: 4, 0: 6})) == 2
        assert first.change_group(topic, "g", "offsets", commit({0: 6})) == 0
        assert first.change_group(topic, "g", "offsets", commit({})) == 0
        assert first.offsets(topic.id, "g") == {0: 6, 1: 5, 2: 1}

    def test_what_is_said_about_the_same_offset_is_replaced_and_ends_with_it(
        self, two: tuple[PostgresStore, PostgresStore]
    ) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=2)
        first.change_group(topic, "g", "back", put(Group("g"), {0: 5, 1: 5}))

        def commit(offset: int, notes: dict[int, CommitNote]) -> int:
            return second.change_group(topic, "g", "offsets", lambda row: row.raise_offsets({0: offset}, notes))

        one, other = CommitNote(9, 1, b"one"), CommitNote(5, -1, b"other")
        assert [commit(5, {0: one}), commit(5, {0: one}), commit(5, {0: other}), commit(5, {})] == [1, 0, 1, 0]
        assert first.noted(topic.id, "g") == {0: (5, other), 1: (5, None)}
        assert [commit(4, {0: one}), commit(6, {})] == [0, 1]
        assert first.noted(topic.id, "g") == {0: (6, None), 1: (5, None)}
        first.change_group(topic, "g", "back", lambda row: row.put_offsets({0: 2}, {0: one}))
        assert first.noted(topic.id, "g")[0] == (2, one)
        moved: list[bool] = []
        first.advance(topic.id, "g", {0: 2, 1: 5}, 0, moved)
        assert (moved, first.noted(topic.id, "g")[0]) == ([True], (3, None))

    def test_offsets_of_several_groups_are_raised_at_once(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0], partitions=3)
        first.change_group(topic, "g", "back", put(Group("g"), {0: 5, 1: 5}))
        first.change_group(topic, "h", "back", put(Group("h", important=True)))
        seen: list[dict[str, Group]] = []

        note = CommitNote(-2, 7, b"\x00")

        def decide(groups: Mapping[str, Group]) -> GroupOffsets:
            seen.append(dict(groups))
            return {("h", 2): (1, None), ("g", 1): (4, None), ("g", 0): (6, note)}

        second.raise_offsets(topic.id, ["g", "h", "other"], decide)
        assert seen == [{"g": Group("g"), "h": Group("h", important=True)}]
        assert first.offsets(topic.id, "g") == {0: 6, 1: 5}
        assert first.noted(topic.id, "g") == {0: (6, note), 1: (5, None)}
        assert first.offsets(topic.id, "h") == {2: 1}
        second.raise_offsets(topic.id, ["other"], lambda groups: {})

    def test_a_group_that_is_being_changed_holds_up_no_offsets_of_others(
        self, two: tuple[PostgresStore, PostgresStore]
    ) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])
        for name in ("g", "h"):
            first.change_group(topic, name, "back", put(Group(name)))

        def change(row: GroupRow) -> None:
            offsets: GroupOffsets = {("g", 0): (1, None), ("h", 0): (1, None)}
            second.raise_offsets(
                topic.id,
                ["g", "h"],
                lambda groups: {place: offsets[place] for place in offsets if place[0] in groups},
            )

        first.change_group(topic, "g", "group", change)
        assert (first.offsets(topic.id, "g"), first.offsets(topic.id, "h")) == ({}, {0: 1})

    def test_an_offset_that_somebody_holds_is_given_up_soon(self, site: Site) -> None:
        store = site.open("lock_timeout_seconds=60")
        topic = create(store)
        store.catalog.change_group(topic, "g", "back", put(Group("g"), {0: 0}))
        with site.plain() as idle, idle.transaction():
            idle.execute("SELECT 1 FROM all_consumers FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="idle in transaction"):
                store.catalog.raise_offsets(topic.id, ["g"], lambda groups: {("g", 0): (1, None)})
        store.catalog.raise_offsets(topic.id, ["g"], lambda groups: {("g", 0): (2, None)})
        assert store.catalog.offsets(topic.id, "g") == {0: 2}

    def test_a_group_is_removed_with_all_that_it_had(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])
        first.change_group(topic, "g", "group", lambda row: joined(row, "ann"))
        first.change_group(topic, "g", "back", lambda row: row.put_offsets({0: 0}))
        second.change_group(topic, "g", "group", lambda row: row.remove())
        assert (first.groups(topic.id), first.offsets(topic.id, "g")) == ([], {})
        assert first.groups_with_members() == []

    def test_a_rule_that_refuses_changes_nothing(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])

        def refuse(row: GroupRow) -> None:
            row.put(Group("g"), {0: 0})
            raise MemberNotFound("g", "ann")

        with pytest.raises(MemberNotFound):
            first.change_group(topic, "g", "group", refuse)
        assert (second.groups(topic.id), second.offsets(topic.id, "g")) == ([], {})

    def test_members_that_join_a_new_group_at_once_through_all_servers_are_all_in_it(self, site: Site) -> None:
        stores = [site.open() for _ in range(3)]
        topic = create(stores[0])
        barrier = threading.Barrier(9)

        def join(number: int) -> int:
            barrier.wait(60)
            catalog = stores[number % 3].catalog
            return catalog.change_group(topic, "g", "group", lambda row: joined(row, f"m{number}")).generation

        with ThreadPoolExecutor(9) as threads:
            generations = sorted(threads.map(join, range(9)))
        assert generations == list(range(1, 10))
        group = stores[0].catalog.group(topic.id, "g")
        assert group is not None
        assert (group.generation, sorted(group.members)) == (9, [f"m{number}" for number in range(9)])

    def test_groups_with_members_are_found(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])
        group = first.change_group(topic, "g", "group", lambda row: joined(row, "ann"))
        first.change_group(topic, "empty", "back", put(Group("empty")))
        assert second.groups_with_members() == [(topic.id, group)]
        first.change_group(topic, "g", "group", put(rules.leave(group, "ann", 4)))
        assert second.groups_with_members() == []

    def test_members_as_an_earlier_release_stored_them_are_read(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        store.catalog.change_group(topic, "g", "group", lambda row: joined(row, "ann"))
        stored = (
            '{"ann":{"session_timeout_us":30000000,"deadline_us":9,"read_generation":1,"owned":{"0":1,"1":1},'
            '"revoking":{"1":[1,9]},"release_timeout_us":5}}'
        )
        site.do(f"UPDATE all_members SET members = '{stored}'")
        group = store.catalog.group(topic.id, "g")
        assert group is not None
        assert group.members == {"ann": Member(30 * SECOND_US, 1, {0: 1, 1: 1}, {}, 5)}

    def test_tables_of_an_earlier_release_get_the_columns_they_lack(self, site: Site) -> None:
        store = site.open()
        topic = create(store)
        store.catalog.change_group(topic, "g", "group", put(Group("g", generation=3)))
        site.do("ALTER TABLE all_groups DROP COLUMN seek_generation")
        site.do("UPDATE headrace_catalog SET version = 1")
        assert site.open().catalog.group(topic.id, "g") == Group("g", generation=3)

    def test_a_topic_that_was_deleted_is_an_error(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])
        first.change_group(topic, "g", "group", lambda row: joined(row, "ann"))
        assert first.remove_topic(topic.id) is True
        assert second.remove_topic(topic.id) is False
        for name in ("g", "new"):
            with pytest.raises(TopicDeleted):
                second.change_group(topic, name, "group", lambda row: joined(row, "ann"))
        with pytest.raises(TopicDeleted):
            second.change_topic(topic, lambda record: replace(record, partitions=7))


def replace_members(group: Group, members: dict[str, Member]) -> Group:
    return Group(group.name, group.consumers, group.important, group.read_from, group.generation, members)


class TestTopics:
    def test_changes_of_two_servers_are_both_kept(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        first, second = (store.catalog for store in two)
        topic = create(two[0])
        first.change_topic(topic, lambda record: replace(record, partitions=4))
        settings = DEFAULT_SETTINGS.change(retention_seconds=9)
        second.change_topic(topic, lambda record: replace(record, settings=settings))
        assert second.change_topic(topic, lambda record: record).partitions == 4
        assert first.topic(topic.key) == replace(topic, partitions=4, settings=settings)
        assert first.topic("none") is None
        with pytest.raises(TopicExists):
            second.add_topic(topic.name, topic.key, 1, DEFAULT_SETTINGS, 0, lambda record: None)


def epochs(log: TopicLog, source: tuple[str, str], put: int | None = None) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}

    def decide(state: Any, fences: Fences) -> list[Any]:
        found.update(fences.epochs([source]))
        if put is not None:
            fences.put(source, put)
        return []

    log.commit(decide)
    return found


class TestEpochs:
    def test_the_newest_epoch_is_known_to_all_and_none_goes_back(
        self, two: tuple[PostgresStore, PostgresStore]
    ) -> None:
        topic = create(two[0])
        first, second = (log_of(store, topic) for store in two)
        source, other = ("p\0" + "x" * 5000, ""), ("p", "\0")
        assert epochs(first, source, put=5) == {}
        assert epochs(second, source, put=3) == {source: 5}
        assert epochs(first, source) == {source: 5}
        assert epochs(second, other) == {}

    def test_the_oldest_producers_are_forgotten_above_the_limit(self, two: tuple[PostgresStore, PostgresStore]) -> None:
        for name in ("one", "two"):
            log = log_of(two[0], create(two[0], name))
            for number in range(5):
                epochs(log, (f"p{number}", ""), put=10 - number)
        assert two[1].catalog.forget_producers(5) == 0
        assert two[1].catalog.forget_producers(2) == 6
        assert epochs(log, ("p1", "")) == {("p1", ""): 9}
        assert epochs(log, ("p2", "")) == {}


def end_connections(postgres: PostgresServer) -> int:
    """End every connection to the database but our own."""
    with postgres.connect() as connection:
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        found = connection.execute(query + " AND backend_type = 'client backend'").fetchone()
    assert found is not None
    return int(found[0])


class TestConnections:
    def test_a_transaction_whose_connection_was_ended_is_done_again(self, site: Site, postgres: PostgresServer) -> None:
        store = site.open()
        topic = create(store)
        attempts = 0

        def join(row: GroupRow) -> Group:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                assert end_connections(postgres) > 0
            return joined(row, "ann")

        assert store.catalog.change_group(topic, "g", "group", join).generation == 1
        assert attempts == 2

    def test_what_does_not_pass_is_an_error_of_the_store_at_once(self, site: Site) -> None:
        catalog = site.open().catalog
        with pytest.raises(StoreUnavailable, match="division by zero"):
            catalog._do(lambda connection: connection.execute(text("SELECT 1/0")))

    def test_no_error_shows_the_password(self, site: Site) -> None:
        catalog = site.open().catalog
        query = text("SELECT CAST(CAST(:given AS text) AS integer)").bindparams(given=PASSWORD)
        with pytest.raises(StoreUnavailable) as caught:
            catalog._do(lambda connection: connection.execute(query))
        assert PASSWORD not in str(caught.value)
        assert "***" in str(caught.value)

    def test_the_url_says_how_long_it_is_tried(self, site: Site) -> None:
        assert site.open("retry_seconds=0.5").catalog._transactions._patience_seconds == 0.5

    def test_a_pool_without_room_is_an_error_of_the_store(self, site: Site) -> None:
        def work(connection: Connection) -> None:
            raise PoolTimeout

        with pytest.raises(StoreUnavailable, match="all connections are in use"):
            site.open().catalog._do(work)

    def test_a_database_that_stays_away_is_an_error_of_the_store_after_a_while(self, site: Site) -> None:
        engine, attempts = site.open().catalog._transactions._engine, list[int]()

        def work(connection: Connection, broken: int) -> int:
            attempts.append(len(attempts))
            if len(attempts) <= broken:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            return len(attempts)

        patient = Catalog(engine, "the store", patience_seconds=60.0)
        assert patient._do(lambda connection: work(connection, broken=2)) == 3
        hasty = Catalog(engine, "the store", patience_seconds=0.3)
        with pytest.raises(StoreUnavailable, match="the store"):
            hasty._do(lambda connection: work(connection, broken=1_000_000))

    def test_closing_waits_for_those_at_work(self, site: Site) -> None:
        catalog = site.open().catalog
        working, go_on = threading.Event(), threading.Event()

        def work(connection: Connection) -> int:
            working.set()
            assert go_on.wait(60)
            return int(connection.execute(text("SELECT 1")).scalar_one())

        with ThreadPoolExecutor(2) as threads:
            result = threads.submit(catalog._do, work)
            assert working.wait(60)
            closing = threads.submit(catalog.close)
            go_on.set()
            assert result.result(60) == 1
            closing.result(60)
