"""What Kafka's clients say when they commit: an offset of any value, the epoch of a leader, and bytes of their own.

A group's position stays within its partition whatever they say, so that it skips nothing: a negative offset is the
oldest message, and one beyond the end is the end as it was at the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class CommitNote(NamedTuple):
    """What was said about a partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: bytes = b""

    def position(self, end: int) -> int:
        """The offset that counts as committed, in a partition that ends there."""
        return min(max(0, self.offset), end)


NO_NOTES: Final[Mapping[int, CommitNote]] = MappingProxyType({})


def told(position: int, note: CommitNote | None, end: int) -> CommitNote:
    """What a client is told of a commit: what was said, unless messages have come that it would skip."""
    if note is None:
        return CommitNote(position)
    is_beyond = note.offset < 0 or note.offset > end
    return note if is_beyond else note._replace(offset=position)
