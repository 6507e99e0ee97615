"""The grace period of the first token: callers without one are served until its end, over each protocol."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import connect
from headrace.client.client import Client
from headrace.core.errors import HeadraceError, Unauthenticated
from tests.cli.processes import Server, eventually, headrace
from tests.protocols.kafka.raw import RawClient
from tests.protocols.native.raw import RawNative

PROTOCOLS = ("--kafka", "127.0.0.1:0", "--native", "127.0.0.1:0")
METADATA = 3


class Strangers:
    """One caller without a token over each protocol, whose connections stay open."""

    def __init__(self, server: Server, opened: ExitStack) -> None:
        def port(protocol: str) -> int:
            return int(next(word for word in server.ready.split() if word.startswith(protocol)).rpartition(":")[2])

        self._server = server
        self.client: Client = opened.enter_context(connect(server.flight_url))
        self.kafka = opened.enter_context(RawClient(port("kafka:")))
        self.native = opened.enter_context(RawNative(port("native:")))
        self.native.open("orders")

    def http_status(self, token: str = "") -> int:
        return self._server.get("/v1/topics", headers={"Authorization": f"Bearer {token}"} if token else {}).status_code

    def publish(self) -> pa.RecordBatch | HeadraceError:
        """Over the native wire, in an upload that was open before."""
        self.native.message(b"message")
        return self.native.answer()

    def are_served(self) -> None:
        assert self.http_status() == 200
        assert self.client.list_topics() == ["orders"]
        assert self.kafka.call(METADATA, 12, topics=[]).brokers
        assert isinstance(self.publish(), pa.RecordBatch)

    def are_refused(self) -> None:
        eventually(lambda: self.http_status() == 401)
        with pytest.raises(Unauthenticated):
            self.client.list_topics()
        self.kafka.request(METADATA, 12, topics=[])
        assert self.kafka.is_closed()
        eventually(lambda: isinstance(self.publish(), Unauthenticated))


def end_grace(store: Path) -> None:
    """Let the time pass that the store has noted."""
    with closing(sqlite3.connect(store / "catalog.sqlite")) as catalog:
        (count,) = catalog.execute("SELECT count(*) FROM all_tokens WHERE grace_until_us IS NOT NULL").fetchone()
        assert count == 1
        catalog.execute("UPDATE all_tokens SET grace_until_us = created_us WHERE grace_until_us IS NOT NULL")
        catalog.commit()


def test_callers_without_a_token_are_served_until_the_end_of_the_grace_period(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Server(store, *PROTOCOLS) as server, ExitStack() as opened:
        server.post("topics", {"name": "orders"})
        strangers = Strangers(server, opened)
        asked = server.run("token", "create", "admin", "--grace", "1h").refused(2)
        assert "is refused after 1h; in use: 1 topic" in asked and "add --yes" in asked
        made = server.run("token", "create", "admin", "--grace", "1h", "--yes")
        (admin,) = made.lines()
        assert "callers without a token are served until 20" in made.err
        # A wrong token is refused at once, so that it is noticed while there is time.
        eventually(lambda: strangers.http_status("hr_none_none") == 401)
        strangers.are_served()
        assert strangers.http_status(admin) == 200
        assert "only the first token" in server.run("token", "create", "till", "--grace", "1h", "--yes").refused(1)
        assert server.stop() == 0

    # The store knows until when: another server on it does too.
    with Server(store, *PROTOCOLS) as server, ExitStack() as opened:
        strangers = Strangers(server, opened)
        strangers.are_served()
        told = server.run("status")
        assert told.code == 1 and "warning  the store: callers without a token are served until 20" in told.out
        assert "more. Give each of them a token" in told.out and "headrace client list" in told.out
        assert "callers without a token are served until 20" in server.run("token", "list").err
        end_grace(store)
        strangers.are_refused()
        # A verdict is at most a second old.
        eventually(lambda: server.run("status", HEADRACE_TOKEN=admin).code == 0)
        assert server.run("token", "list", HEADRACE_TOKEN=admin).err == ""
        assert server.stop() == 0


def test_a_server_that_requires_tokens_serves_nobody_without_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Server(store) as server:
        server.post("topics", {"name": "orders"})
        assert server.run("token", "create", "admin", "--grace", "1h", "--yes").code == 0
        assert server.stop() == 0
    with Server(store, "--require-tokens") as server:
        assert server.get("/v1/topics").status_code == 401
        assert server.stop() == 0
    for wrong in ("0s", "8d"):
        assert "grace" in headrace("token", "create", "x", "--grace", wrong, "--store", f"file:{store}").refused(2)
