"""Fetch sessions (KIP-227): a client names its partitions once, and later only what changed; the answer has only news.

    session 0, epoch 0     a full fetch that would like a session; the answer names it, or 0 if there is no room
    session 0, epoch -1    a full fetch without one
    session N, epoch n     what changed since epoch n - 1: partitions that are new or read elsewhere, and forgotten ones
    session N, epoch 0/-1  N ends; the request is a full fetch, with a new session or without

A session belongs to the principal that made it: to others it does not exist. The work for a request is about what has
changed, so one with many errors ends: these are repeated only to those who repeat what they ask for.

There are at most `sessions_max`, with `partitions_max` partitions together, and one principal has at most half of both.
A new one takes the place of one that is idle, or of the smallest old ones of the same principal if these have fewer
partitions each: as in Kafka, so that a crowd of small clients does not push out the large ones that gain most. Whoever
has lost its session is told so and begins a new one.

Pure but for the ids, which must not be guessed; `now` is in seconds of a clock that does not jump. Belongs to the event
loop, except that a request which is being served changes its own session anywhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from headrace.core.limits import NAME_CHARACTERS_MAX
from headrace.core.rights import Caller
from headrace.protocols.kafka.apis.records.fetch_read import Fetched
from headrace.protocols.kafka.apis.records.fetch_topic import FetchPart, SessionTopic
from headrace.protocols.kafka.apis.records.fetch_watch import SessionWatch
from headrace.protocols.kafka.apis.topic_ids import TopicRef

SESSIONS_MAX: Final = 2_000
PARTITIONS_MAX: Final = 200_000
ERRORS_MAX: Final = 100
IDLE_SECONDS: Final = 120.0
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF


class SessionError(Exception):
    """A session that does not exist, or is not where the client thinks; named as Kafka names it."""


@dataclass(slots=True, eq=False)
class FetchSession:
    """The topics of one client, and what is kept of them between its requests. One request at a time is served."""

    id: int
    owner: str
    created: float
    used: float
    topics: dict[TopicRef, SessionTopic]
    partitions: int
    epoch: int = 1
    # While a request is served; and whether the next one will not find it.
    is_busy: bool = False
    is_over: bool = False
    # Grows with each request and each answer: what brought messages, and then what was added, is read last next time.
    turn: int = 0
    # By whose rights its topics were opened, and when these were looked up.
    opened: tuple[Caller, int] | None = None
    watch: SessionWatch | None = None

    @property
    def has_topic_ids(self) -> bool | None:
        """Whether topics are named by id; None without any."""
        return has_topic_ids(self.topics)

    def change(
        self, changed: Mapping[TopicRef, SessionTopic], forgotten: Iterable[tuple[TopicRef, Sequence[int]]]
    ) -> tuple[list[SessionTopic], list[SessionTopic]]:
        """Apply what an incremental request says; returns the topics that are new, and those that have nothing left."""
        new: list[SessionTopic] = []
        gone: list[SessionTopic] = []
        # Clients leave out what they have messages of, and add it again: that is no reason to read it first.
        self.turn += 1
        for ref, numbers in forgotten:
            if (topic := self.topics.get(ref)) is not None:
                self.partitions -= topic.forget(numbers)
                if not len(topic):
                    gone.append(self.topics.pop(ref))
        for ref, asked in changed.items():
            if (topic := self.topics.get(ref)) is not None:
                self.partitions += topic.change(asked, self.turn)
            else:
                asked.begin(self.turn)
                self.topics[ref] = asked
                self.partitions += len(asked)
                new.append(asked)
        return new, gone

    def tell(self, parts: Iterable[FetchPart]) -> None:
        """Remember what the client is told."""
        self.turn += 1
        for part in parts:
            self.topics[part.topic.ref].tell(part, self.turn)

    def end(self) -> None:
        """Let no other request find it."""
        self.is_over = True
        self.rest()

    def rest(self) -> None:
        """Be watched for the next request for a while, or no more if there is none; not while one is served."""
        if self.watch is not None and not self.is_busy:
            if self.is_over:
                self.watch.close()
            else:
                self.watch.keep()


@dataclass(slots=True)
class _Held:
    """How many sessions there are, of one principal or all, and their partitions as counted last."""

    sessions: int = 0
    partitions: int = 0

    def add(self, sessions: int, partitions: int) -> None:
        self.sessions += sessions
        self.partitions += partitions


class FetchSessions:
    """The sessions of a server."""

    def __init__(
        self,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
        new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(_EPOCH_MAX),
    ) -> None:
        self._max = _Held(sessions_max, partitions_max)
        self._share_max = _Held(sessions_max // 2, partitions_max // 2)
        self._new_id = new_id
        self._held = _Held()
        self._shares: dict[str, _Held] = {}
        # By the time of their last use, oldest first; and the partitions that are counted for each.
        self._sessions: dict[int, FetchSession] = {}
        self._counted: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, owner: str, named_by_id: bool | None, now: float) -> FetchSession:
        """The session of an incremental request, which is busy from now on."""
        session = self._found(session_id, owner)
        if session is None:
            raise SessionError("fetch_session_id_not_found")
        # No client sends a request before the last one of its session is answered.
        if epoch != session.epoch or session.is_busy:
            raise SessionError("invalid_fetch_session_epoch")
        if named_by_id is not None and session.has_topic_ids is (not named_by_id):
            raise SessionError("fetch_session_topic_id_error")
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used = now
        session.is_busy = True
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def count(self, session: FetchSession) -> None:
        """Count the partitions of a session that has changed; the client begins anew if they are too many."""
        counted = self._counted.get(session.id)
        if counted is not None:
            self._add(session.owner, 0, session.partitions - counted)
            self._counted[session.id] = session.partitions
            share = self._shares[session.owner]
            if share.partitions <= self._share_max.partitions and self._held.partitions <= self._max.partitions:
                return
            self._end(session)
        raise SessionError("fetch_session_id_not_found")

    def create(
        self,
        owner: str,
        topics: Mapping[TopicRef, SessionTopic],
        found: Fetched,
        now: float,
        opened: tuple[Caller, int] | None = None,
    ) -> FetchSession | None:
        """A session of these topics, whose client is told this; None if there is no room for it."""
        partitions = sum(map(len, topics.values()))
        if _has_many_errors(found) or not self._has_room(owner, partitions, now):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, owner, now, now, dict(topics), partitions, opened=opened)
        self._sessions[session_id] = session
        self._counted[session_id] = partitions
        self._add(owner, 1, partitions)
        session.tell(found.parts)
        return session

    def told(self, session: FetchSession, found: Fetched) -> FetchSession | None:
        """A session whose client is told this; None if that was its last answer."""
        if _has_many_errors(found):
            self.end(session.id, session.owner)
        if session.is_over:
            return None
        session.tell(found.parts)
        return session

    def end(self, session_id: int, owner: str) -> None:
        """End a session of this principal, if it exists."""
        session = self._found(session_id, owner)
        if session is not None:
            self._end(session)

    def _has_room(self, owner: str, partitions: int, now: float) -> bool:
        """Whether a session of this size may begin; others that have to go for it are ended."""
        share = self._shares.get(owner, _Held())
        own, every = _missing(share, self._share_max, partitions), _missing(self._held, self._max, partitions)
        doomed: list[FetchSession] = []
        candidates = iter(self._candidates(owner, partitions, now) if _is_any(own) or _is_any(every) else ())
        while (_is_any(own) or _is_any(every)) and (session := next(candidates, None)) is not None:
            is_own = session.owner == owner
            if is_own or _is_any(every):
                doomed.append(session)
                every.add(-1, -self._counted[session.id])
                if is_own:
                    own.add(-1, -self._counted[session.id])
        if _is_any(own) or _is_any(every):
            return False
        for session in doomed:
            self._end(session)
        return True

    def _candidates(self, owner: str, partitions: int, now: float) -> Iterator[FetchSession]:
        """What may be ended for a new session of this size: what is idle, then what is old, smaller and its owner's."""
        idle = [each for each in self._sessions.values() if now - each.used >= IDLE_SECONDS]
        yield from idle
        own = (each for each in self._sessions.values() if each.owner == owner and now - each.used < IDLE_SECONDS)
        old = [each for each in own if now - each.created >= IDLE_SECONDS and self._counted[each.id] < partitions]
        yield from sorted(old, key=lambda each: self._counted[each.id])

    def _found(self, session_id: int, owner: str) -> FetchSession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._add(session.owner, -1, -self._counted.pop(session.id))
        session.end()

    def _add(self, owner: str, sessions: int, partitions: int) -> None:
        self._held.add(sessions, partitions)
        share = self._shares.setdefault(owner, _Held())
        share.add(sessions, partitions)
        if not share.sessions:
            # A principal without sessions takes no memory.
            del self._shares[owner]


def has_topic_ids(refs: Iterable[TopicRef]) -> bool | None:
    """Whether topics are named by id; None without any."""
    return next((isinstance(ref, UUID) for ref in refs), None)


def _has_many_errors(found: Fetched) -> bool:
    """Whether a session would repeat many errors, or keep what no topic can be called."""
    names = (part.topic.ref for part in found.parts if part.topic.error is not None)
    return found.errors > ERRORS_MAX or any(isinstance(ref, str) and len(ref) > NAME_CHARACTERS_MAX for ref in names)


def _missing(held: _Held, most: _Held, partitions: int) -> _Held:
    """How many sessions and partitions too many there would be with one more of this size."""
    return _Held(held.sessions + 1 - most.sessions, held.partitions + partitions - most.partitions)


def _is_any(missing: _Held) -> bool:
    return missing.sessions > 0 or missing.partitions > 0
