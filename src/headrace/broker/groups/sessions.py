"""Sessions of the members of a topic's groups: until when each may be silent, by a clock that does not jump.

    sessions.hear("billing", "ann", member)       at every sign of life of a member that this server hears
    sessions.follow(group)                        after every change: what its members should let go
    sessions.overdue("billing")                   who was silent for too long, and what was not let go in time

Kept in memory, so a heartbeat that changes nothing writes nothing, on any engine. Members are stored with the server
that hears them, and only that one may find them silent. `adopt` gives members that no server hears any more a full
session to appear anywhere: those of a server of a shared store that is gone, and all of a store that was opened again.
Thread-safe.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.clock import Clock
from headrace.core.groups.group import Group, Late
from headrace.core.groups.member import Member


class Overdue(NamedTuple):
    """What a group loses: its silent members, with the server that heard each, and what was not let go in time."""

    silent: dict[str, str]
    late: list[Late]


class _Session(NamedTuple):
    """Until when a member may be silent, and the server that heard it."""

    server: str
    session_us: int
    ends_us: int


@dataclass(slots=True)
class _Watched:
    """What is due in one group, and when: nothing before `due_us`."""

    sessions: dict[str, _Session] = field(default_factory=dict)
    releases_us: dict[Late, int] = field(default_factory=dict)
    due_us: float = math.inf

    def hear(self, name: str, session: _Session) -> None:
        self.sessions[name] = session
        self.due_us = min(self.due_us, session.ends_us)

    def ask(self, name: str, member: Member, now_us: int) -> None:
        """What a member should let go, it has to in time; of what it was asked for before the time goes on."""
        for place in member.revoking.items():
            until_us = self.releases_us.setdefault(Late(name, *place), now_us + member.release_timeout_us)
            self.due_us = min(self.due_us, until_us)

    def is_due(self, now_us: int) -> bool:
        if self.due_us <= now_us:
            ends = [session.ends_us for session in self.sessions.values()]
            self.due_us = min([*ends, *self.releases_us.values()], default=math.inf)
        return self.due_us <= now_us


class MemberSessions:
    """The sessions of one topic's groups."""

    def __init__(self, clock: Clock, server: str = "") -> None:
        """`server` is the name by which members are attached here; empty on a store of one server."""
        self.server = server
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}

    def hear(self, group: str, name: str, member: Member) -> None:
        """A member gave a sign of life here."""
        now_us, session_us = self._clock.monotonic_us(), member.session_timeout_us
        with self._lock:
            watched = self._watched.setdefault(group, _Watched())
            watched.hear(name, _Session(self.server, session_us, now_us + session_us))
            watched.ask(name, member, now_us)

    def refuse(self, group: str, name: str) -> None:
        """A member gave a sign of life and was refused, through no fault of its own."""
        with self._lock:
            watched = self._watched.get(group)
            if watched is not None and name in watched.sessions:
                session = watched.sessions[name]
                watched.hear(name, session._replace(ends_us=self._clock.monotonic_us() + session.session_us))

    def follow(self, group: Group) -> None:
        """The group is now like this: what its members let go, or need not let go, is awaited no more."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            asked = {Late(name, *place) for name, each in group.members.items() for place in each.revoking.items()}
            if not asked and group.name not in self._watched:
                return
            watched = self._watched.setdefault(group.name, _Watched())
            watched.releases_us = {late: us for late, us in watched.releases_us.items() if late in asked}
            for name, member in group.members.items():
                watched.ask(name, member, now_us)

    def adopt(self, group: Group, running: Collection[str]) -> None:
        """Members of servers that do not run, and those that none has heard yet, have one session to appear."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            watched = self._watched.setdefault(group.name, _Watched())
            for name, member in group.members.items():
                watched.ask(name, member, now_us)
                is_missed = member.server not in running or member.server == self.server
                if is_missed and name not in watched.sessions:
                    session_us = member.session_timeout_us
                    watched.hear(name, _Session(member.server, session_us, now_us + session_us))

    def forget(self, group: str, name: str | None = None) -> None:
        """A member has left, or all have, with their group."""
        with self._lock:
            if name is None:
                self._watched.pop(group, None)
            elif group in self._watched:
                self._watched[group].sessions.pop(name, None)

    def until_us(self, group: str, name: str) -> int | None:
        """Until when a member may be silent, by the monotonic clock; None if no sign of life is awaited here."""
        with self._lock:
            session = self._watched.get(group, _Watched()).sessions.get(name)
            return None if session is None else session.ends_us

    def due(self) -> list[str]:
        """The groups that lose something now."""
        return [group for group in self._watched.copy() if self.is_due(group)]

    def is_due(self, group: str) -> bool:
        """Whether a group loses something now."""
        with self._lock:
            watched = self._watched.get(group)
            return watched is not None and watched.is_due(self._clock.monotonic_us())

    def overdue(self, group: str) -> Overdue:
        """What a group loses now."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            watched = self._watched.get(group, _Watched())
            silent = {name: each.server for name, each in watched.sessions.items() if each.ends_us <= now_us}
            return Overdue(silent, [late for late, until_us in watched.releases_us.items() if until_us <= now_us])

    def settle(self, group: str, overdue: Overdue) -> None:
        """What was overdue is taken, or was not this server's to take."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            watched = self._watched.get(group, _Watched())
            for late in overdue.late:
                watched.releases_us.pop(late, None)
            for name in overdue.silent:
                # It may have joined again.
                if name in watched.sessions and watched.sessions[name].ends_us <= now_us:
                    del watched.sessions[name]
            if not watched.sessions and not watched.releases_us:
                self._watched.pop(group, None)
