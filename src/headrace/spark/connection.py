"""The connection from Spark to a broker: the address that is sent to executors, and one client per process.

A Python worker of Spark serves many tasks, so its client is cached. Calls are retried until the timeout if the broker
restarts, the store is locked for a moment or an answer is lost; every call made here is idempotent. Thread-safe; a
forked process creates its own clients.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headrace.client import Client, connect
from headrace.client.addresses import parse_addresses
from headrace.client.connection import URL_DEFAULT, URL_VARIABLE
from headrace.client.retry import Backoff
from headrace.core.errors import HeadraceError
from headrace.core.retry import is_transient

Result = TypeVar("Result")

# Timeout of one attempt; retries are decided here.
_ATTEMPT_SECONDS: Final = 2.0

_lock = threading.Lock()
_clients: dict[tuple[int, Connection], Client] = {}


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of the broker and the credentials. Secrets are not shown."""

    url: str
    token: str | None = field(default=None, repr=False)
    root_certificates: bytes | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0

    def __post_init__(self) -> None:
        parse_addresses(self.url)

    def client(self) -> Client:
        """The client of this process."""
        key = (os.getpid(), self)
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = connect(
                    self.url, self.token, root_certificates=self.root_certificates, timeout_seconds=_ATTEMPT_SECONDS
                )
                _clients[key] = client
            return client

    def call(self, does: Callable[[Client], Result], more_seconds: float = 0.0) -> Result:
        """Run an idempotent call, with retries until it succeeds or the time is up; much work may have more of it."""
        backoff = Backoff(self.timeout_seconds + more_seconds)
        while True:
            try:
                return does(self.client())
            except HeadraceError as error:
                if not is_transient(error) or not backoff.wait(error):
                    raise


def default_url() -> str:
    """The address if none is given: of the environment, or of this machine."""
    named = os.environ.get(URL_VARIABLE)
    if named:
        parse_addresses(named, URL_VARIABLE)
    return named or URL_DEFAULT
