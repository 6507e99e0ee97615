"""How much clients of Kafka may say with the commits of the groups of one topic.

    room.take(group, notes, owner)      before they are stored; InvalidInput if it is too much

Whoever may read a topic may commit in any number of groups of it, and what is said stays as long as the group. So each
group has a little, whatever others do; a group with more has it from a room of the topic, of which one caller has at
most a quarter. What does not grow is always accepted. How much a group has is asked of the store, once it may have
grown above the little. Who said it is known since this server started: what was there before is nobody's. Servers that
share a store count for themselves, and see what others stored when they look again.

Thread-safe. Two commits of one group at the same moment may both be let through.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from headrace.core.errors import InvalidInput
from headrace.core.groups.notes import CommitNote
from headrace.core.limits import COMMIT_NOTES_BYTES_MAX, COMMIT_NOTES_FREE_BYTES, GROUPS_PER_TOPIC

_CALLER_PART: Final = 4
# After a refusal the store is asked again what groups have, but not more often than this.
_AGAIN_SECONDS: Final = 1.0


class NoteStore(Protocol):
    """What groups have."""

    def note_lengths(self, name: str) -> dict[int, int]: ...

    def note_sizes(self, above: int) -> dict[str, int]: ...


class _Taken(NamedTuple):
    """What a group takes of the room, and whose it is."""

    size: int
    owner: str


class NoteRoom:
    """The room of one topic."""

    def __init__(self, store: NoteStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        # What each group has at most.
        self._most: dict[str, int] = {}
        self._taken: dict[str, _Taken] = {}
        self._looked: float | None = None

    def take(self, group: str, notes: Mapping[int, CommitNote], owner: str) -> None:
        """Count what is said with a commit, in place of what was said of the same partitions before."""
        size = sum(len(note.metadata) for note in notes.values())
        if not size or self._is_little(group, size):
            return
        before = self._store.note_lengths(group)
        after = size + sum(length for partition, length in before.items() if partition not in notes)
        is_growing = after > sum(before.values())
        if after > COMMIT_NOTES_FREE_BYTES and is_growing and not self._has_room(group, after, owner):
            raise self._refused(group, after)
        with self._lock:
            if len(self._most) > 2 * GROUPS_PER_TOPIC:
                # Most of them are gone: what is not known is asked for.
                self._most.clear()
            self._most[group] = after
            had = self._taken.pop(group, _Taken(0, ""))
            if after > COMMIT_NOTES_FREE_BYTES:
                self._taken[group] = _Taken(after, owner if is_growing else had.owner)

    def _is_little(self, group: str, size: int) -> bool:
        with self._lock:
            most = self._most.get(group)
            if most is None or most + size > COMMIT_NOTES_FREE_BYTES:
                return False
            self._most[group] = most + size
            return True

    def _has_room(self, group: str, size: int, owner: str) -> bool:
        if self._looked is None:
            self._look()
        return self._fits(group, size, owner) or (self._look() and self._fits(group, size, owner))

    def _fits(self, group: str, size: int, owner: str) -> bool:
        with self._lock:
            others = [taken for name, taken in self._taken.items() if name != group]
        own = sum(taken.size for taken in others if taken.owner == owner)
        every = sum(taken.size for taken in others)
        return own + size <= COMMIT_NOTES_BYTES_MAX // _CALLER_PART and every + size <= COMMIT_NOTES_BYTES_MAX

    def _look(self) -> bool:
        """Ask the store what groups have; whether it was time to."""
        now = self._clock()
        if self._looked is not None and now - self._looked < _AGAIN_SECONDS:
            return False
        sizes = self._store.note_sizes(COMMIT_NOTES_FREE_BYTES)
        with self._lock:
            self._looked = now
            owners = {name: taken.owner for name, taken in self._taken.items()}
            self._taken = {name: _Taken(size, owners.get(name, "")) for name, size in sizes.items()}
        return True

    def _refused(self, group: str, size: int) -> InvalidInput:
        rule = (
            f"each group of a topic may keep {COMMIT_NOTES_FREE_BYTES} bytes; all of them together "
            f"{COMMIT_NOTES_BYTES_MAX} more, and those of one caller a quarter of that: say less, or delete groups"
        )
        return InvalidInput("metadata of commits", f"{size} bytes in group {group!r}", rule)
