"""The consumer of one topic: Arrow batches by `poll`, or single messages by iterating; without a group, or as a member.

Everything that changes what is read (a rebalance, a seek) happens in the thread that polls. Use a consumer from one
thread; `stop` and `close` may be called from another, or from a signal handler.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace import tracing
from headrace.client import fork
from headrace.client.consumer.assignment import Assignment, Callbacks, callbacks_of
from headrace.client.consumer.base import BaseConsumer
from headrace.client.consumer.heartbeats import Heartbeats
from headrace.client.consumer.intake import Intake
from headrace.client.consumer.progress import ReadProgress
from headrace.client.consumer.session import ChosenSession, FixedSession, GroupSession, Session
from headrace.client.message import Message, messages_of
from headrace.client.read.scan import NO_ROWS
from headrace.client.read.start import Start, parse_start
from headrace.client.retry import Calls
from headrace.client.serializers import message_reader
from headrace.client.settings import ConsumerSettings
from headrace.client.transport.transport import Transport
from headrace.core.checks import check_index
from headrace.core.errors import InvalidInput
from headrace.core.positions import Position, read_from
from headrace.core.reports.descriptions import TransactionOffsets
from headrace.wire.operations import RegisterGroup

# How often a member that waits for messages counts as polled in the time that it has to poll.
_POLLS_PER_LIMIT: Final = 3


class ConsumerPart(NamedTuple):
    """What a consumer of several topics shares with its consumer of one of them.

    wake: called when there may be something to take.
    topic_index: the index of the topic among all of them.
    """

    wake: Callable[[], None]
    heartbeats: Heartbeats
    topic_index: int


class Consumer(BaseConsumer[int]):
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
        settings: ConsumerSettings,
        group: str | None = None,
        start: Start = "earliest",
        member_id: str | None = None,
        consumer_index: int | None = None,
        partitions: Iterable[int] | None = None,
        callbacks: Callbacks | None = None,
        part: ConsumerPart | None = None,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._group = group
        self._settings = settings
        begin = parse_start(start)
        chosen = _check_chosen(partitions, consumer_index, member_id)
        if consumer_index is not None:
            _check_index(consumer_index, group, member_id)
        self._calls = Calls(transport, settings.timeout_seconds)
        self._progress = ReadProgress(growing=group is None and chosen is None)
        self._intake = Intake(transport, topic, settings, self._progress, None if part is None else part.wake)
        self._reader = message_reader(
            topic,
            settings.serializer,
            settings.key_serializer,
            settings.value_type,
            settings.key_type,
            settings.on_undecodable,
        )
        self._assignment = Assignment(
            self._calls, topic, begin, self._intake, self._progress, callbacks or callbacks_of(None, None, None), chosen
        )
        self._session: Session | None = None
        if group is None:
            self._assignment.begin()
            return
        self._session = self._open_session(group, begin, member_id, consumer_index, chosen, part)
        try:
            self._assignment.begin_in(group, self._session)
        except BaseException:
            self._closed = True
            self._end()
            raise

    def _open_session(
        self,
        group: str,
        begin: Position,
        member_id: str | None,
        index: int | None,
        chosen: list[int] | None,
        part: ConsumerPart | None,
    ) -> Session:
        calls, topic, wake = self._calls, self._topic, self._intake.wake
        heartbeats, topic_index = (Heartbeats(), None) if part is None else (part.heartbeats, part.topic_index)
        if index is not None:
            return FixedSession(calls, topic, group, index, wake, heartbeats)
        calls(RegisterGroup(topic, group, read_from=read_from(begin)))
        if chosen is not None:
            return ChosenSession(calls, topic, group, chosen, wake, heartbeats)
        member = member_id or f"member-{uuid.uuid4().hex[:12]}"
        return GroupSession(calls, topic, group, member, self._settings, wake, heartbeats, topic_index)

    def __repr__(self) -> str:
        group = "" if self._group is None else f" in group {self._group!r}"
        state = "closed" if self._closed else f"reading partitions {self.assignment}"
        return f"<headrace.Consumer of topic {self._topic!r}{group} ({state})>"

    # Reading

    def _take(self, max_messages: int, timeout: float | None) -> pa.RecordBatch:
        self.polled()
        if self._session is not None and self._settings.auto_commit:
            self.commit()
        rest = self._progress.take_rest()
        if rest is not None:
            self._intake.put_back(rest)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        started_ns = 0 if tracing.active is None else time.time_ns()
        while not self.is_stopped:
            self._take_up()
            left = max(0.0, deadline - time.monotonic())
            # In parts, each of which counts as a poll: a member that waits for messages does not leave its group.
            batch = self._intake.gather(max_messages, min(left, self._settings.max_poll_seconds / _POLLS_PER_LIMIT))
            if batch is not None:
                if tracing.active is not None:
                    tracing.active.received(self._topic, self._group, batch, started_ns or time.time_ns())
                return batch
            if left == 0.0:
                break
            self.polled()
        return NO_ROWS

    def _take_up(self) -> None:
        """Take up a change of the group, if there is one."""
        if self._session is not None and self._session.has_changed:
            if self._settings.auto_commit:
                self.commit()
            self._assignment.take_up(self._session)

    @property
    def has_changed(self) -> bool:
        """Whether a change of the group waits to be taken up."""
        return self._session is not None and self._session.has_changed

    def polled(self) -> None:
        """Count as polled: the consumer that this one belongs to is at work."""
        if self._session is not None and self._session.polled():
            # A signal handler that closes the consumer must wait for the locks which this thread holds here.
            with self._working():
                self._session.renew()

    def keep_up(self) -> None:
        """As a poll that takes nothing: it stays in its group, and takes up changes of it."""
        self.polled()
        if self.has_changed:
            with self._working():
                self._take_up()

    def is_next(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch that was taken is still what comes next."""
        return self._intake.is_last(batch)

    def give(self, batch: pa.RecordBatch) -> None:
        """A batch that was taken is given out as a whole."""
        if batch.num_rows:
            self._progress.give(batch)

    def one_by_one(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The messages of a batch that was taken, given out as they are reached."""
        progress = self._progress
        progress.give_by_rows(batch)
        for rows, message in enumerate(messages_of(batch, self._topic), 1):
            given = message if self._reader is None else self._reader.read(message)
            progress.rows_given = rows
            if given is None:
                self._intake.skipped += 1
                continue
            yield given
            if not progress.is_iterating(batch) or self._stopped:
                # A seek or a poll in the loop's body: what is left of the batch is not what comes next here.
                return
            self.polled()
            if self.has_changed:
                # The rest is returned after the change, unless its partition is given up.
                return

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
        return self._assignment.partitions

    @property
    def generation(self) -> int | None:
        """The generation of `assignment`; None without a group."""
        return None if self._session is None else self._session.known.generation

    def seek(self, to: Start | Mapping[Any, int]) -> None:
        """Continue at "earliest", "latest", an offset, a time, or offsets by partition.

        Partitions that are not named keep their position.
        """
        position = parse_start(to, "to")
        fork.check(self._generation, "this consumer")
        self._assignment.seek(to if isinstance(to, Mapping) else None, position)

    def _commit(self, offsets: Mapping[int, int] | None) -> list[int]:
        return self._assignment.commit(offsets)

    def _uncommitted(self) -> list[TransactionOffsets]:
        return self._assignment.uncommitted()

    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None:
        """A transaction has committed this."""
        for each in offsets:
            self._assignment.was_committed(each.offsets)

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Return no messages of these partitions, or of all, until they are resumed; they stay assigned."""
        self._assignment.pause(partitions)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        """Continue with these partitions, or with all, where they were paused."""
        self._assignment.resume(partitions)

    @property
    def paused(self) -> list[int]:
        """The partitions that are paused."""
        return self._assignment.paused

    # Ending

    def _wake(self) -> None:
        self._intake.wake()

    def _finish(self) -> None:
        if self._settings.auto_commit and self._session is not None:
            self.commit()

    def _end(self) -> None:
        self._intake.close()
        if self._session is not None:
            self._session.close()


def _check_index(index: object, group: str | None, member_id: str | None) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidInput("consumer_index", repr(index)[:100], "it must be 0 or more")
    if group is None or member_id is not None:
        rule = "it selects the consumer of a group with a fixed size: give a group, and no member_id"
        raise InvalidInput("consumer_index", str(index), rule)


def _check_chosen(
    partitions: Iterable[int] | None, consumer_index: int | None, member_id: str | None
) -> list[int] | None:
    if partitions is None:
        return None
    chosen = sorted({check_index("partitions", partition) for partition in partitions})
    if not chosen:
        raise InvalidInput("partitions", "[]", "name at least one partition, or omit it to read all")
    if consumer_index is not None or member_id is not None:
        rule = "a consumer that chooses its partitions is not a member: omit member_id and consumer_index"
        raise InvalidInput("partitions", str(chosen)[:100], rule)
    return chosen
