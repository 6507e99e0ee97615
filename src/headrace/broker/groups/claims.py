"""Claims: of the servers of a shared store the one whose protocol runs a group refuses native members at all of them.

    with claims.outside.expected("billing", {"orders"}, "Kafka"):
        claims.claim("billing", {"orders"}, "Kafka")      before the group has members of this kind in these topics
        claims.outside.hold("billing", {"orders"}, "Kafka")
    with claims.native("orders", "billing"): ...          while a native member joins
    claims.release()                                      now and then: those that `outside` holds no more

At this server a group is claimed, and joined by native members, by one thread at a time: whoever comes second sees the
first. A claim counts as long as its server is listed. The coordinator of a group that moves to another server takes the
claim over. On a store of one server nothing is stored: what is held in memory says it all. Thread-safe.
Lock order: the turn of a group, the lock of the claims, then those of the group's topics.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from headrace.broker.cluster.servers import Servers
from headrace.broker.groups.outside_members import OutsideMembers
from headrace.broker.groups.turns import GroupTurns
from headrace.broker.topics.registry import Topics
from headrace.core.errors import TopicNotFound
from headrace.core.names import check_group_name, topic_key
from headrace.storage.catalog import Catalog


class GroupClaims:
    """What this server claims."""

    def __init__(self, topics: Topics, catalog: Catalog, servers: Servers) -> None:
        self._topics = topics
        self._catalog = catalog
        self._servers = servers
        self.outside = OutsideMembers()
        # Held by those who claim a group, and by native members who join it.
        self._turns = GroupTurns()
        # Claims are made and given up one at a time.
        self._lock = threading.Lock()

    @contextmanager
    def native(self, topic: str, group: str) -> Iterator[None]:
        """Refuse native members of a group that has others in a topic; while this lasts nobody claims it."""
        with self._turns.of(group):
            self.outside.check(topic, group)
            yield

    def sized(self, topic: str, group: str, consumers: int | None) -> AbstractContextManager[None]:
        """The same for native consumers of a group of a fixed size, which need not join; nothing without a size."""
        return nullcontext() if consumers is None else self.native(topic, group)

    def claim(self, group: str, topics: Collection[str], kind: str) -> None:
        """Refuse a group that has native members in any of these topics; no server lets any in from now on.

        That ends some seconds after the group is held no more, or with this server. Topics are keys.
        """
        name = check_group_name(group)
        with self._turns.of(name):
            if not self._servers.is_shared:
                # Nobody else could let members in, and a group that does not exist has none.
                present = {topic_id for topic_id, _ in self._catalog.named_groups([name])}
                topics = {record.key for record in self._topics.records() if record.id in present}.intersection(topics)
            with self._lock:
                if self._servers.is_shared:
                    self.outside.claimed(topics, name)
                for topic in sorted(topics, key=topic_key):
                    with suppress(TopicNotFound):
                        self._topics.find(topic).groups.hold_for(name, kind)

    def groups(self) -> set[tuple[str, str]]:
        """The topics, by key, and groups that have members only a protocol knows, at any server."""
        held = self.outside.groups()
        if self._servers.is_shared:
            keys = {record.id: record.key for record in self._topics.records()}
            claims = self._catalog.servers.claims()
            held |= {(keys[topic_id], group) for topic_id, group in claims if topic_id in keys}
        return held

    def release(self) -> None:
        """Give up the claims of groups that have no members at this server any more."""
        with self._lock:
            unused = self.outside.unused_claims()
            if unused:
                ids = {record.key: record.id for record in self._topics.records()}
                groups = {(ids[topic], group) for topic, group in unused if topic in ids}
                self._catalog.servers.release_claims(self._servers.id, groups)
                self.outside.given_up(unused)
