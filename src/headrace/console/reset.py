"""What resetting a group to other offsets would do, partition by partition, before it is done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.core.reports.descriptions import GroupDescription

Target = Literal["earliest", "latest", "offset", "time", "delta"]


@dataclass(frozen=True)
class Move:
    """Where a group continues in one partition: how many messages it skips, or reads again."""

    partition: int
    before: int
    after: int

    @property
    def skipped(self) -> int:
        """How many messages it will not read."""
        return max(0, self.after - self.before)

    @property
    def read_again(self) -> int:
        """How many messages it will read a second time."""
        return max(0, self.before - self.after)


def moves(
    group: GroupDescription,
    bounds: Mapping[int, tuple[int, int]],
    target: Target,
    number: int = 0,
    at_time: Mapping[int, int] | None = None,
    partitions: Iterable[int] | None = None,
) -> list[Move]:
    """Where the group would continue, in all partitions or some.

    `number` is the offset or the delta; `at_time` the offset at the wanted time by partition. What lies outside of a
    partition is moved to its nearest end.
    """
    chosen = sorted(bounds if partitions is None else set(partitions) & set(bounds))
    found = []
    for partition in chosen:
        start, end = bounds[partition]
        progress = group.progress.get(partition)
        before = start if progress is None else progress.position
        wanted = {
            "earliest": start,
            "latest": end,
            "offset": number,
            "time": (at_time or {}).get(partition, end),
            "delta": before + number,
        }[target]
        found.append(Move(partition, before, min(max(wanted, start), end)))
    return found
