"""The catalog over SQLite beyond the contract: versions, and a database that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import CursorResult, create_engine, text

from headrace.core.errors import DiskFull, StoreUnavailable, UnknownFormat
from headrace.core.groups.group import Group
from headrace.core.rights import Grant, Right
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.catalog import Catalog
from headrace.storage.tables import VERSION
from headrace.storage.tokens import TokenRecord
from tests.group_writes import put_group, put_offsets


def opened(path: Path, timeout_seconds: float = 0.1) -> Catalog:
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False, "timeout": timeout_seconds})
    return Catalog(engine, "the store")


@contextmanager
def database(path: Path) -> Iterator[Callable[..., CursorResult[Any]]]:
    """Executes SQL in one transaction on the database of a catalog, as another program would."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        yield lambda statement, **values: connection.execute(text(statement), values)
    engine.dispose()


def test_a_new_catalog_says_its_version(tmp_path: Path) -> None:
    opened(tmp_path / "db").close()
    with database(tmp_path / "db") as execute:
        assert execute("SELECT version FROM headrace_catalog").all() == [(VERSION,)]


def test_a_newer_version_is_refused_and_an_older_one_is_not(tmp_path: Path) -> None:
    opened(tmp_path / "db").close()
    with database(tmp_path / "db") as execute:
        execute("UPDATE headrace_catalog SET version = :version", version=VERSION + 1)
    with pytest.raises(UnknownFormat) as caught:
        opened(tmp_path / "db")
    assert (caught.value.file, caught.value.version, caught.value.known) == ("the store", VERSION + 1, VERSION)
    with database(tmp_path / "db") as execute:
        execute("UPDATE headrace_catalog SET version = :version", version=VERSION - 1)
    opened(tmp_path / "db").close()


def test_topics_of_the_third_version_have_nothing_deleted(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    catalog.add_topic("t", "t", 2, DEFAULT_SETTINGS, 7, lambda _: None)
    catalog.close()
    with database(tmp_path / "db") as execute:
        execute("ALTER TABLE all_topics DROP COLUMN deleted_before")
        execute("UPDATE headrace_catalog SET version = 3")
    catalog = opened(tmp_path / "db")
    (topic,) = catalog.topics()
    assert topic.deleted_before == ()
    assert catalog.delete_before(topic, {1: 5}).deleted_before == (0, 5)
    catalog.close()
    (topic,) = opened(tmp_path / "db").topics()
    assert topic.deleted_before == (0, 5)


def test_tokens_of_the_first_version_are_kept_and_have_no_end(tmp_path: Path) -> None:
    opened(tmp_path / "db").close()
    with database(tmp_path / "db") as execute:
        execute("DROP TABLE all_tokens")
        columns = "tokenid TEXT PRIMARY KEY, name TEXT, secret_hash TEXT, grants TEXT, created_us BIGINT"
        execute(f"CREATE TABLE all_tokens ({columns})")
        grants = '[{"pattern":"orders","rights":["read"]}]'
        execute("INSERT INTO all_tokens VALUES ('id', 'ann', 'hash', :grants, 7)", grants=grants)
        execute("UPDATE headrace_catalog SET version = 1")
    for _ in range(2):
        catalog = opened(tmp_path / "db")
        read = Grant("orders", frozenset({Right.READ}))
        assert catalog.tokens.all() == [TokenRecord("id", "ann", "hash", (read,), 7)]
        catalog.close()


def test_tables_that_a_crash_left_out_are_made(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    catalog.add_topic("a", "a", 1, DEFAULT_SETTINGS, 0, lambda topic: None)
    catalog.close()
    with database(tmp_path / "db") as execute:
        execute("DROP TABLE all_groups")
        execute("DELETE FROM headrace_catalog")
    catalog = opened(tmp_path / "db")
    (topic,) = catalog.topics()
    put_group(catalog, topic.id, Group("g"))
    assert catalog.groups(topic.id) == [Group("g")]
    catalog.close()


def test_the_topics_of_groups_are_found_by_the_names_of_groups(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    first, second = (catalog.add_topic(name, name, 1, DEFAULT_SETTINGS, 0, lambda topic: None) for name in "ab")
    # More names than one statement takes.
    many = [f"g{number}" for number in range(1_500)]
    for topic, groups in ((second, ["g0", "other"]), (first, ["g0", "g1499"])):
        for group in groups:
            put_group(catalog, topic.id, Group(group))
    everything = [(first.id, "g0"), (second.id, "g0"), (first.id, "g1499"), (second.id, "other")]
    assert catalog.named_groups(None) == everything
    assert catalog.named_groups(many) == everything[:3]
    assert catalog.named_groups([]) == []
    catalog.close()


def test_a_catalog_of_an_earlier_release_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    topic = catalog.add_topic("a", "a", 1, DEFAULT_SETTINGS, 0, lambda topic: None)
    put_group(catalog, topic.id, Group("g", generation=3))
    catalog.close()
    with database(tmp_path / "db") as execute:
        execute("ALTER TABLE all_groups DROP COLUMN seek_generation")
        execute("UPDATE headrace_catalog SET version = 1")
    for _ in range(2):
        catalog = opened(tmp_path / "db")
        assert catalog.groups(topic.id) == [Group("g", generation=3)]
        catalog.close()


def test_a_database_that_cannot_be_written_is_unavailable_and_may_be_tried_again(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    engine = create_engine(f"sqlite:///{tmp_path / 'db'}")
    with engine.connect() as connection:
        connection.execute(text("BEGIN EXCLUSIVE"))
        with pytest.raises(StoreUnavailable, match="database is locked") as caught:
            put_offsets(catalog, 1, "g", {0: 1})
        assert (caught.value.store, caught.value.retry) == ("the store", True)
        connection.rollback()
    put_offsets(catalog, 1, "g", {0: 1})
    assert catalog.offsets(1, "g") == {0: 1}
    catalog.close()
    engine.dispose()


def test_a_full_disk_has_an_error_of_its_own(tmp_path: Path) -> None:
    catalog = opened(tmp_path / "db")
    topic = catalog.add_topic("a", "a", 1, DEFAULT_SETTINGS, 0, lambda topic: None)
    with catalog._transactions._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match=r"the store could not be written .*full"):
        put_offsets(catalog, topic.id, "g" * 10_000, {0: 1})
    assert catalog.all_offsets(topic.id) == {}
    catalog.close()


def test_a_path_that_cannot_be_a_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="unable to open"):
        opened(tmp_path)


def test_a_catalog_of_the_second_version_gets_what_the_archive_needs(tmp_path: Path) -> None:
    opened(tmp_path / "db").close()
    with database(tmp_path / "db") as execute:
        for table in ("all_archive_files", "all_archives"):
            execute(f"DROP TABLE {table}")
        execute("ALTER TABLE headrace_catalog DROP COLUMN storeid")
        execute("UPDATE headrace_catalog SET version = 2")
    catalog = opened(tmp_path / "db")
    store_id = catalog.manifest.store_id()
    catalog.close()
    catalog = opened(tmp_path / "db")
    assert catalog.manifest.store_id() == store_id and len(store_id) == 32
    assert catalog.manifest.ends() == {}
    catalog.close()
