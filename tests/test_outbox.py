"""The outbox: each row is published once, whenever it was committed and wherever the relay was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace import Client
from headrace.core.errors import InvalidInput, ProducerFenced
from headrace.outbox import Relay, outbox_table
from headrace.testing import embedded
from tests.postgres_server import PostgresServer

OUTBOX = outbox_table()


def of_sqlalchemy(server: PostgresServer) -> str:
    """The URL of a fresh database."""
    return server.url(server.fresh_database()).replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def client() -> Iterator[Client]:
    with embedded() as made:
        made.create_topic("orders")
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/app.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = of_sqlalchemy(server)
    made = sa.create_engine(url)
    OUTBOX.metadata.create_all(made)
    yield made
    made.dispose()


def add(engine: sa.Engine, *values: str, topic: str = "orders") -> None:
    with engine.begin() as connection:
        for value in values:
            connection.execute(OUTBOX.insert().values(topic=topic, key=b"k", value=value.encode()))


def published(client: Client, topic: str = "orders") -> list[str]:
    return [value.as_py().decode() for value in client.to_arrow(topic).column("value")]


def left(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(OUTBOX)).scalar_one()


def test_rows_are_published_with_all_that_they_have(client: Client, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        row = OUTBOX.insert().values(topic="orders", key=b"ann", value=b"42", attributes={"kind": "sale"})
        connection.execute(row)
        connection.execute(OUTBOX.insert().values(topic="orders", key=b"ann"))
    with Relay(engine, client) as relay:
        assert relay.run_once() == 2
        assert relay.run_once() == 0
    found = client.to_arrow("orders")
    assert found.column("value").to_pylist() == [b"42", None]
    assert found.column("key").to_pylist() == [b"ann", b"ann"]
    assert found.column("attributes").to_pylist() == [[("kind", b"sale")], None]
    assert left(engine) == 0


def test_a_lower_id_that_commits_later_is_published_too(client: Client, postgres: PostgresServer) -> None:
    engine = sa.create_engine(of_sqlalchemy(postgres))
    OUTBOX.metadata.create_all(engine)
    with engine.connect() as slow, Relay(engine, client) as relay:
        slow.execute(OUTBOX.insert().values(topic="orders", value=b"first id"))
        add(engine, "second id")
        assert relay.run_once() == 1
        slow.commit()
        assert relay.run_once() == 1
    assert published(client) == ["second id", "first id"]
    engine.dispose()


@pytest.mark.parametrize("step", ["_numbered", "_publish", "delete"])
def test_a_relay_that_ends_between_steps(
    client: Client, engine: sa.Engine, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(engine, "a", "b")
    with Relay(engine, client) as relay, monkeypatch.context() as patched:
        if step == "delete":
            patched.setattr("headrace.outbox.sa.delete", lambda *_: 1 / 0)
        else:
            patched.setattr(relay, step, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            relay.run_once()
    add(engine, "c")
    with Relay(engine, client) as relay:
        while relay.run_once():
            pass
    assert published(client) == ["a", "b", "c"]
    assert left(engine) == 0


def test_numbers_go_on_where_the_topic_is_when_the_table_is_empty(client: Client, engine: sa.Engine) -> None:
    for value in "abc":
        add(engine, value)
        with Relay(engine, client) as relay:
            assert relay.run_once() == 1
    assert published(client) == ["a", "b", "c"]


def test_each_topic_has_numbers_of_its_own(client: Client, engine: sa.Engine) -> None:
    client.create_topic("returns")
    with Relay(engine, client) as relay:
        add(engine, *"abcde")
        relay.run_once()
        add(engine, "r", topic="returns")
        add(engine, "f")
        relay.run_once()
    assert published(client) == [*"abcdef"] and published(client, "returns") == ["r"]


def test_a_second_relay_takes_over(client: Client, engine: sa.Engine) -> None:
    add(engine, "a")
    with Relay(engine, client) as first, Relay(engine, client) as second:
        first.run_once()
        add(engine, "b")
        second.run_once()
        add(engine, "c")
        with pytest.raises(ProducerFenced):
            first.run_once()
        second.run_once()
    assert published(client) == ["a", "b", "c"]


def test_a_database_that_was_restored_is_behind_the_topic(client: Client, engine: sa.Engine) -> None:
    add(engine, "a", "b")
    with Relay(engine, client) as relay:
        relay.run_once()
    with engine.begin() as connection:
        connection.execute(sa.delete(OUTBOX.metadata.tables["headrace_outbox_numbers"]))
    add(engine, "c")
    with Relay(engine, client) as relay:
        relay.run_once()
    assert published(client) == ["a", "b", "c"]


def test_an_id_that_something_else_publishes_with(client: Client, engine: sa.Engine) -> None:
    add(engine, "a")
    with Relay(engine, client) as relay:
        relay._number(10)
        with client.producer("orders", "outbox") as other:
            other.send(b"not of the relay")
        with Relay(engine, client) as again, pytest.raises(InvalidInput, match="was used for another message"):
            again.run_once()
