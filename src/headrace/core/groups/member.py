"""A member of an open group, as a value: its session, and the partitions it owns."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Revocation(NamedTuple):
    """A partition that its owner should let go: since which generation, and when it is taken."""

    generation: int
    until_us: int


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of an open group.

    deadline_us: when its session expires, `session_timeout_us` after its last heartbeat.
    read_generation: the generation in which it joined or last fetched; commits without a generation use it.
    owned: the partitions it may read and commit, each with the generation in which it was given.
    revoking: those of them that it should let go.
    release_timeout_us: how long it may take to let a partition go; 0 if it does not acknowledge.
    topic_index: the index of the topic among those that it reads; None if it reads one topic.
    """

    session_timeout_us: int
    deadline_us: int
    read_generation: int = 0
    owned: dict[int, int] = {}
    revoking: dict[int, Revocation] = {}
    release_timeout_us: int = 0
    topic_index: int | None = None

    @property
    def reads(self) -> list[int]:
        """The partitions that it should read: those it owns and need not let go."""
        return sorted(self.owned.keys() - self.revoking.keys())

    @property
    def next_deadline_us(self) -> int:
        """When its session ends, or the time to let a partition go."""
        return min([self.deadline_us, *(revocation.until_us for revocation in self.revoking.values())])
