"""A member of an open group, as a value: the partitions it owns, and which server hears it.

When its session ends is not in it: only the server that hears it knows (`broker/groups/sessions`), so that a heartbeat
which changes nothing leaves the value as it is.
"""

from __future__ import annotations

import msgspec


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of an open group.

    session_timeout_us: how long it may be silent.
    read_generation: the generation in which it joined or last fetched; commits without a generation use it.
    owned: the partitions it may read and commit, each with the generation in which it was given.
    revoking: those of them that it should let go, each with the generation in which it was asked to.
    release_timeout_us: how long it may take to let a partition go; 0 if it does not acknowledge.
    topic_index: the index of the topic among those that it reads; None if it reads one topic.
    server: the server of a shared store that hears it, and alone may find it silent; empty on other stores.
    """

    session_timeout_us: int
    read_generation: int = 0
    owned: dict[int, int] = {}
    # An earlier version stored `revoking` with times.
    revoking: dict[int, int] = msgspec.field(default_factory=dict, name="asked")
    release_timeout_us: int = 0
    topic_index: int | None = None
    server: str = ""

    @property
    def reads(self) -> list[int]:
        """The partitions that it should read: those it owns and need not let go."""
        return sorted(self.owned.keys() - self.revoking.keys())
