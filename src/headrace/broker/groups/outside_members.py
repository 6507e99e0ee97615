"""Groups whose members are known to the coordinator of a protocol (Kafka's), and not to the broker.

Committed offsets are the same whichever kind of member made them, but partitions are divided among members of one kind
only: with both, each message would be handled twice. So a group has members of one kind at a time. The coordinator
says here which groups have members of its kind, in which topics, and native members are refused there; the coordinator
in turn refuses groups with native members. Servers that share a store do not know of each other's. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headrace.core.errors import GroupSizeConflict
from headrace.core.names import topic_key


class OutsideMembers:
    """Which groups have members that the broker does not know."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By group the kind of its members, and the topics that they read.
        self._held: dict[str, tuple[str, frozenset[str]]] = {}

    def hold(self, group: str, topics: Iterable[str], kind: str) -> None:
        """A group has such members in these topics, too, until it is released."""
        added = {topic_key(topic) for topic in topics}
        with self._lock:
            present = self._held.get(group, ("", frozenset()))[1]
            self._held[group] = kind, present | added

    def release(self, group: str) -> None:
        """A group has no such members any more."""
        with self._lock:
            self._held.pop(group, None)

    def check(self, topic: str, group: str) -> None:
        """Refuse a native member of a group that has others."""
        kind, topics = self._held.get(group, ("", frozenset()))
        if topic_key(topic) in topics:
            rule = f"it has {kind} members in topic {topic!r}, and members of one kind at a time: stop them first"
            raise GroupSizeConflict(group, rule)
