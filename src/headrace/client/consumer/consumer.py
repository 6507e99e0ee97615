"""The consumer: Arrow batches by `poll`, or single messages by iterating; without a group, or as a member.

Everything that changes what is read (a rebalance, a seek) happens in the thread that polls. Use a consumer from one
thread; `close` may be called from another.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final

import pyarrow as pa

from headrace import tracing
from headrace.client import fork
from headrace.client.consumer.decode import Broken, Decoder, Packed, Passed, Piece, is_packed
from headrace.client.consumer.fixed_session import FixedSession
from headrace.client.consumer.membership import GroupSession
from headrace.client.consumer.prefetch import Prefetch
from headrace.client.consumer.progress import ReadProgress
from headrace.client.consumer.scan import NO_ROWS
from headrace.client.consumer.start import Start, parse_start, positions_at
from headrace.client.message import Message, messages_of
from headrace.client.retry import Calls
from headrace.client.serializers import message_reader
from headrace.client.settings import ConsumerSettings
from headrace.client.transport.transport import Transport
from headrace.core.checks import check_whole
from headrace.core.descriptions import GroupDescription, Membership
from headrace.core.errors import Closed, InvalidInput, MemberNotFound, PartitionNotOwned, StaleGeneration, again
from headrace.core.limits import FETCH_MESSAGES_DEFAULT, SEQNO_MAX
from headrace.core.positions import AtTime, Earliest, Latest, read_from
from headrace.wire.operations import CommitOffsets, Committed, DescribeGroup, RegisterGroup

_TOGETHER_MESSAGES: Final = 4_096
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
    ) -> None:
        self._generation = fork.generation
        self._transport = transport
        self._topic = topic
        self._group = group
        self._start = parse_start(start)
        self._settings = settings
        self._on_assigned = on_assigned or _nothing
        self._on_revoked = on_revoked or _nothing
        self._calls = Calls(transport, settings.timeout_seconds)
        self._progress = ReadProgress(growing=group is None)
        self._decoder = Decoder(topic, settings.on_undecodable) if settings.decode else None
        self._reader = message_reader(
            topic,
            settings.serializer,
            settings.key_serializer,
            settings.value_type,
            settings.key_type,
            settings.on_undecodable,
        )
        # Batches taken from the prefetch that are returned first.
        self._left: deque[Piece] = deque()
        self._skipped = 0
        # Partitions whose commit was rejected, until the new assignment is known.
        self._refused: set[int] = set()
        self._closed = False
        self._session: GroupSession | FixedSession | None = None
        self._prefetch: Prefetch | None = None
        if consumer_index is not None:
            _check_index(consumer_index, group, member_id)
        if group is not None:
            if consumer_index is not None:
                self._session = FixedSession(self._calls, topic, group, consumer_index, self._wake)
            else:
                self._calls(RegisterGroup(topic, group, read_from=read_from(self._start)))
                member = member_id or f"member-{uuid.uuid4().hex[:12]}"
                seconds = settings.session_timeout_seconds
                self._session = GroupSession(self._calls, topic, group, member, seconds, self._wake)
            try:
                self._assign(self._session.known.partitions)
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
                self._skipped += 1
                continue
            yield given
            if not progress.is_iterating(batch):
                # A seek or a poll in the loop's body: what is left of the batch is not what comes next here.
                return

    def take(self, max_messages: int = FETCH_MESSAGES_DEFAULT, timeout: float | None = 1.0) -> pa.RecordBatch:
        """As `poll`, for those who `give` the messages out themselves, or `one_by_one`."""
        fork.check(self._generation, "this consumer")
        if self._closed:
            raise Closed("the consumer")
        if self._settings.auto_commit and self._session is not None:
            self.commit()
        rest = self._progress.take_rest()
        if rest is not None:
            self._left.appendleft(rest)
        deadline = None if timeout is None else time.monotonic() + timeout
        started_ns = 0 if tracing.active is None else time.time_ns()
        while True:
            if self._session is not None and self._session.has_changed:
                self._rebalance()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            batch = self._gathered(max_messages, left)
            if batch is not None:
                if tracing.active is not None:
                    tracing.active.received(self._topic, self._group, batch, started_ns or time.time_ns())
                return batch
            if left == 0.0 or self._closed:
                return NO_ROWS

    def _gathered(self, max_messages: int, timeout: float | None) -> pa.RecordBatch | None:
        """What is there, up to so many messages, waiting for the first. Small batches are put together, large ones are
        given as they came, since putting together is copying."""
        assert self._prefetch is not None, "the consumer is open"
        parts: list[pa.RecordBatch] = []
        rows = 0
        while rows < min(max_messages, _TOGETHER_MESSAGES):
            if not self._left:
                taken = self._prefetch.take(0.0 if parts else timeout)
                if taken is None:
                    break
                is_plain = self._decoder is None or not is_packed(taken)
                self._left.append(taken if is_plain else Packed(taken))
            piece = self._left[0]
            if not isinstance(piece, pa.RecordBatch):
                if parts:
                    # Met once what is before it was given out.
                    break
                self._meet(piece)
                continue
            self._left.popleft()
            room = max_messages - rows
            if piece.num_rows > room:
                self._left.appendleft(piece.slice(room))
                piece = piece.slice(0, room)
            parts.append(piece)
            rows += piece.num_rows
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _meet(self, piece: Passed | Broken | Packed) -> None:
        """The next message, which cannot be decoded; everything before it was returned."""
        if isinstance(piece, Broken):
            # It stays where it is, and is met again unless a seek leads past it.
            raise again(piece.error)
        self._left.popleft()
        if isinstance(piece, Passed):
            self._skipped += piece.count
            self._progress.pass_over(piece.positions)
            return
        assert self._decoder is not None, "without a decoder nothing is packed"
        self._left.extendleft(reversed(self._decoder.pieces(piece.batch)))

    @property
    def skipped(self) -> int:
        """The number of messages that were skipped because their values cannot be decoded."""
        return self._skipped

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
        moved the group. Their messages since the last commit are delivered again, here or to the other member.
        """
        fork.check(self._generation, "this consumer")
        if self._group is None or self._session is None:
            raise InvalidInput("group", "none", "only a consumer with a group can commit")
        offsets = self._progress.uncommitted()
        present, kept = self._session.known, offsets
        for _ in range(_COMMIT_ATTEMPTS):
            try:
                if kept:
                    self._commit(kept, present.generation)
                break
            except (StaleGeneration, MemberNotFound, PartitionNotOwned):
                present = self._session.renew()
                kept = self._still_valid(offsets, present)
        else:
            # A group that changes this quickly: the next commit tries again.
            return sorted(offsets)
        refused = sorted(offsets.keys() - kept.keys())
        self._progress.committed(refused)
        self._refused.update(refused)
        return refused

    def _still_valid(self, offsets: dict[int, int], present: Membership) -> dict[int, int]:
        """Of positions of the membership taken up last those that may be committed in the present one."""
        assert self._session is not None, "only members commit"
        if _was_moved(self._session.known, present):
            return {}
        return {partition: offset for partition, offset in offsets.items() if partition in present.partitions}

    def _commit(self, offsets: dict[int, int], generation: int) -> None:
        assert self._session is not None and self._group is not None, "only members commit"
        self._calls(CommitOffsets(self._topic, self._group, offsets, self._session.member, generation))
        self._progress.committed(offsets)

    # Partitions

    def _assign(self, partitions: Iterable[int]) -> None:
        """Start reading the partitions of a new membership: kept ones continue, others start at the committed offsets.

        So do those whose commit was rejected: what was returned from them does not count.
        """
        assert self._group is not None, "only members are assigned"
        present = self._progress.positions()
        gained = [partition for partition in partitions if partition not in present]
        kept = [partition for partition in partitions if partition in present and partition not in self._refused]
        positions = {partition: present[partition] for partition in kept}
        moved = [partition for partition in partitions if partition not in positions]
        if moved:
            positions |= self._group_positions(moved)
        self._progress.committed(moved)
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

    def _rebalance(self) -> None:
        assert self._session is not None, "only members are rebalanced"
        if self._settings.auto_commit:
            self.commit()
        before, present = self._session.known, self._session.take_up()
        lost = [partition for partition in self.assignment if partition not in present.partitions]
        if lost:
            self._on_revoked(lost)
        if _was_moved(before, present):
            # What was read before counts no more.
            self._refused.update(present.partitions)
        try:
            self._assign(present.partitions)
        except BaseException:
            # Not taken up: the next poll finds the change again, instead of reading on with the partitions of before.
            self._session.known = before
            raise

    def _follow(self, positions: dict[int, int]) -> None:
        if self._prefetch is not None:
            self._prefetch.close()
        self._left.clear()
        self._progress.begin(positions)
        settings = self._settings
        self._prefetch = Prefetch(
            self._transport,
            self._topic,
            positions,
            settings.max_prefetch_bytes,
            settings.timeout_seconds,
            mixed=True,
            growing=self._group is None,
        )
        if self._closed:
            # By another thread, which may have closed only the one before.
            self._prefetch.close()

    def _wake(self) -> None:
        if self._prefetch is not None:
            self._prefetch.wake()

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
        if self._prefetch is not None:
            self._prefetch.close()
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
