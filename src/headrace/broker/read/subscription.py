"""Subscriptions: messages pushed to a consumer through a bounded buffer.

One delivery thread serves all subscriptions of a broker. A commit, a change of its group, or a read by its consumer
marks a subscription; the thread then fills its buffer from the log. A consumer that does not read has a full buffer and
is skipped: it stops only its own delivery, does not affect publishers or other groups, and later continues from the log
where it stopped. If retention has deleted the next messages meanwhile, it gets an error. Messages that are deleted on
request are skipped, also if they are in the buffer.

Lock order: a subscription's lock, then those of groups and log. The delivery's own lock is held alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from types import TracebackType

import pyarrow as pa

from headrace.broker.clock import Clock
from headrace.broker.groups.groups import Groups
from headrace.broker.read.wakeups import ALL_PARTITIONS
from headrace.broker.topics.topic import Topic
from headrace.core.checks import check_seconds, check_whole
from headrace.core.errors import Closed, Gone, HeadraceError, NotFound, again
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group
from headrace.core.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_MESSAGES_MAX,
    FETCH_WAIT_SECONDS_MAX,
    MICROSECONDS,
    STOP_SECONDS,
)
from headrace.storage.ranges import deleted_to

logger = logging.getLogger(__name__)


class Subscription:
    """One consumer's buffer. Call `get` from one thread at a time; any thread may call `close`."""

    def __init__(
        self,
        topic: Topic,
        groups: Groups,
        group: str,
        consumer: str,
        messages_max: int,
        clock: Clock,
        joined_us: int,
        delivery: Dispatcher,
    ) -> None:
        """`joined_us` is the monotonic time at which a member asked to join: its session counts from then."""
        self.group = group
        self.consumer = consumer
        self._topic = topic
        self._groups = groups
        self._messages_max = messages_max
        self._clock = clock
        self._delivery = delivery
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._buffer: deque[pa.RecordBatch] = deque()
        self._buffered = 0
        # What was deleted on request when the buffer was looked through for it.
        self._deleted_before: tuple[int, ...] = ()
        self._generation: int | None = None
        self._next: dict[int, int] = {}
        # What `get` returned, until it is committed or another consumer's.
        self._taken: dict[int, int] = {}
        self._renewed_us = joined_us
        self._error: HeadraceError | None = None
        self._closed = False
        topic.watches.add(ALL_PARTITIONS, self._mark)
        self._mark()

    @property
    def buffered(self) -> int:
        """The number of messages in the buffer."""
        return self._buffered

    @property
    def partitions(self) -> list[int]:
        """The partitions that are delivered here."""
        with self._lock:
            return sorted(self._next)

    def get(self, messages_max: int | None = None, timeout_seconds: float = 0.0) -> pa.RecordBatch | None:
        """The next messages, all of one partition, or None on timeout."""
        limit = FETCH_MESSAGES_MAX if messages_max is None else messages_max
        check_whole("messages_max", limit, 1, FETCH_MESSAGES_MAX)
        deadline = time.monotonic() + check_seconds("timeout_seconds", timeout_seconds, FETCH_WAIT_SECONDS_MAX)
        while True:
            renewal_seconds = self._renew()
            with self._lock:
                left = deadline - time.monotonic()
                if self._await_messages(max(0.0, min(left, renewal_seconds))):
                    batch = self._take(limit)
                    break
            if left <= 0:
                return None
        self._mark()
        return batch

    def _await_messages(self, seconds: float) -> bool:
        """Wait for messages in the buffer; False on timeout; the caller holds the lock."""
        self._drop_deleted()
        if not self._buffer and self._error is None:
            self._filled.wait(seconds)
            self._drop_deleted()
        if not self._buffer and self._error is not None:
            raise again(self._error)
        return bool(self._buffer)

    def _drop_deleted(self) -> None:
        """Drop what was deleted on request since it was read; the caller holds the lock."""
        deleted_before = self._topic.record.deleted_before
        if deleted_before is self._deleted_before:
            return
        self._deleted_before = deleted_before
        kept = [_not_deleted(batch, deleted_before) for batch in self._buffer]
        self._buffer = deque(batch for batch in kept if batch.num_rows)
        self._buffered = sum(batch.num_rows for batch in self._buffer)

    def _take(self, messages_max: int) -> pa.RecordBatch:
        batch = self._buffer.popleft()
        if batch.num_rows > messages_max:
            self._buffer.appendleft(batch.slice(messages_max))
            batch = batch.slice(0, messages_max)
        self._buffered -= batch.num_rows
        self._taken[batch.column("partition")[0].as_py()] = batch.column("offset")[-1].as_py() + 1
        return batch

    def commit(self) -> list[int]:
        """Commit everything that `get` returned; returns the partitions that another consumer owns by now."""
        with self._lock:
            taken, generation = dict(self._taken), self._generation
        if not taken:
            return []
        return self._groups.commit(self.group, taken, self.consumer, generation, is_partial=True).refused

    def heartbeat(self) -> None:
        """Renew the membership during long processing; `get` does so itself."""
        asked_us = self._clock.monotonic_us()
        if self._groups.get(self.group).consumers is None:
            self._groups.heartbeat(self.group, self.consumer)
        self._renewed_us = asked_us

    def close(self) -> None:
        """Stop delivery; a member leaves its group."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._error = Closed("the subscription")
            self._clear()
            self._filled.notify_all()
        self._topic.watches.remove(ALL_PARTITIONS, self._mark)
        self._delivery.unmark(self)
        try:
            if self._groups.get(self.group).consumers is None:
                self._groups.leave(self.group, self.consumer)
        except HeadraceError as error:
            logger.debug("%r had already left group %r: %s", self.consumer, self.group, error)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self) -> None:
        """Update the partitions and fill the buffer; called by the delivery thread."""
        with self._lock:
            if self._error is not None:
                return
            try:
                self._topic.check_alive()
                self._follow_group(self._known())
                self._drop_deleted()
                self._fill_buffer()
            except (NotFound, Gone) as error:
                # The buffered messages now belong to another member, or to none.
                self._clear()
                self._error = error
            except HeadraceError as error:
                self._error = error
            if self._buffer or self._error is not None:
                self._filled.notify_all()

    def _known(self) -> Group:
        """The group; partitions that were just added are given to members first."""
        group = self._groups.known(self.group)
        if rules.is_complete(group, self._topic.record.partitions):
            return group
        return self._groups.heartbeat(self.group, self.consumer)

    def _follow_group(self, group: Group) -> None:
        """Deliver what is assigned now: what was kept continues, the rest of the buffer is another consumer's.

        What `get` returned can be committed until the partition is let go. The caller holds the lock.
        """
        assigned = rules.assigned(group, self.consumer, self._topic.record.partitions)
        before, self._generation = self._generation, group.generation
        if before is None or _starts_over(group, before):
            self._clear()
            self._next, self._taken = {}, {}
        held = {*assigned, *rules.revoking(group, self.consumer)}
        self._taken = {partition: offset for partition, offset in self._taken.items() if partition in held}
        if self._next.keys() == set(assigned):
            return
        positions = self._groups.positions(self.group)
        self._next = {partition: self._next.get(partition, int(positions[partition])) for partition in assigned}
        kept = [batch for batch in self._buffer if batch.column("partition")[0].as_py() in self._next]
        self._buffer = deque(kept)
        self._buffered = sum(batch.num_rows for batch in kept)

    def _clear(self) -> None:
        self._buffer.clear()
        self._buffered = 0

    def _fill_buffer(self) -> None:
        """Read new messages; partitions take turns, so that none starves."""
        offsets = self._topic.offsets()
        for partition, offset in list(self._next.items()):
            behind = max(offsets.readable(partition, offset), deleted_to(offsets.deleted_before, partition))
            if behind > offset:
                lost = f"offsets {offset} to {behind - 1} of partition {partition}"
                logger.warning(
                    "%s were deleted before they were read: delivery to %r of group %r skips them",
                    lost,
                    self.consumer,
                    self.group,
                )
                self._next[partition] = behind
            if behind < offsets.end[partition]:
                self._fill_from(partition)

    def _fill_from(self, partition: int) -> None:
        room = self._messages_max - self._buffered
        if room > 0:
            batch = self._topic.fetch(partition, self._next[partition], room, FETCH_BYTES_DEFAULT, 0.0)
            self._buffer.append(batch)
            self._buffered += batch.num_rows
            # Removed and inserted again: the dictionary's order is the order of turns.
            self._next[partition] = self._next.pop(partition) + batch.num_rows

    def _renew(self) -> float:
        """Renew the session, or raise if it expired; returns the seconds until the next renewal.

        A consumer that has ended is not renewed: it gets the reason of its end.
        """
        if self._error is not None:
            return 0.0
        group = self._groups.known(self.group)
        if group.consumers is not None:
            return FETCH_WAIT_SECONDS_MAX
        member = group.members.get(self.consumer)
        interval_us = member.session_timeout_us // 3 if member is not None else 0
        is_revoking = member is not None and bool(member.revoking)
        if is_revoking or self._clock.monotonic_us() - self._renewed_us >= interval_us:
            try:
                self._let_go()
            except HeadraceError:
                # A subscription closed meanwhile has left its group: report that it was closed.
                if self._error is None:
                    raise
        return interval_us / MICROSECONDS

    def _let_go(self) -> None:
        """Renew the session of a consumer that asks for more: it is done with what is being revoked."""
        # Counted from before the request: the session may have been renewed long before its answer came.
        asked_us = self._clock.monotonic_us()
        self._groups.heartbeat(self.group, self.consumer, is_reading=True)
        with self._lock:
            if self._error is None:
                self._follow_group(self._known())
        self._renewed_us = asked_us

    def _mark(self) -> None:
        self._delivery.mark(self)


def _not_deleted(batch: pa.RecordBatch, deleted_before: Sequence[int]) -> pa.RecordBatch:
    """The rows of a batch of one partition that were not deleted on request."""
    first = batch.column("offset")[0].as_py()
    return batch.slice(max(0, deleted_to(deleted_before, batch.column("partition")[0].as_py()) - first))


def _starts_over(group: Group, before: int) -> bool:
    """Whether positions of a generation are void: after a seek, in a recreated group, or one of another fixed size."""
    is_moved = group.seek_generation > before or group.generation < before
    return is_moved or (group.consumers is not None and group.generation != before)


class Dispatcher:
    """The thread that fills the buffers of subscriptions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._marked: OrderedDict[Subscription, None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False

    def mark(self, subscription: Subscription) -> None:
        """Mark a subscription for delivery."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-delivery", daemon=True)
                self._thread.start()
            self._marked[subscription] = None
            self._work.notify()

    def unmark(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        with self._lock:
            self._marked.pop(subscription, None)

    def close(self, stop_seconds: float = STOP_SECONDS) -> None:
        """Stop the thread once it has served all marked ones, which includes the end of their topics."""
        with self._lock:
            self._closed = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join(stop_seconds)
            if self._thread.is_alive():
                logger.warning("delivery did not stop within %g s and was abandoned", stop_seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._marked and not self._closed:
                    self._work.wait()
                if not self._marked:
                    return
                subscription, _ = self._marked.popitem(last=False)
            try:
                subscription.fill()
            except Exception:
                logger.exception("delivery to %r of group %r failed", subscription.consumer, subscription.group)
