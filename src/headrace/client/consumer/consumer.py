"""The consumer: Arrow batches by `poll`, or single messages by iterating; without a group, or as a member.

Everything that changes what is read (a rebalance, a seek) happens in the thread that polls. Use a consumer from one
thread; `close` may be called from another.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final

import pyarrow as pa

from headrace import tracing
from headrace.client import fork
from headrace.client.consumer.intake import Intake
from headrace.client.consumer.progress import ReadProgress
from headrace.client.consumer.scan import NO_ROWS
from headrace.client.consumer.session import FixedSession, GroupSession, Session
from headrace.client.consumer.start import Start, parse_start, positions_at
from headrace.client.message import Message, messages_of
from headrace.client.retry import Calls
from headrace.client.serializers import message_reader
from headrace.client.settings import ConsumerSettings
from headrace.client.transport.transport import Transport
from headrace.core.checks import check_whole
from headrace.core.descriptions import GroupDescription, Membership
from headrace.core.errors import Closed, InvalidInput
from headrace.core.limits import FETCH_MESSAGES_DEFAULT, SEQNO_MAX
from headrace.core.positions import AtTime, Earliest, Latest, read_from
from headrace.wire.operations import CommitOffsets, Committed, DescribeGroup, RegisterGroup

# How often a commit is retried while the group is rebalanced.
_COMMIT_ATTEMPTS: Final = 5

PartitionsChanged = Callable[[list[int]], object]


class Consumer:
    """Reads one topic.

    >>> from headrace.testing import embedded
    >>> with embedded() as client:
    ...     topic = client.create_topic("orders")
    ...     with client.producer("orders") as producer:
    ...         future = producer.send(b"one loaf")
    ...     with client.consumer("orders", group="billing") as consumer:
    ...         batch = consumer.poll(max_messages=10, timeout=5)
    ...         not_committed = consumer.commit()
    >>> batch.column("value").to_pylist()
    [b'one loaf']
    """

    def __init__(
        self,
        transport: Transport,
        topic: str,
        group: str | None,
        start: Start,
        member_id: str | None,
        settings: ConsumerSettings,
        on_assigned: PartitionsChanged | None = None,
        on_revoked: PartitionsChanged | None = None,
        consumer_index: int | None = None,
        on_lost: PartitionsChanged | None = None,
    ) -> None:
        self._generation = fork.generation
        self._transport = transport
        self._topic = topic
        self._group = group
        self._start = parse_start(start)
        self._settings = settings
        self._on_assigned = on_assigned or _nothing
        self._on_revoked = on_revoked or _nothing
        self._on_lost = on_lost or self._on_revoked
        self._calls = Calls(transport, settings.timeout_seconds)
        self._progress = ReadProgress(growing=group is None)
        self._intake = Intake(transport, topic, settings, self._progress, growing=group is None)
        self._reader = message_reader(
            topic,
            settings.serializer,
            settings.key_serializer,
            settings.value_type,
            settings.key_type,
            settings.on_undecodable,
        )
        # Partitions whose commit was rejected, until the new assignment is known.
        self._refused: set[int] = set()
        self._closed = False
        self._session: Session | None = None
        if consumer_index is not None:
            _check_index(consumer_index, group, member_id)
        if group is not None:
            if consumer_index is not None:
                self._session = FixedSession(self._calls, topic, group, consumer_index, self._intake.wake)
            else:
                self._calls(RegisterGroup(topic, group, read_from=read_from(self._start)))
                member = member_id or f"member-{uuid.uuid4().hex[:12]}"
                self._session = GroupSession(self._calls, topic, group, member, settings, self._intake.wake)
            try:
                self._assign(self._session.known.partitions, [])
            except BaseException:
                self._end()
                raise
        else:
            self._follow(positions_at(self._calls, topic, self._start))

    def __repr__(self) -> str:
        group = "" if self._group is None else f" in group {self._group!r}"
        state = "closed" if self._closed else f"reading partitions {self.assignment}"
        return f"<headrace.Consumer of topic {self._topic!r}{group} ({state})>"

    # Reading

    def poll(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """Return the next messages, of one or several partitions; waits for the first, and may return none.

        With `auto_commit` the messages returned before are committed first.

        A value that cannot be decoded by its codec raises `Undecodable`, after the messages before it were returned,
        unless `on_undecodable` says otherwise. It raises again at each poll, until a `seek` skips it:
        `consumer.seek({error.partition: error.offset + 1})`.
        """
        check_whole("max_messages", max_messages, 1, SEQNO_MAX)
        batch = self.take(max_messages, timeout)
        self.give(batch)
        return batch

    def give(self, batch: pa.RecordBatch) -> None:
        """A batch that was taken is given out as a whole."""
        if batch.num_rows:
            self._progress.give(batch)

    def messages(self, idle_seconds: float | None = None) -> Iterator[Message]:
        """Iterate over single messages; ends after `timeout` without messages, or when the consumer is closed."""
        while not self._closed:
            try:
                batch = self.take(FETCH_MESSAGES_DEFAULT, idle_seconds)
            except Closed:
                if self.is_closed:
                    return
                raise
            if batch.num_rows:
                yield from self.one_by_one(batch)
            elif idle_seconds is not None:
                return

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def one_by_one(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The messages of a batch that was taken, given out as they are reached."""
        progress = self._progress
        progress.give_by_rows(batch)
        for rows, message in enumerate(messages_of(batch), 1):
            given = message if self._reader is None else self._reader.read(message)
            progress.rows_given = rows
            if given is None:
                self._intake.skipped += 1
                continue
            yield given
            if not progress.is_iterating(batch):
                # A seek or a poll in the loop's body: what is left of the batch is not what comes next here.
                return
            if self._session is not None:
                self._session.polled()
                if self._session.has_changed:
                    # The rest is returned after the change, unless its partition is given up.
                    return

    def take(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """As `poll`, for those who `give` the messages out themselves, or `one_by_one`."""
        fork.check(self._generation, "this consumer")
        if self._closed:
            raise Closed("the consumer")
        if self._session is not None:
            self._session.polled()
            if self._settings.auto_commit:
                self.commit()
        rest = self._progress.take_rest()
        if rest is not None:
            self._intake.put_back(rest)
        deadline = None if timeout is None else time.monotonic() + timeout
        started_ns = 0 if tracing.active is None else time.time_ns()
        while True:
            if self._session is not None and self._session.has_changed:
                self._rebalance(self._session)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            batch = self._intake.gather(max_messages, left)
            if batch is not None:
                if tracing.active is not None:
                    tracing.active.received(self._topic, self._group, batch, started_ns or time.time_ns())
                return batch
            if left == 0.0 or self._closed:
                return NO_ROWS

    @property
    def skipped(self) -> int:
        """The number of messages that were skipped because their values cannot be decoded."""
        return self._intake.skipped

    # Positions

    def positions(self) -> dict[int, int]:
        """The next offset to return, by partition."""
        return self._progress.positions()

    @property
    def assignment(self) -> list[int]:
        """The partitions that are read."""
        return sorted(self._progress.positions())

    @property
    def generation(self) -> int | None:
        """The generation of `assignment`; None without a group."""
        return None if self._session is None else self._session.known.generation

    def seek(self, to: Start) -> None:
        """Continue at "earliest", "latest", an offset, a time, or offsets by partition.

        Partitions that are not named keep their position.
        """
        position = parse_start(to, "to")
        fork.check(self._generation, "this consumer")
        present = self._progress.positions()
        if isinstance(to, Mapping):
            unknown = [partition for partition in to if partition not in present]
            if unknown:
                raise InvalidInput("partition", str(unknown[0]), f"this consumer reads {sorted(present)}")
            moved = dict(to)
        else:
            moved = positions_at(self._calls, self._topic, position, None if self._group is None else present)
        self._progress.move(moved)
        self._follow({**present, **moved})

    def commit(self) -> list[int]:
        """Commit the messages returned so far; in a loop over messages, up to the current one.

        Returns the partitions that could not be committed, usually none: they belong to another member now, or a seek
        moved the group. Their messages since the last commit are delivered again, here or to the other member. A
        rebalance is never an error.
        """
        fork.check(self._generation, "this consumer")
        if self._group is None or self._session is None:
            raise InvalidInput("group", "none", "only a consumer with a group can commit")
        self._session.polled()
        offsets = self._progress.uncommitted()
        refused = self._commit(offsets, self._session)
        self._progress.committed(offsets)
        self._refused.update(refused)
        return refused

    def _commit(self, offsets: dict[int, int], session: Session) -> list[int]:
        """Commit what this consumer owns; returns the partitions that it does not.

        What is refused is tried again by the present membership, which may own it since.
        """
        assert self._group is not None, "only members commit"
        present, left, lost = session.known, offsets, list[int]()
        for _ in range(_COMMIT_ATTEMPTS):
            if not left:
                break
            operation = CommitOffsets(self._topic, self._group, left, session.member, present.generation, partial=True)
            outcome = self._calls(operation)
            assert outcome is not None, "a partial commit has an outcome"
            refused = outcome.refused
            if refused:
                present = session.renew()
            elif outcome.generation != present.generation:
                session.look_soon()
            owned = set() if _was_moved(session.known, present) else {*present.partitions, *present.revoking}
            lost += [partition for partition in refused if partition not in owned]
            left = {partition: left[partition] for partition in refused if partition in owned}
        return sorted([*lost, *left])

    # Partitions

    def _assign(self, partitions: Iterable[int], lost: Collection[int]) -> None:
        """Start reading the partitions of a new membership: kept ones continue, others start at the committed offsets.

        So do those whose commit was rejected: what was returned from them does not count. One that was lost and is
        back continues behind whatever was committed meanwhile.
        """
        assert self._group is not None, "only members are assigned"
        present = self._progress.positions()
        gained = [partition for partition in partitions if partition not in present or partition in lost]
        kept = {partition: present[partition] for partition in partitions if partition in present}
        kept = {partition: offset for partition, offset in kept.items() if partition not in self._refused}
        positions = {partition: offset for partition, offset in kept.items() if partition not in lost}
        moved = [partition for partition in partitions if partition not in positions]
        if moved:
            committed = self._group_positions(moved)
            positions |= {each: max(offset, kept.get(each, offset)) for each, offset in committed.items()}
            self._progress.committed(each for each in moved if positions[each] == committed[each])
        self._refused.clear()
        self._follow(positions)
        if gained:
            self._on_assigned(gained)

    def _group_positions(self, partitions: list[int]) -> dict[int, int]:
        described: GroupDescription = self._calls(DescribeGroup(self._topic, self._group or ""))
        positions = {partition: described.progress[partition].position for partition in partitions}
        if not isinstance(self._start, Earliest | Latest | AtTime):
            committed = self._calls(Committed(self._topic, self._group or ""))
            begins = positions_at(self._calls, self._topic, self._start, partitions)
            positions |= {partition: begins[partition] for partition in partitions if partition not in committed}
        return positions

    def _rebalance(self, session: Session) -> None:
        """Take up the present membership; called between polls, so that nothing changes during processing.

        Partitions that are revoked are still owned here: the callback may commit. Then they are let go.
        """
        if self._settings.auto_commit:
            self.commit()
        view = session.present()
        before, present = session.known, view.membership
        is_rejoined, held = session.is_rejoined(view), self.assignment
        owned = set() if is_rejoined else {*present.partitions, *present.revoking}
        lost = [partition for partition in held if partition not in owned]
        revoked = [partition for partition in held if partition in owned and partition in present.revoking]
        if isinstance(session, FixedSession):
            revoked, lost = lost, revoked
        if revoked:
            self._on_revoked(revoked)
        if lost:
            self._on_lost(lost)
        if _was_moved(before, present):
            # What was read before counts no more.
            self._refused.update(present.partitions)
        if self._refused or lost or held != sorted(present.partitions):
            # If it fails, the next poll finds the change again, instead of reading on with the partitions of before.
            self._assign(present.partitions, lost)
        session.hold(view)

    def _follow(self, positions: dict[int, int]) -> None:
        self._progress.begin(positions)
        self._intake.follow(positions)

    # Ending

    def close(self) -> None:
        """Close: commit what was returned if `auto_commit` is set, leave the group, and stop reading."""
        if self._closed or self._generation != fork.generation:
            # A forked process must not make its parent leave the group.
            return
        try:
            if self._settings.auto_commit and self._session is not None:
                self.commit()
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._intake.close()
        if self._session is not None:
            self._session.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, maybe by another thread."""
        return self._closed

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _was_moved(before: Membership, present: Membership) -> bool:
    """Whether an operator moved the group between two memberships, or deleted it, which begins its generations anew."""
    return present.seek_generation > before.generation or present.generation < before.generation


def _check_index(index: object, group: str | None, member_id: str | None) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidInput("consumer_index", repr(index)[:100], "it must be 0 or more")
    if group is None or member_id is not None:
        rule = "it selects the consumer of a group with a fixed size: give a group, and no member_id"
        raise InvalidInput("consumer_index", str(index), rule)


def _nothing(partitions: list[int]) -> None:
    """The default callback, which does nothing."""
