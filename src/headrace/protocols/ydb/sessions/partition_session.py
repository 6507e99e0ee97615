"""A partition that a read session reads: where it is, what is committed, and whether it is being given up."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.protocols.ydb.sessions.commit_ranges import HOLES_MAX, CommitRanges
from headrace.protocols.ydb.statuses import Status, YdbRefusal


@dataclass(slots=True, eq=False)
class PartitionSession:
    """One partition of a session; `position` is the next offset to send, None until the client has started it.

    is_stopping: the client was asked to give it up. is_stopped: it has, and sends no more commits.
    """

    id: int
    partition: int
    ranges: CommitRanges
    start: int
    position: int | None = None
    is_stopping: bool = False
    is_stopped: bool = False
    stop_by: float = 0.0
    # What the answer to a commit is to tell.
    announced: int = field(init=False)

    def __post_init__(self) -> None:
        self.announced = self.ranges.committed

    @property
    def is_read(self) -> bool:
        """Whether messages may be sent."""
        return self.position is not None and not self.is_stopping

    def take(self, start: int, end: int) -> None:
        """Take a range that the client commits."""
        if not self.ranges.is_new(start, end):
            shown = f"[{start}, {end}) of partition {self.partition}"
            rule = f"it is empty, or below the committed offset {self.ranges.committed}"
            raise YdbRefusal(Status.BAD_REQUEST, f"the range {shown} cannot be committed: {rule}")
        self.ranges.add(start, end)
        if len(self.ranges) > HOLES_MAX:
            rule = f"{HOLES_MAX} ranges wait for offsets before them: commit those"
            raise YdbRefusal(Status.BAD_REQUEST, f"partition {self.partition}: {rule}")
