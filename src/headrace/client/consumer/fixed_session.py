"""The session of a consumer in a group with a fixed size: its index decides which partitions it reads.

Such a group has no sessions that expire: the partitions of a stopped consumer stay unread until one with its index
starts again. A thread polls whether the group or the topic has changed, and wakes the consumer, which applies the new
membership when it polls. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from headrace.client.consumer.known_membership import KnownMembership
from headrace.client.retry import Calls
from headrace.core.descriptions import GroupDescription, Membership
from headrace.core.errors import GroupSizeConflict, HeadraceError, InvalidInput, Unreachable
from headrace.wire.operations import DescribeGroup

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


class FixedSession(KnownMembership):
    """One consumer of one fixed group, with the methods of a member's session."""

    def __init__(self, calls: Calls, topic: str, group: str, index: int, wake: Callable[[], None]) -> None:
        self._calls = calls
        self._topic = topic
        self._group = group
        self._index = index
        self._wake = wake
        self.member = str(index)
        self._stop = threading.Event()
        super().__init__(self._look())
        self._thread = threading.Thread(target=self._run, name="headrace-fixed-consumer", daemon=True)
        self._thread.start()

    def renew(self) -> Membership:
        """Refresh now, instead of at the next poll."""
        self._present = self._look()
        return self._present

    def close(self) -> None:
        """Stop refreshing; the group keeps its size."""
        self._stop.set()

    def _look(self) -> Membership:
        described: GroupDescription = self._calls(DescribeGroup(self._topic, self._group))
        if described.consumers is None:
            rule = "it has no fixed size: omit consumer_index, or register the group with consumers"
            raise GroupSizeConflict(self._group, rule)
        if self._index >= described.consumers:
            rule = f"group {self._group!r} has {described.consumers} consumers: 0 to {described.consumers - 1}"
            raise InvalidInput("consumer_index", str(self._index), rule)
        partitions = described.members[self.member]
        return Membership(self._group, self.member, described.generation, partitions, described.seek_generation)

    def _run(self) -> None:
        """The top of the thread."""
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self._present = self._look()
            except Unreachable as error:
                logger.warning(
                    "consumer %s of group %r cannot refresh its partitions, will retry: %s",
                    self.member,
                    self._group,
                    error,
                )
            except HeadraceError as error:
                self._failure = error
            if self.has_changed:
                self._wake()
