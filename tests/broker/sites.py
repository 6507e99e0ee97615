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
from headrace.storage.engine import Store
from headrace.storage.urls import open_store
from tests.broker.clock import SettableClock


@dataclass(frozen=True)
class Engine:
    """An engine as the tests see it: the URL of a store in a directory, and whether it survives a restart."""

    name: str
    url: Callable[[Path], str]
    is_durable: bool


# Segments are tiny, so that a few commits roll; what `sync` adds is the matter of the storage tests.
ENGINES = (
    Engine("memory", lambda directory: "memory:", is_durable=False),
    Engine("disk", lambda directory: f"file:{directory}?durability=os&segment_frames=3", is_durable=True),
)
DURABLE_ENGINES = tuple(engine for engine in ENGINES if engine.is_durable)


@dataclass
class Site:
    """A store's place, and the clock that every broker opened on it goes by."""

    engine: Engine
    directory: Path
    clock: SettableClock = field(default_factory=SettableClock)
    _open: list[Broker] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.engine.url(self.directory)

    def open(self, store: Any = None, **settings: Any) -> Broker:
        """A broker on this store, or on what a test put around it, whose upkeep runs when the test says so."""
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
        shutil.copytree(self.directory, directory)
        return Site(self.engine, directory, self.clock)

    def close(self) -> None:
        for broker in self._open:
            broker.close()
