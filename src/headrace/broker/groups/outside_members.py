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
        self._held: dict[str, tuple[str, set[str]]] = {}

    def hold(self, group: str, topics: Iterable[str], kind: str) -> None:
        """A group has such members in these topics, too, until they are released."""
        keys = {topic_key(topic) for topic in topics}
        if keys:
            with self._lock:
                self._held.setdefault(group, (kind, set()))[1].update(keys)

    def release(self, group: str, topics: Iterable[str]) -> None:
        """A group has no such members in these topics any more."""
        with self._lock:
            held = self._held.get(group, ("", set()))[1]
            held.difference_update(map(topic_key, topics))
            if not held:
                self._held.pop(group, None)

    def check(self, topic: str, group: str) -> None:
        """Refuse a native member of a group that has others."""
        with self._lock:
            kind, topics = self._held.get(group, ("", set()))
            is_held = topic_key(topic) in topics
        if is_held:
            rule = f"it has {kind} members in topic {topic!r}, and members of one kind at a time: stop them first"
            raise GroupSizeConflict(group, rule)
