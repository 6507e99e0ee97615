"""What moving a group to another position would do, partition by partition, before it is done. Pure.

A position is one of `core.positions`, or `Onward`: so many messages forward or back of where the group is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.core.positions import EARLIEST, Bounds, OffsetsAtTime, PerPartition, Position, resolve
from headrace.core.reports.descriptions import GroupDescription
from headrace.core.text import counted


@dataclass(frozen=True, slots=True)
class Onward:
    """So many messages after the group's position in each partition; before it, if the number is negative."""

    messages: int


@dataclass(frozen=True, slots=True)
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

    @property
    def effect(self) -> str:
        """What it does, for people."""
        return effect_of([self])


def parse_onward(text: str) -> Onward | None:
    """`+5` as a position; None if it is something else.

    >>> parse_onward("+1")
    Onward(messages=1)
    """
    digits = text.strip().removeprefix("+")
    is_onward = text.strip().startswith("+") and digits.isascii() and digits.isdecimal() and len(digits) < 20
    return Onward(int(digits)) if is_onward else None


def moves(
    field: str,
    group: GroupDescription,
    bounds: Bounds,
    position: Position | Onward,
    offsets_at: OffsetsAtTime,
    partitions: Iterable[int] | None = None,
) -> list[Move]:
    """Where the group would continue, in all partitions or some; of a position by partition, in those that it names.

    What lies outside of a partition is moved to its nearest end. `field` names the position in errors.
    """
    chosen = set(bounds if partitions is None else partitions) & set(bounds)
    if isinstance(position, PerPartition):
        chosen &= {partition for partition, _ in position.positions}
    before = {partition: start for partition, (start, _) in bounds.items()}
    before |= {partition: at.position for partition, at in group.progress.items()}
    if isinstance(position, Onward):
        wanted = {partition: before[partition] + position.messages for partition in bounds}
    else:
        asked = bounds if isinstance(position, PerPartition) else {partition: bounds[partition] for partition in chosen}
        wanted = resolve(field, position, asked, EARLIEST, offsets_at)
    return [
        Move(partition, before[partition], min(max(wanted[partition], bounds[partition][0]), bounds[partition][1]))
        for partition in sorted(chosen)
    ]


def effect_of(found: Sequence[Move]) -> str:
    """What some moves do together.

    >>> effect_of([Move(0, 10, 12), Move(1, 5, 4)])
    'skips 2 messages and reads 1 message again'
    """
    skipped, again = sum(move.skipped for move in found), sum(move.read_again for move in found)
    effects = [f"skips {counted(skipped, 'message')}"] if skipped else []
    effects += [f"reads {counted(again, 'message')} again"] if again else []
    return " and ".join(effects)
