"""What a store of this server alone writes of its groups: all that wait share one transaction, and so one sync.

    ledger.write(GroupWrite(topic_id, "billing", offsets={0: 42}))     returns once it is durable

Consumers of many groups and topics commit at the same time, each from a thread of its own: the first of them writes for
all that wait (`combiner`). If the transaction fails, each is written again by its own thread, so that a topic that was
deleted meanwhile fails no commit of another. The writes of one group follow one another: a thread that changes a group
holds its turn (`turns`). Thread-safe; no lock is held while the catalog is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.broker.publish.combiner import Combiner, Waiter
from headrace.core.errors import HeadraceError
from headrace.storage.catalog import Catalog, GroupWrite


@dataclass(slots=True, eq=False)
class _Entry(Waiter):
    """One write, and whether it was written with the others."""

    write: GroupWrite
    is_written: bool = False


class Ledger(Combiner[_Entry]):
    """The writes of all groups of a store. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog

    def write(self, write: GroupWrite) -> None:
        """Store a change of a group, durably."""
        entry = _Entry(write)
        self.share(entry)
        if not entry.is_written:
            self._catalog.write_groups([write])

    def work(self, taken: Sequence[_Entry]) -> None:
        """Write all of them, or none: then each thread does it for itself, and learns what is wrong with its own."""
        try:
            self._catalog.write_groups([entry.write for entry in taken])
        except HeadraceError:
            return
        for entry in taken:
            entry.is_written = True
