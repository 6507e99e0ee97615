"""A real server that speaks YDB's protocol, and YDB's own SDK to talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ydb

from tests.ports import ReservedPort
from tests.server_process import ServerProcess

DATABASE = "/local"
PATIENCE_SECONDS = 60.0


class YdbSite:
    """A server with a port for YDB; it can be killed, and started again at the same ports."""

    def __init__(self, store: str, *arguments: str) -> None:
        self._reserved = ReservedPort()
        self.endpoint = f"127.0.0.1:{self._reserved.number}"
        self.server = ServerProcess(store, "--ydb", self.endpoint, *arguments)

    @contextmanager
    def driver(self, token: str | None = None) -> Iterator[Any]:
        """A driver of the SDK."""
        credentials = ydb.AccessTokenCredentials(token) if token else None
        with ydb.Driver(endpoint=f"grpc://{self.endpoint}", database=DATABASE, credentials=credentials) as driver:
            driver.wait(timeout=PATIENCE_SECONDS)
            yield driver

    def close(self) -> None:
        """Stop the server."""
        self.server.close()
        self._reserved.close()


def write(driver: Any, topic: str, values: list[str], **options: Any) -> list[Any]:
    """Write texts in a session; what became of each."""
    with driver.topic_client.writer(topic, **options) as writer:
        return [writer.write_with_ack(value, timeout=PATIENCE_SECONDS) for value in values]


def read(
    driver: Any, topic: Any, consumer: str | None, count: int, commit: Callable[[Any, Any], None] | None = None
) -> Any:
    """Read so many messages in a session, and do something with each."""
    found = []
    with driver.topic_client.reader(topic, consumer=consumer) as reader:
        for _ in range(count):
            message = reader.receive_message(timeout=PATIENCE_SECONDS)
            found.append(message)
            if commit is not None:
                commit(reader, message)
    return found


def commit(reader: Any, message: Any) -> None:
    """Commit a message, and wait until that is durable."""
    reader.commit_with_ack(message, timeout=PATIENCE_SECONDS)
