"""The epochs of producers in a store that one server owns: of several opened for one source only the newest may write.

An epoch is the time of opening, made to grow, so it stays comparable after a restart and is not stored. After a restart
the first producer of a source is accepted with the epoch it has, until one with a newer epoch arrives. Beyond a maximum
the source that was opened longest ago is forgotten, and its next producer is accepted in the same way.

Not thread-safe: a log uses it only inside a commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.limits import PRODUCERS_MAX
from headrace.core.publish.sources import Source


class LocalFences:
    """The newest epoch of each source of one topic, in memory."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._epochs: dict[Source, int] = {}

    def epochs(self, sources: Sequence[Source]) -> dict[Source, int]:
        """The newest epoch of each source that has one."""
        return {source: self._epochs[source] for source in sources if source in self._epochs}

    def put(self, source: Source, epoch: int) -> None:
        """Fence producers with older epochs."""
        # Removed and inserted again, so that the order is that of the last opening.
        self._epochs.pop(source, None)
        self._epochs[source] = epoch
        if len(self._epochs) > self._producers_max:
            del self._epochs[next(iter(self._epochs))]
