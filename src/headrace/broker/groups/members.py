"""The members of one topic's groups: the rules of the core, applied to a group store.

    heartbeat ──► the group as it was seen last ──► changes nothing: the session goes on (`sessions`), nothing is stored
                                                └─► changes it: decide again under the lock, persist, apply, wake

Members are attached to the server that hears them, which alone removes them when their session ends. One that the
others may take for gone refuses to hear them (`Servers.check_seen`), since they may have given its members' partitions
away. Whoever uses a group here does so without the members whose session has ended here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from headrace.broker.clock import Clock
from headrace.broker.cluster.servers import Servers
from headrace.broker.groups.sessions import MemberSessions, Overdue
from headrace.broker.groups.store import GroupDraft, GroupStore
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.topic import Topic
from headrace.core.errors import (
    GroupNotFound,
    GroupSizeConflict,
    HeadraceError,
    QuotaExceeded,
    StoreUnavailable,
    again,
)
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, Held
from headrace.core.limits import MAX_POLL_SECONDS
from headrace.storage.group_row import Reach

# A change of a group: the old value, or None, and the new value.
Step = tuple[Group | None, Group]


class GroupMembers:
    """The groups of a topic, and who is in them. Thread-safe."""

    def __init__(
        self,
        topic: Topic,
        store: GroupStore,
        announce: Callable[[], None],
        clock: Clock,
        servers: Servers,
        settings: BrokerSettings,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._store = store
        self._announce = announce
        self._clock = clock
        self._servers = servers
        self.sessions = MemberSessions(clock, servers.attached_as)

    def all(self) -> list[Group]:
        """All groups by name."""
        return self._store.all()

    def has(self, name: str) -> bool:
        """Whether the group exists."""
        return self._store.find(name) is not None

    def get(self, name: str) -> Group:
        """A group; raises if it does not exist."""
        return self.found(name, self._store.find(name))

    def known(self, name: str) -> Group:
        """A group as last seen by this server, which saves a query to a shared store."""
        return self._store.known(name) or self.get(name)

    def has_moved(self, name: str, generation: int) -> bool:
        """Whether a group may be in another generation now; does not block."""
        known = self._store.known(name)
        return known is None or known.generation != generation

    def found(self, name: str, group: Group | None) -> Group:
        """A group that was looked up; raises if there was none."""
        if group is None:
            raise self._missing(name)
        return group

    def _missing(self, name: str) -> HeadraceError:
        """Why there is no such group: a topic that was deleted meanwhile took its groups with it."""
        ended = self._topic.ended
        return GroupNotFound(self._topic.record.name, name) if ended is None else again(ended)

    def forget(self) -> None:
        """Another server changed a group, or may have: invalidate the cache."""
        self._store.forget()

    def _check_groups(self, name: str) -> None:
        """Refuse to make one group too many. Those who do so at the same moment may both be let through."""
        groups_max = self._settings.groups_per_topic_max
        if self._store.known(name) is None and not self.has(name) and self._store.count() >= groups_max:
            topic = self._topic.record.name
            raise QuotaExceeded(f"groups of topic {topic!r}", "broker.groups_per_topic_max", groups_max)

    def join(
        self,
        name: str,
        member: str,
        session_timeout_seconds: float,
        max_poll_seconds: float = MAX_POLL_SECONDS,
        topic_index: int | None = None,
    ) -> Group:
        """Add a member, or renew it; a missing group is created, unless the member is refused.

        It is refused where another server than this one has claimed the group for members of its own.
        """
        self._check_groups(name)
        members_max = self._settings.members_per_group_max
        terms = max_poll_seconds, topic_index, self.sessions.server

        def step(draft: GroupDraft) -> Step:
            before = draft.group or Group(name)
            after = rules.join(before, member, session_timeout_seconds, self._partitions, *terms)
            if member not in before.members:
                if len(after.members) > members_max:
                    raise QuotaExceeded(f"members in group {name!r}", "broker.members_per_group_max", members_max)
                check_holder(draft, name, self._servers.id)
            # Before it is stored: the answer may be lost, and the member with it.
            self.sessions.hear(name, member, after.members[member])
            return put(draft, after)

        with self._hearing(name, member):
            return self._take(name, "group", step)

    def hold_for(self, name: str, kind: str) -> None:
        """Have all members of a group be such as only this server knows; refused if it has others."""

        def step(draft: GroupDraft) -> None:
            group = draft.group
            if group is not None and (group.consumers is not None or group.members):
                raise GroupSizeConflict(name, f"it has native members in topic {self._topic.record.name!r}")
            draft.claim(self._servers.id, kind)

        self._expire_due(name)
        self._store.change(name, "group", step)

    def heartbeat(self, name: str, member: str, held: Held | None = None, is_reading: bool = False) -> Group:
        """Renew a member's session; the member may say what it holds, or be reading and so hold what it owns."""

        def rule(group: Group) -> Group:
            after = rules.heartbeat(group, member, self._partitions, held, is_reading, self.sessions.server)
            self.sessions.hear(name, member, after.members[member])
            return after

        with self._hearing(name, member):
            seen = self.known(name)
            if member not in seen.members or (held is not None and held.generation > seen.generation):
                # Another server changed the group since.
                seen = self.get(name)
            return seen if rule(seen) is seen else self._change(name, rule)

    @contextmanager
    def _hearing(self, name: str, member: str) -> Iterator[None]:
        """Hear a member, if this server may; one that was there, and finds the store away, goes on to be a member."""
        self._topic.check_alive()
        try:
            self._servers.check_seen()
            self._expire_due(name)
            yield
        except StoreUnavailable:
            self.sessions.refuse(name, member)
            raise

    def leave(self, name: str, member: str) -> Group:
        """Remove a member."""
        left = self._change(name, lambda group: rules.leave(group, member, self._partitions))
        self.sessions.forget(name, member)
        return left

    @property
    def _partitions(self) -> int:
        return self._topic.record.partitions

    def _change(self, name: str, rule: Callable[[Group], Group]) -> Group:
        """Apply a rule to a group; if its generation changes, all waiters of the topic are woken."""
        return self._take(name, "group", lambda draft: put(draft, rule(self.found(name, draft.group))))

    def _take(self, name: str, reach: Reach, step: Callable[[GroupDraft], Step]) -> Group:
        self._expire_due(name)
        return self._apply(*self._store.change(name, reach, step))

    def _apply(self, before: Group | None, after: Group) -> Group:
        """A group was changed and stored: whoever waits for it is told."""
        self.sessions.follow(after)
        if _heard(before or Group(after.name)) != _heard(after):
            self._tell()
        elif before is not after:
            self.forget()
        return after

    def _tell(self) -> None:
        self.forget()
        self._topic.watches.wake_all()
        self._announce()

    def adopt(self, groups: Iterable[Group], running: Collection[str]) -> None:
        """Give the members of these groups that no running server hears one session to appear."""
        for group in groups:
            self.sessions.adopt(group, running)

    def expire(self) -> int:
        """Remove the members whose session ended here, in all groups; returns how many."""
        self._topic.check_alive()
        return sum(map(self._expire_due, self.sessions.due()))

    def share_out(self) -> None:
        """Give partitions that were added to members; if it fails, the next heartbeat of a member does it."""
        for group in self.all():
            if not rules.is_complete(group, self._partitions):
                self._expire(group.name)

    def _expire_due(self, name: str) -> int:
        """Remove the members of one group whose session ended here; returns how many."""
        return self._expire(name) if self.sessions.is_due(name) else 0

    def _expire(self, name: str) -> int:
        others = set(self.sessions.overdue(name).silent.values()) - {self.sessions.server}
        back = others & self._servers.running() if others else set()
        overdue, expired = Overdue({}, []), 0

        def step(draft: GroupDraft) -> Step:
            nonlocal overdue
            # Who gave a sign of life meanwhile stays, and so does who is heard by a server that was gone.
            overdue = self.sessions.overdue(name)
            silent = {member: server for member, server in overdue.silent.items() if server not in back}
            group = self.found(name, draft.group)
            return put(draft, rules.expire(group, silent, overdue.late, self._partitions))

        with suppress(GroupNotFound):
            before, after = self._store.change(name, "group", step)
            expired = len((before or after).members) - len(after.members)
            self._apply(before, after)
        self.sessions.settle(name, overdue)
        return expired


def check_holder(draft: GroupDraft, name: str, server_id: str) -> None:
    """Refuse native members of a group that another server has claimed for its own."""
    if (holder := draft.holder(server_id)) is not None:
        rule = f"it has {holder[1]} members, at server {holder[0]}, and members of one kind at a time"
        raise GroupSizeConflict(name, f"{rule}: stop them first")


def put(draft: GroupDraft, group: Group, offsets: Mapping[int, int] | None = None) -> Step:
    """Store a group; what was changed to what."""
    before = draft.group
    draft.put(group, offsets)
    return before, group


def _heard(group: Group) -> tuple[int, dict[str, str]]:
    """What other servers go by: the generation of a group, and who hears its members."""
    return group.generation, {name: member.server for name, member in group.members.items()}
