"""A member's session in a group: a thread sends heartbeats, and joins again when the session was lost.

The thread only detects that the generation has changed, or that the session expired. It wakes the consumer, which
applies the new membership when it polls, so that its partitions never change during processing.

Rejoining and leaving exclude each other: a heartbeat that is answered after the member left must not bring it back.
Locks: `_lock` (one heartbeat at a time), then `_joining`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from headrace.client.consumer.known_membership import KnownMembership
from headrace.client.retry import Calls
from headrace.core.descriptions import Membership
from headrace.core.errors import HeadraceError, MemberNotFound, Unreachable
from headrace.wire.operations import Heartbeat, JoinGroup, LeaveGroup

logger = logging.getLogger(__name__)

_BEATS_PER_SESSION: Final = 3
_BEAT_SECONDS_MAX: Final = 1.0


class GroupSession(KnownMembership):
    """One member in one group."""

    def __init__(
        self, calls: Calls, topic: str, group: str, member: str, timeout_seconds: float, wake: Callable[[], None]
    ) -> None:
        self._calls = calls
        self._topic = topic
        self._group = group
        self._timeout_seconds = timeout_seconds
        self._wake = wake
        self.member = member
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._joining = threading.Lock()
        super().__init__(self._join())
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True)
        self._thread.start()

    def renew(self) -> Membership:
        """Refresh now, instead of at the next heartbeat."""
        with self._lock:
            self._present = self._beat()
        return self._present

    def close(self) -> None:
        """Leave the group, so that other members get the partitions at once."""
        self._stop.set()
        try:
            with self._joining:
                self._calls(LeaveGroup(self._topic, self._group, self.member))
        except HeadraceError as error:
            logger.debug("leaving group %r: %s", self._group, error)

    def _join(self) -> Membership:
        joined: Membership = self._calls(JoinGroup(self._topic, self._group, self.member, self._timeout_seconds))
        return joined

    def _beat(self) -> Membership:
        try:
            present: Membership = self._calls(Heartbeat(self._topic, self._group, self.member))
        except MemberNotFound:
            with self._joining:
                return self._present if self._stop.is_set() else self._join()
        return present

    def _run(self) -> None:
        """The top of the thread."""
        while not self._stop.wait(min(self._timeout_seconds / _BEATS_PER_SESSION, _BEAT_SECONDS_MAX)):
            try:
                with self._lock:
                    if self._stop.is_set():
                        return
                    self._present = self._beat()
            except Unreachable as error:
                logger.warning(
                    "the heartbeat of %r in group %r failed, will retry: %s", self.member, self._group, error
                )
            except HeadraceError as error:
                self._failure = error
            if self.has_changed:
                self._wake()
