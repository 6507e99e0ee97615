"""The partitions that a consumer reads: which, from where, what of it is committed, and how they change.

    session ──membership──► take_up ──► callbacks ──► positions ──► intake (reads on from there)
                                                          ▲
    messages given out ──► progress ──► commit ───────────┘ refused, or lost: continue at the committed offset

Without a session the partitions are all of the topic, or those that the caller chose, and nothing is committed. Used by
the thread that polls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from headrace.client.consumer.intake import Intake
from headrace.client.consumer.progress import ReadProgress
from headrace.client.consumer.session import FixedSession, Session
from headrace.client.read.start import positions_at
from headrace.client.retry import Calls
from headrace.core.checks import check_index, check_whole
from headrace.core.errors import InvalidInput, PartitionNotFound
from headrace.core.limits import SEQNO_MAX
from headrace.core.positions import AtTime, Earliest, Latest, Position
from headrace.core.reports.descriptions import Membership, TransactionOffsets
from headrace.wire.operations import CommitOffsets, DescribeGroup

# How often a commit is retried while the group is rebalanced.
_COMMIT_ATTEMPTS: Final = 5

# Called with partitions: their numbers, or topics and numbers if there are several topics.
PartitionsChanged = Callable[[list[Any]], object]


class Callbacks(NamedTuple):
    """What the user wants to know about partitions."""

    assigned: PartitionsChanged
    revoked: PartitionsChanged
    lost: PartitionsChanged


def callbacks_of(
    assigned: PartitionsChanged | None, revoked: PartitionsChanged | None, lost: PartitionsChanged | None
) -> Callbacks:
    """Callbacks, some of which may be omitted: without `lost`, lost partitions go to `revoked`."""
    return Callbacks(assigned or _nothing, revoked or _nothing, lost or revoked or _nothing)


def _nothing(partitions: list[Any]) -> None:
    """The default callback, which does nothing."""


class Assignment:
    """The partitions of one consumer of one topic."""

    def __init__(
        self,
        calls: Calls,
        topic: str,
        start: Position,
        intake: Intake,
        progress: ReadProgress,
        callbacks: Callbacks,
        chosen: Collection[int] | None = None,
    ) -> None:
        self._calls = calls
        self._topic = topic
        self._start = start
        self._intake = intake
        self._progress = progress
        self._callbacks = callbacks
        self._chosen = chosen
        self._group = ""
        self._session: Session | None = None
        # Where partitions without a committed offset begin. Kept, since the last N messages are others later.
        self._begins: dict[int, int] = {}
        # Partitions whose commit was rejected, and those that were reported as lost, until the new assignment is known.
        # What was read from them is returned again, so it is not committed before.
        self._refused: set[int] = set()
        self._lost: set[int] = set()
        self._paused: set[int] = set()

    def begin(self) -> None:
        """Read without a group."""
        self._follow(positions_at(self._calls, self._topic, self._start, self._chosen))

    def begin_in(self, group: str, session: Session) -> None:
        """Read the partitions of a session."""
        self._group, self._session = group, session
        self._assign(session.known)

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read."""
        return sorted(self._progress.positions())

    # Changes of the group

    def take_up(self, session: Session) -> None:
        """Take up the present membership; called between polls, so that nothing changes during processing.

        Partitions that are revoked are still owned here: the callback may commit. Then they are let go. Of those that
        are lost nothing is committed any more: the callback may drop what it holds of them.
        """
        view = session.present()
        before, present = session.known, view.membership
        held = self.partitions
        owned = set() if session.is_rejoined(view) else {*present.partitions, *present.revoking}
        lost = [partition for partition in held if partition not in owned]
        revoked = [partition for partition in held if partition in owned and partition in present.revoking]
        if isinstance(session, FixedSession):
            revoked, lost = lost, revoked
        if revoked:
            self._callbacks.revoked(revoked)
        if lost:
            self._lost.update(lost)
            self._callbacks.lost(lost)
        if _was_moved(before, present):
            # What was read before counts no more.
            self._refused.update(present.partitions)
        if self._refused or self._lost or held != sorted(present.partitions):
            # If it fails, the next poll finds the change again, instead of reading on with the partitions of before.
            self._assign(present)
        session.hold(view)

    def _assign(self, membership: Membership) -> None:
        """Start reading the partitions of a new membership: kept ones continue, others start at the committed offsets.

        So do those that were lost and are back, and those whose commit was rejected: what was returned from them does
        not count.
        """
        present, partitions = self._progress.positions(), membership.partitions
        gained = [partition for partition in partitions if partition not in present or partition in self._lost]
        moved = [partition for partition in partitions if partition in self._refused or partition in gained]
        positions = {partition: present[partition] for partition in partitions if partition not in moved}
        if moved:
            is_told = not self._refused and membership.positions.keys() >= set(moved) and self._begins_in_group()
            positions |= (
                {partition: membership.positions[partition] for partition in moved}
                if is_told
                else self._committed(moved)
            )
            self._progress.committed(moved)
        self._refused.clear()
        self._lost.clear()
        self._paused -= set(gained)
        self._follow(positions)
        if gained:
            self._callbacks.assigned(gained)

    def _begins_in_group(self) -> bool:
        """Whether the group says where partitions without a committed offset begin."""
        return isinstance(self._start, Earliest | Latest | AtTime)

    def _committed(self, partitions: list[int]) -> dict[int, int]:
        progress = self._calls(DescribeGroup(self._topic, self._group)).progress
        for partition in partitions:
            if partition not in progress:
                # The topic was deleted meanwhile, and a smaller one has its name.
                raise PartitionNotFound(self._topic, partition, len(progress))
        positions = {partition: progress[partition].position for partition in partitions}
        if not self._begins_in_group():
            begins = [partition for partition in partitions if progress[partition].committed is None]
            # One that begins beyond the end began in a topic that was deleted.
            new = [each for each in begins if self._begins.get(each, math.inf) > progress[each].end]
            if new:
                self._begins |= positions_at(self._calls, self._topic, self._start, new)
            positions |= {partition: self._begins[partition] for partition in begins}
        return positions

    # Commits

    def commit(self, given: Mapping[int, int] | None) -> list[int]:
        """Commit what was given out, or given offsets; returns the partitions that this consumer does not own."""
        session = self._session
        if session is None:
            raise InvalidInput("group", "none", "only a consumer with a group can commit")
        if session.polled():
            session.renew()
        positions = self._progress.positions()
        offsets = self._progress.uncommitted() if given is None else _check_offsets(given)
        invalid = (self._refused | self._lost) & offsets.keys()
        valid = {partition: offset for partition, offset in offsets.items() if partition not in invalid}
        refused = sorted([*invalid, *self._commit(valid, session)])
        done = {partition: offset for partition, offset in valid.items() if partition not in refused}
        self._progress.committed(each for each, offset in done.items() if positions.get(each) == offset)
        self._refused.update(each for each in refused if each in positions)
        return refused

    def uncommitted(self) -> list[TransactionOffsets]:
        """What was given out and not committed, for a transaction: it is refused if another member has any of it."""
        session = self._session
        if session is None:
            raise InvalidInput("group", "none", "only a consumer with a group can commit")
        if session.polled():
            session.renew()
        offsets, generation = self._progress.uncommitted(), session.known.generation
        return [TransactionOffsets(self._topic, self._group, offsets, session.member, generation)] if offsets else []

    def was_committed(self, offsets: Mapping[int, int]) -> None:
        """A transaction has committed these offsets."""
        positions = self._progress.positions()
        self._progress.committed(each for each, offset in offsets.items() if positions.get(each) == offset)

    def _commit(self, offsets: dict[int, int], session: Session) -> list[int]:
        """What is refused is tried again by the present membership, which may own it since."""
        present, left, lost = session.known, offsets, list[int]()
        for _ in range(_COMMIT_ATTEMPTS):
            if not left:
                break
            operation = CommitOffsets(self._topic, self._group, left, session.member, present.generation, partial=True)
            outcome = self._calls(operation)
            assert outcome is not None, "a partial commit has an outcome"
            if outcome.refused:
                present = session.renew()
            elif outcome.generation != present.generation:
                session.look_soon()
            owned = set() if _was_moved(session.known, present) else {*present.partitions, *present.revoking}
            lost += [partition for partition in outcome.refused if partition not in owned]
            left = {partition: left[partition] for partition in outcome.refused if partition in owned}
        return sorted([*lost, *left])

    # Positions

    def seek(self, to: Mapping[int, int] | None, position: Position) -> None:
        """Continue elsewhere in some partitions, or at a position in all."""
        present = self._progress.positions()
        if to is not None:
            self._check_read(to)
            moved = dict(to)
        else:
            is_all = self._session is None and self._chosen is None
            moved = positions_at(self._calls, self._topic, position, None if is_all else present)
        self._progress.move(moved)
        self._follow({**present, **moved})

    def pause(self, partitions: Iterable[int] | None) -> None:
        """Stop returning messages of some or all partitions."""
        self._set_paused(self._paused | self._named(partitions))

    def resume(self, partitions: Iterable[int] | None) -> None:
        """Return messages of some or all partitions again."""
        self._set_paused(self._paused - self._named(partitions))

    @property
    def paused(self) -> list[int]:
        """The partitions that are paused."""
        return sorted(self._paused)

    def _named(self, partitions: Iterable[int] | None) -> set[int]:
        named = set(self.partitions if partitions is None else partitions)
        self._check_read(named)
        return named

    def _set_paused(self, paused: set[int]) -> None:
        if paused != self._paused:
            self._paused = paused
            self._follow(self._progress.positions())

    def _check_read(self, partitions: Iterable[int]) -> None:
        read = self.partitions
        for partition in partitions:
            if partition not in read:
                raise InvalidInput("partition", repr(partition)[:100], f"this consumer reads {read}")

    def _follow(self, positions: dict[int, int]) -> None:
        self._paused &= set(positions)
        self._progress.begin(positions)
        followed = {partition: offset for partition, offset in positions.items() if partition not in self._paused}
        # While something is paused, partitions that are added later wait: the server would add the paused ones too.
        is_growing = self._session is None and self._chosen is None and not self._paused
        self._intake.follow(followed, is_growing)


def _was_moved(before: Membership, present: Membership) -> bool:
    """Whether an operator moved the group between two memberships, or deleted it, which restarts its generations."""
    return present.seek_generation > before.generation or present.generation < before.generation


def _check_offsets(given: Mapping[int, int]) -> dict[int, int]:
    return {
        check_index("partition", partition): check_whole("offset", offset, 0, SEQNO_MAX)
        for partition, offset in given.items()
    }
