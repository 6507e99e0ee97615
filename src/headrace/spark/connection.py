"""The way from Spark to a broker: what travels to the executors, and the one client that each process makes of it.

A Python worker of Spark serves many tasks, so its client is kept. Calls are patient: a broker that restarts, a store
that is locked for a moment and a lost answer are tried again until the time is up; every call made through here may be
done twice. Safe for threads; a process that was forked makes clients of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headrace.client import Client, connect
from headrace.client.addresses import parse_addresses
from headrace.client.retry import Backoff
from headrace.core.errors import HeadraceError
from headrace.core.retry import is_transient

Result = TypeVar("Result")

# One attempt; how often that is repeated is decided here.
_ATTEMPT_SECONDS: Final = 2.0

_lock = threading.Lock()
_clients: dict[tuple[int, Connection], Client] = {}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the broker is, and who calls. The secret parts are not shown."""

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

    def call(self, does: Callable[[Client], Result]) -> Result:
        """Do something that may be done twice, again and again until it is done or the time is up."""
        backoff = Backoff(self.timeout_seconds)
        while True:
            try:
                return does(self.client())
            except HeadraceError as error:
                if not is_transient(error) or not backoff.wait():
                    raise
