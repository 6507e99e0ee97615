"""A store in the database of the tests, the servers on it, and a plain connection beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.core.names import topic_key
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.postgres.engine import PostgresStore
from headrace.storage.postgres.log.log import PostgresLog
from tests.postgres_server import PostgresServer
from tests.storage.builders import CREATED_US, NOW_US

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Site:
    """A new store; `open` opens a server on it, with options of its own."""

    server: PostgresServer
    url: str
    opened: Callable[[str], PostgresStore]

    @property
    def schema(self) -> str:
        return self.url.rpartition("schema=")[2]

    def open(self, options: str = "", port: int | None = None) -> PostgresStore:
        """Another server on the store."""
        url = f"{self.url}&{options}" if options else self.url
        return self.opened(url if port is None else url.replace(f":{self.server.port}/", f":{port}/"))

    def plain(self) -> psycopg.Connection:
        """A connection as any user has it, which finds our tables."""
        connection = self.server.connect()
        connection.execute(f"SET search_path = {self.schema}")
        return connection

    def ask(self, query: str, parameters: Any = None) -> list[Any]:
        """What a query gives."""
        with self.plain() as connection:
            return connection.execute(query, parameters).fetchall()

    def do(self, statement: str) -> None:
        with self.plain() as connection:
            connection.execute(statement)


def create(
    store: PostgresStore, name: str = "Orders", partitions: int = 2, settings: TopicSettings = DEFAULT_SETTINGS
) -> TopicRecord:
    """A new topic."""
    return store.catalog.add_topic(
        name, topic_key(name), partitions, settings, CREATED_US, lambda topic: store.create_log(topic, CREATED_US)
    )


def log_of(store: PostgresStore, topic: TopicRecord) -> PostgresLog:
    return store.open_log(topic, NOW_US)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that will come, however slow the machine is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.005)
