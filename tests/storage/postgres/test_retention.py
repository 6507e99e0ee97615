"""Dropping segments in a database that others use: what they hold, what they read, what is left for later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.core.errors import OffsetOutOfRange, StoreUnavailable
from headrace.core.groups.group import Group
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import TopicRecord
from headrace.storage.postgres.engine import PostgresStore
from headrace.storage.postgres.log import segments, topic_row
from tests.group_writes import put_group, put_offsets
from tests.storage.builders import EVERYTHING, NOW_US, publish, values, values_in
from tests.storage.postgres.sites import Site, create, log_of

SECOND_US = 1_000_000
LATER_US = NOW_US + 1000 * SECOND_US
SETTINGS = DEFAULT_SETTINGS.change(retention_seconds=10)
SEGMENTS = "segment_commits=2"


def filled(store: PostgresStore, commits: int = 8) -> TopicRecord:
    topic = create(store, settings=SETTINGS)
    log = log_of(store, topic)
    for number in range(commits):
        publish(log, values(b"%d" % number), now_us=NOW_US + number * SECOND_US)
    return topic


def tables(site: Site, topic: TopicRecord) -> int:
    return len(site.ask("SELECT inhrelid FROM pg_inherits WHERE inhparent = %s::regclass", [f"topic_{topic.id}"]))


def test_tables_are_dropped_and_not_emptied(site: Site) -> None:
    store = site.open(SEGMENTS)
    topic = filled(store)
    assert tables(site, topic) == 4
    assert log_of(store, topic).drop_outlived(SETTINGS, None, LATER_US) == 4
    assert tables(site, topic) == 1
    assert site.ask("SELECT count(*) FROM topic_segments") == [(1,)]


def test_what_important_groups_have_yet_to_read_is_looked_up_in_the_database(site: Site) -> None:
    store = site.open(SEGMENTS)
    topic = filled(store)
    log = log_of(store, topic)
    put_group(store.catalog, topic.id, Group("billing", important=True), {0: 3})
    put_group(store.catalog, topic.id, Group("other"), {0: 0})
    assert log.drop_outlived(SETTINGS, None, LATER_US) == 1
    assert log.offsets().start.tolist() == [2, 0]
    put_group(store.catalog, topic.id, Group("late", important=True))
    writer = site.ask("SELECT xmin::text FROM all_topics")
    assert log.drop_outlived(SETTINGS, None, LATER_US) == 0
    assert site.ask("SELECT xmin::text FROM all_topics") == writer
    put_offsets(store.catalog, topic.id, "late", {0: 8})
    put_offsets(store.catalog, topic.id, "billing", {0: 8})
    assert log.drop_outlived(SETTINGS, None, LATER_US) == 3
    assert values_in(log) == []


def test_a_server_that_does_not_know_of_it_yet_finds_out(site: Site) -> None:
    store, other = site.open(SEGMENTS), site.open()
    topic = filled(store)
    log, stale = log_of(store, topic), log_of(other, topic)
    assert len(values_in(stale)) == 8
    assert log.drop_outlived(SETTINGS, np.array([4, 0]), LATER_US) == 2
    with pytest.raises(OffsetOutOfRange) as caught:
        stale.read(0, 1, 1, EVERYTHING)
    assert (caught.value.start, caught.value.end) == (4, 8)
    assert stale.read(0, 4, 1, EVERYTHING)["value"].to_pylist() == [b"4"]
    assert log.drop_outlived(SETTINGS, np.array([6, 0]), LATER_US) == 1
    assert stale.time_of(0, 4) is None
    assert stale.first_at(0, 0) == 6


def test_retention_between_a_look_and_a_read_is_met_by_another_look(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = site.open(SEGMENTS), site.open()
    topic = filled(store)
    log, theirs = log_of(store, topic), log_of(other, topic)
    held = [4, 6]

    def look_late(*arguments: Any) -> Any:
        seen = segments.look(*arguments)
        if held:
            assert theirs.drop_outlived(SETTINGS, np.array([held.pop(0), 0]), LATER_US) > 0
        return seen

    monkeypatch.setattr("headrace.storage.postgres.log.log.look", look_late)
    assert log.first_at(0, 0) == 6
    assert held == []


def test_a_row_and_its_segments_are_of_one_moment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = site.open(SEGMENTS), site.open()
    topic = filled(store)
    theirs = log_of(other, topic)
    real = topic_row.look
    interfered: list[int] = []

    def look_late(*arguments: Any) -> Any:
        seen = real(*arguments)
        if not interfered:
            interfered.append(0)
            interfered[0] = theirs.drop_outlived(SETTINGS, np.array([6, 0]), LATER_US)
        return seen

    monkeypatch.setattr(topic_row, "look", look_late)
    log = log_of(store, topic)
    assert log.offsets().start.tolist() == [6, 0]
    assert interfered == [3]


def test_a_table_that_somebody_reads_goes_later(site: Site) -> None:
    store = site.open(SEGMENTS)
    topic = filled(store)
    log = log_of(store, topic)
    with site.plain() as reader, reader.transaction():
        reader.execute(f"SELECT count(*) FROM topic_{topic.id}")
        assert log.drop_outlived(SETTINGS, None, LATER_US) == 4
        # The reader still has what it reads, and publishing goes on.
        assert reader.execute(f"SELECT count(*) FROM topic_{topic.id}").fetchone() == (8,)
        publish(log, values(b"new"), now_us=LATER_US)
        assert values_in(log) == [b"new"]
    assert tables(site, topic) > 1
    assert log.drop_outlived(SETTINGS, None, LATER_US) == 0
    # That of the new message, and the one after it: the new one is complete, so that it can go in time.
    assert tables(site, topic) == 2
    assert values_in(log) == [b"new"]


def test_a_row_that_is_held_does_not_hold_up_retention_for_long(site: Site) -> None:
    store = site.open(SEGMENTS)
    topic = filled(store)
    log = log_of(store, topic)
    with site.plain() as idle, idle.transaction():
        idle.execute("SELECT 1 FROM all_topics FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="idle in transaction"):
            log.drop_outlived(SETTINGS, None, LATER_US)
    assert log.drop_outlived(SETTINGS, None, LATER_US) == 4


def test_a_segment_that_only_grew_by_sql_is_completed_too(site: Site) -> None:
    store = site.open("segment_bytes=100")
    topic = create(store)
    log = log_of(store, topic)
    with site.plain() as user:
        for _ in range(3):
            user.execute("SELECT headrace_publish('orders', 'key', repeat('x', 100))")
    settings = DEFAULT_SETTINGS.change(retention_bytes=1)
    assert log.drop_outlived(settings, None, NOW_US) == 0
    assert tables(site, topic) == 2
    assert int(log.offsets().start.sum()) == 0
    publish(log, values(b"y" * 100))
    assert log.drop_outlived(settings, None, NOW_US) == 1
    assert sum(len(values_in(log, partition)) for partition in (0, 1)) == 1


def test_rows_that_every_commit_changes_can_stay_on_their_page(site: Site) -> None:
    """A new version of a row stays beside the old one if there is room and no index has a column that changed."""
    site.open()
    indexed = """SELECT DISTINCT attname FROM pg_index
        JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indrelid = 'all_topics'::regclass"""
    assert {name for (name,) in site.ask(indexed)} == {"topicid", "topickey"}
    assert "fillfactor=20" in site.ask("SELECT reloptions FROM pg_class WHERE oid = 'all_topics'::regclass")[0][0]
