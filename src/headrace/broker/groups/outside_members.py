"""Groups whose members are known to the coordinator of a protocol (Kafka's), and not to the broker.

Committed offsets are the same whichever kind of member made them, but partitions are divided among members of one kind
only: with both, each message would be handled twice. So a group has members of one kind at a time. The coordinator
says here which groups have members of its kind, in which topics, and native members are refused there; the coordinator
in turn refuses groups with native members. For the other servers of a shared store each such group is claimed in the
store before it has members (`claims`); what is released here is given up there soon after. From before it is claimed
until it is held a group is expected to have such members, and native ones are refused as well. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.core.errors import GroupSizeConflict
from headrace.core.names import topic_key

# A group is held within this time after it was claimed, or never.
CLAIM_SECONDS: Final = 5.0


class OutsideMembers:
    """Which groups have members that the broker does not know."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By group the kind of its members, and the topics that they read.
        self._held: dict[str, tuple[str, set[str]]] = {}
        # The kinds of members that topics and groups are expected to have, one for each that expects it.
        self._expected: dict[tuple[str, str], list[str]] = {}
        # Topics and groups that may be claimed in the store, and since when: whether or not they are held.
        self._claimed: dict[tuple[str, str], float] = {}

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

    @contextmanager
    def expected(self, group: str, topics: Iterable[str], kind: str) -> Iterator[None]:
        """A group is to be claimed for such members in these topics, and held before this ends."""
        places = {(topic_key(topic), group) for topic in topics}
        with self._lock:
            for place in places:
                self._expected.setdefault(place, []).append(kind)
        try:
            yield
        finally:
            with self._lock:
                for place in places:
                    self._expected[place].remove(kind)
                    if not self._expected[place]:
                        del self._expected[place]

    def groups(self) -> set[tuple[str, str]]:
        """The topics, by key, and groups that have such members."""
        with self._lock:
            return {(topic, group) for group, (_, topics) in self._held.items() for topic in topics}

    def claimed(self, topics: Iterable[str], group: str) -> None:
        """A group is claimed in these topics; to be called before."""
        with self._lock:
            self._claimed |= {(topic_key(topic), group): self._clock() for topic in topics}

    def unused_claims(self) -> set[tuple[str, str]]:
        """The topics, by key, and groups that are claimed and not held, and not only about to be."""
        latest = self._clock() - CLAIM_SECONDS
        with self._lock:
            old = {each for each, claimed in self._claimed.items() if claimed <= latest} - self._expected.keys()
            return {(topic, group) for topic, group in old if topic not in self._held.get(group, ("", set()))[1]}

    def given_up(self, claims: Iterable[tuple[str, str]]) -> None:
        """These are claimed no more."""
        with self._lock:
            for claim in claims:
                self._claimed.pop(claim, None)

    def check(self, topic: str, group: str) -> None:
        """Refuse a native member of a group that has others."""
        key = topic_key(topic)
        with self._lock:
            kind, topics = self._held.get(group, ("", set()))
            kinds = self._expected.get((key, group), []) + ([kind] if key in topics else [])
        if kinds:
            kind = kinds[-1]
            rule = f"it has {kind} members in topic {topic!r}, and members of one kind at a time: stop them first"
            raise GroupSizeConflict(group, rule)
