"""A consumer's session in a group: what it reads by, and the heartbeats that keep the present membership up to date.

Three kinds. A member of an open group sends heartbeats, and joins again when its session was lost. A consumer of a
group with a fixed size has no session that expires: its index decides which partitions it reads. Nor has one that chose
its partitions itself. For these two a heartbeat looks whether the group or the topic has changed.

The thread of the heartbeats (heartbeats.py) only detects a change and wakes the consumer, which applies it when it
polls, so that its partitions never change during processing. `known` is what the consumer reads by,
`present` what the thread saw last: both are values that are replaced as a whole, so that reading them needs no lock.

What a member holds goes out with every heartbeat: a partition is let go as soon as one arrives that does not name it.

Joining and leaving exclude each other: a heartbeat that is answered after the member left must not bring it back.
Locks: `_lock` (one look at a time), then `_joining`. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.client.consumer.heartbeats import Heartbeats
from headrace.client.retry import Calls
from headrace.client.settings import ConsumerSettings
from headrace.core.errors import (
    GroupSizeConflict,
    HeadraceError,
    InvalidInput,
    MemberNotFound,
    PartitionNotFound,
    ServerFailed,
    Unreachable,
)
from headrace.core.reports.descriptions import GroupDescription, Membership
from headrace.wire.operations import DescribeGroup, Heartbeat, JoinGroup, LeaveGroup

logger = logging.getLogger(__name__)

_BEATS_PER_SESSION: Final = 3
_BEAT_SECONDS_MAX: Final = 1.0
# A member that just joined looks more often: others are letting partitions go for it.
_JOINING_SECONDS: Final = 5.0
_JOINING_BEAT_SECONDS: Final = 0.1


class View(NamedTuple):
    """A membership, and how often the member had joined by then: in between, another may have had its partitions."""

    membership: Membership
    joins: int = 0


class Session(ABC):
    """One consumer in one group."""

    _known: View
    _present: View

    def __init__(
        self,
        calls: Calls,
        topic: str,
        group: str,
        member: str | None,
        wake: Callable[[], None],
        heartbeats: Heartbeats,
    ) -> None:
        self._calls = calls
        self._topic = topic
        self._group = group
        self._wake = wake
        self.member = member
        self._heartbeats = heartbeats
        self._is_closed = False
        self._lock = threading.Lock()
        self._failure: HeadraceError | None = None
        self._polled_at = time.monotonic()

    def _start(self, first: View) -> None:
        self._known = self._present = first
        self._heartbeats.add(self)

    @property
    def interval_seconds(self) -> float:
        """How long to wait between two heartbeats."""
        return _BEAT_SECONDS_MAX

    @property
    def known(self) -> Membership:
        """The membership that the consumer reads by."""
        return self._known.membership

    @property
    def has_changed(self) -> bool:
        """Whether the membership is another than the one taken up last; a topic that grows changes no generation."""
        return self._failure is not None or self._present != self._known

    def is_rejoined(self, view: View) -> bool:
        """Whether the session was lost between the view taken up last and this one."""
        return view.joins != self._known.joins

    def present(self) -> View:
        """The membership as it was seen last; raises what keeps it from being seen."""
        if self._failure is not None:
            # It may be over: a group that was deleted may exist again.
            self._failure = None
            self.renew()
        return self._present

    def hold(self, view: View) -> None:
        """The consumer reads by this membership now; what it let go is acknowledged at once."""
        self._known = view
        if view.membership.revoking:
            self.look_soon()

    def renew(self) -> Membership:
        """Refresh now, instead of at the next heartbeat."""
        with self._lock:
            self._present = self._checked_look()
            return self._present.membership

    def look_soon(self) -> None:
        """Have the next heartbeat sent now: the group seems to have changed."""
        self._heartbeats.hurry(self)

    def polled(self) -> bool:
        """The consumer is at work; whether it has to `renew` its membership, which it left while it was not."""
        self._polled_at = time.monotonic()
        return False

    def close(self) -> None:
        """Stop refreshing."""
        self._is_closed = True
        self._heartbeats.remove(self)

    @abstractmethod
    def _look(self) -> View: ...

    def _checked_look(self) -> View:
        """Look; whatever fails, fails as an error that the consumer can raise, and never ends the thread."""
        try:
            return self._look()
        except HeadraceError:
            raise
        except Exception as error:
            logger.exception("the heartbeat of %r in group %r failed", self.member, self._group)
            raise ServerFailed(f"the heartbeat failed: {error!r}") from error

    def beat(self) -> None:
        """Look, and wake the consumer if something has changed; the next poll raises what keeps it from being seen."""
        try:
            with self._lock:
                if self._is_closed:
                    return
                self._present = self._checked_look()
        except Unreachable as error:
            logger.warning("the heartbeat of %r in group %r failed, will retry: %s", self.member, self._group, error)
        except HeadraceError as error:
            self._failure = error
        if self.has_changed:
            self._wake()


class GroupSession(Session):
    """One member of an open group."""

    def __init__(
        self,
        calls: Calls,
        topic: str,
        group: str,
        member: str,
        settings: ConsumerSettings,
        wake: Callable[[], None],
        heartbeats: Heartbeats,
        topic_index: int | None = None,
    ) -> None:
        super().__init__(calls, topic, group, member, wake, heartbeats)
        self._name = member
        self._settings = settings
        self._topic_index = topic_index
        self._joining = threading.Lock()
        self._joins = 0
        self._has_left = False
        self._joined_at = 0.0
        self._start(self._join())

    @property
    def interval_seconds(self) -> float:
        is_new = time.monotonic() - self._joined_at < _JOINING_SECONDS
        seconds = _JOINING_BEAT_SECONDS if is_new else _BEAT_SECONDS_MAX
        return min(seconds, self._settings.session_timeout_seconds / _BEATS_PER_SESSION)

    def polled(self) -> bool:
        super().polled()
        return self._has_left

    def close(self) -> None:
        """Leave the group, so that other members get the partitions at once."""
        super().close()
        self._leave()

    def _leave(self) -> None:
        try:
            with self._joining:
                self._calls(LeaveGroup(self._topic, self._group, self._name))
        except HeadraceError as error:
            logger.debug("leaving group %r: %s", self._group, error)

    def _join(self) -> View:
        settings = self._settings
        terms = settings.session_timeout_seconds, settings.max_poll_seconds, self._topic_index
        joined: Membership = self._calls(JoinGroup(self._topic, self._group, self._name, *terms))
        self._joins += 1
        self._joined_at = time.monotonic()
        return View(joined, self._joins)

    def _look(self) -> View:
        idle_seconds = time.monotonic() - self._polled_at
        if idle_seconds >= self._settings.max_poll_seconds:
            if not self._has_left:
                logger.warning(
                    "member %r of group %r has not polled for %.0f s and leaves its partitions to others; it joins "
                    "again when it polls (max_poll_seconds)",
                    self.member,
                    self._group,
                    idle_seconds,
                )
                self._has_left = True
                self._leave()
            return self._present
        held = self._known
        # What was joined again and not yet taken up is not acknowledged.
        heartbeat = Heartbeat(self._topic, self._group, self._name, idle_seconds=idle_seconds)
        if held.joins == self._joins:
            heartbeat.generation, heartbeat.partitions = held.membership.generation, held.membership.partitions
        try:
            present: Membership = self._calls(heartbeat)
        except MemberNotFound:
            with self._joining:
                if self._is_closed:
                    return self._present
                self._has_left = False
                return self._join()
        # Also if it could not leave: then it is still a member.
        self._has_left = False
        return View(present, self._joins)


class ChosenSession(Session):
    """A consumer that chose its partitions: it commits for the group, which must have no members, and follows seeks."""

    def __init__(
        self,
        calls: Calls,
        topic: str,
        group: str,
        partitions: list[int],
        wake: Callable[[], None],
        heartbeats: Heartbeats,
    ) -> None:
        super().__init__(calls, topic, group, None, wake, heartbeats)
        self._partitions = partitions
        self._start(self._look())

    def _look(self) -> View:
        described = self._calls(DescribeGroup(self._topic, self._group))
        for partition in self._partitions:
            if partition not in described.progress:
                raise PartitionNotFound(self._topic, partition, len(described.progress))
        generation, seek_generation = described.generation, described.seek_generation
        return View(Membership(self._group, "", generation, self._partitions, seek_generation))


class FixedSession(Session):
    """One consumer of a group with a fixed size.

    The partitions of a stopped consumer stay unread until one with its index starts again.
    """

    def __init__(
        self, calls: Calls, topic: str, group: str, index: int, wake: Callable[[], None], heartbeats: Heartbeats
    ) -> None:
        super().__init__(calls, topic, group, str(index), wake, heartbeats)
        self._index = index
        self._start(self._look())

    def _look(self) -> View:
        described: GroupDescription = self._calls(DescribeGroup(self._topic, self._group))
        if described.consumers is None:
            rule = "it has no fixed size: omit consumer_index, or register the group with consumers"
            raise GroupSizeConflict(self._group, rule)
        if self._index >= described.consumers:
            rule = f"group {self._group!r} has {described.consumers} consumers: 0 to {described.consumers - 1}"
            raise InvalidInput("consumer_index", str(self._index), rule)
        name = str(self._index)
        generation, seek_generation = described.generation, described.seek_generation
        return View(Membership(self._group, name, generation, described.members[name], seek_generation))
