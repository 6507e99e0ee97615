"""Store URLs of PostgreSQL: what they mean, what is refused, and that no password is ever shown."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from headrace.core.errors import HeadraceError, InvalidInput, StoreUnavailable
from headrace.storage.open import open_catalog, open_store, shown
from headrace.storage.postgres.errors import reason_of
from headrace.storage.postgres.options import DatabaseAddress, PostgresOptions, parse
from tests.postgres_server import PASSWORD, PASSWORD_IN_URL, PostgresServer

SECRET = "s3cret"


def test_a_url_names_a_place_and_how_to_use_it() -> None:
    url = (
        "postgresql://ann:p%40ss@db.example:6543/shop?schema=my%20topics&connections=3&segment_bytes=1000"
        "&segment_commits=7&lock_timeout_seconds=0.5&statement_timeout_seconds=9&retry_seconds=2&sslmode=disable"
    )
    address, options = parse(url)
    assert options == PostgresOptions(
        schema="my topics",
        connections=3,
        segment_bytes=1000,
        segment_commits=7,
        lock_timeout_seconds=0.5,
        statement_timeout_seconds=9,
        retry_seconds=2,
    )
    assert address.name == "postgresql://db.example:6543/shop?schema=my topics"
    assert address.parameters == {
        "user": "ann",
        "password": "p@ss",
        "host": "db.example",
        "port": "6543",
        "dbname": "shop",
        "sslmode": "disable",
    }


def test_most_of_it_may_be_left_out() -> None:
    address, options = parse("postgresql:///")
    assert (address.name, options) == ("postgresql:///?schema=headrace", PostgresOptions())
    assert parse("postgres://host/db")[0].parameters == {"host": "host", "dbname": "db"}


def test_an_address_can_be_printed() -> None:
    address, _ = parse(f"postgresql://ann:{SECRET}@host/db")
    assert SECRET not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("colour=red", "write it as postgresql://"),
        ("schema", "write it as postgresql://"),
        ("connections=0", "connections"),
        ("connections=many", "options are schema, connections"),
        ("segment_bytes=0", "segment_bytes"),
        ("retry_seconds=0", "retry_seconds"),
        ("lock_timeout_seconds=3601", "lock_timeout_seconds"),
        ("schema=", "1 to 63 bytes"),
        ("schema=a%00b", "1 to 63 bytes"),
        ("schema=" + "x" * 64, "1 to 63 bytes"),
        ("schema=" + "%C3%A4" * 32, "1 to 63 bytes"),
        ("schema=pg_mine", "belong to PostgreSQL"),
    ],
)
def test_what_is_wrong_is_said_without_the_url(query: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(f"postgresql://ann:{SECRET}@host/db?{query}")
    assert (caught.value.field, caught.value.value) == ("store", "a PostgreSQL URL")
    assert rule in caught.value.rule
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@host:port/db",
        f"postgresql://ann:{SECRET}@host/db?schema=x&colour=red",
        f"postgresql://ann:{SECRET}@@host/db?colour=red",
        f"postgresql://ann:a:{SECRET}@host:1:2/db",
        f"postgresql://ann:a@{SECRET}@host/db?colour=red",
        f"postgresql://ann:a/{SECRET}@host/db?colour=red",
        f"postgresql://ann:a/{SECRET}@host/db",
        f"postgresql://ann:a@{SECRET}@host/db",
        f"postgresql://ann:a?{SECRET}@host/db?colour=red",
        f"postgresql://ann:a#{SECRET}@host/db?colour=red",
        f"postgresql:host=x password={SECRET}",
        f"postgresql:password='{SECRET}",
        f"postgresql://host/db?password={SECRET}&colour=red",
        f"postgresql://ann:%zz{SECRET}@host/db",
        f"postgress://ann:{SECRET}@host/db",
        f"mysql://ann:a@{SECRET}@host/db",
        f"mysql://ann:a/b:{SECRET}\n@host/db",
        f"x:host=x PASSWORD = {SECRET}",
    ],
)
def test_a_password_is_never_shown_however_wrong_the_url_is(url: str) -> None:
    for opening in (open_store, open_catalog):
        with pytest.raises(HeadraceError) as caught:
            opening(url)
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in f"{error} {error!r}"
            error = error.__cause__
    assert SECRET not in shown(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:/var/lib/headrace", "file:/var/lib/headrace"),
        ("postgresql://ann:p@host/db?schema=x", "postgresql://ann:***@host/db?schema=x"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://host/db?password=p&schema=x", "postgresql://host/db?password=***&schema=x"),
    ],
)
def test_what_is_no_password_is_shown(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_a_password_in_an_error_is_taken_out() -> None:
    import psycopg

    address = DatabaseAddress("postgresql://host/db", {"password": SECRET})
    assert reason_of(psycopg.OperationalError(f"no\n  {SECRET} way"), address) == "no *** way"
    assert reason_of(psycopg.OperationalError(), DatabaseAddress("x", {})) == "OperationalError"


def test_a_wrong_password_is_a_clear_error_at_once(postgres: PostgresServer) -> None:
    url = postgres.url().replace(PASSWORD_IN_URL, SECRET)
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_database_that_is_not_there_is_a_clear_error_at_once(postgres: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        open_store(postgres.url("nowhere"))


def test_without_psycopg_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("headrace.storage.postgres"):
            raise ImportError("No module named 'psycopg'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InvalidInput, match=r"pip install 'headrace\[postgres\]'"):
        open_store("postgresql://host/db")
