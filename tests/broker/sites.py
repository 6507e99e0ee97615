"""Where a broker of a test keeps its store: the engines that the contract is run on, and a place to open them.

An engine joins the contract by one line in ENGINES.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.broker import Broker, BrokerSettings
from headrace.storage.interface import Store
from headrace.storage.open import open_store
from tests.broker.clock import SettableClock


@dataclass(frozen=True)
class Engine:
    """An engine as the tests see it: what it needs of the fixtures to make the URL of a store in a directory.

    A durable store survives a restart. A shared one may be opened by several brokers at once, and its members survive.
    """

    name: str
    url: Callable[[Path, Callable[[str], Any]], str]
    is_durable: bool = False
    is_shared: bool = False


# Segments are tiny, so that a few commits roll; what `sync` adds is the matter of the storage tests.
MEMORY = Engine("memory", lambda directory, fixture: "memory:")
DISK = Engine("disk", lambda directory, fixture: f"file:{directory}?durability=os&segment_frames=3", is_durable=True)
POSTGRES = Engine(
    "postgres",
    lambda directory, fixture: str(fixture("postgres").fresh_url("segment_commits=3")),
    is_durable=True,
    is_shared=True,
)
ENGINES = (MEMORY, DISK, POSTGRES)
DURABLE_ENGINES = tuple(engine for engine in ENGINES if engine.is_durable)


@dataclass
class Site:
    """A store's place, and the clock that every broker opened on it goes by."""

    engine: Engine
    directory: Path
    url: str
    clock: SettableClock = field(default_factory=SettableClock)
    _open: list[Broker] = field(default_factory=list)
    _neighbours: list[Site] = field(default_factory=list)

    @classmethod
    def make(
        cls, engine: Engine, directory: Path, fixture: Callable[[str], Any], clock: SettableClock | None = None
    ) -> Site:
        """A store that nobody used."""
        return cls(engine, directory, engine.url(directory, fixture), clock or SettableClock())

    def open(self, store: Any = None, **settings: Any) -> Broker:
        """A broker on this store, or on what a test put around it, whose maintenance runs when the test says so."""
        opened: Store = open_store(self.url) if store is None else store
        broker = Broker(opened, BrokerSettings(**settings), self.clock)
        self._open.append(broker)
        return broker

    def reopen(self, broker: Broker, **settings: Any) -> Broker:
        """The broker of the next process."""
        broker.close()
        return self.open(**settings)

    def crashed(self, directory: Path) -> Site:
        """This store as a process finds it that starts after the broker of now died: nothing was closed."""
        if self.engine.is_shared:
            self._neighbours.append(Site(self.engine, self.directory, self.url, self.clock))
            return self._neighbours[-1]
        shutil.copytree(self.directory, directory)
        return Site(self.engine, directory, self.url.replace(str(self.directory), str(directory)), self.clock)

    def close(self) -> None:
        """Close every broker that was opened here."""
        for broker in self._open:
            broker.close()

    def close_all(self) -> None:
        """And those that were opened after a crash."""
        for site in (self, *self._neighbours):
            site.close()
