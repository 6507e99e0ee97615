"""The commands on a store in PostgreSQL: servers that share it, tokens, and no password anywhere."""

from __future__ import annotations

from headrace.storage.open import open_store
from tests.cli.processes import Server, headrace
from tests.postgres_server import PASSWORD, PASSWORD_IN_URL, PostgresServer


def assert_secret(*texts: str) -> None:
    for text in texts:
        assert PASSWORD not in text and PASSWORD_IN_URL not in text


def test_two_servers_on_one_database(postgres: PostgresServer) -> None:
    url = postgres.fresh_url()
    with Server(url, installed=True) as first, Server(url) as second:
        assert f"with store postgresql://postgres:***@127.0.0.1:{postgres.port}/postgres?schema=" in first.ready
        assert first.run("topic", "create", "orders", "--partitions", "2").code == 0
        assert first.run("produce", "orders", stdin="a\nb\n").code == 0
        assert second.run("produce", "orders", stdin="c\n").code == 0
        consumed = second.run("consume", "orders", "--from", "earliest", "--max", "3").lines()
        assert sorted(consumed) == ["a", "b", "c"]
        assert first.get("/health/ready").status_code == 200
        assert 'topic="orders"' in second.get("/metrics").text
        assert first.stop() == 0
        assert second.run("topic", "list").code == 0
        assert second.stop() == 0
        assert_secret(first.ready, second.ready, first.err, second.err)


def test_tokens_are_made_in_the_database(postgres: PostgresServer) -> None:
    url = postgres.fresh_url()
    assert "there is no store here" in headrace("token", "create", "admin", "--store", url).refused(2)
    open_store(url).close()
    made = headrace("token", "create", "admin", "--store", url, "--json").json()
    listed = headrace("token", "list", "--store", url, "--json")
    assert [each["id"] for each in listed.json()] == [made["id"]]
    assert headrace("token", "revoke", made["id"], "--store", url).code == 0
    assert_secret(listed.out, listed.err)


def test_reasons_not_to_start(postgres: PostgresServer) -> None:
    wrong = postgres.url().replace(PASSWORD_IN_URL, "s3cret")
    line = headrace("serve", "--store", wrong, "--http", "127.0.0.1:0").refused(2)
    assert "password authentication failed" in line and "s3cret" not in line
    line = headrace("serve", "--store", postgres.url("nowhere"), "--http", "127.0.0.1:0").refused(2)
    assert 'database "nowhere" does not exist' in line
    assert_secret(line)
    line = headrace("doctor", postgres.url()).refused(2)
    assert "PostgreSQL has no files to check" in line
    assert_secret(line)
