"""Fetch sessions (KIP-227): a client names its partitions once, and later only what changed; the answer has only news.

    session 0, epoch 0     a full fetch that would like a session; the answer names it, or 0 if there is no room
    session 0, epoch -1    a full fetch without one
    session N, epoch n     what changed since epoch n - 1: partitions that are new or read elsewhere, and forgotten ones
    session N, epoch 0/-1  N ends; the request is a full fetch, with a new session or without

A session belongs to the principal that made it: to others it does not exist. There are at most `sessions_max`, with
`partitions_max` partitions together. A new one takes the place of the one that was used longest ago, if that is idle,
or of the smallest old one, if that has fewer partitions than the new one: as in Kafka, so that a crowd of small clients
does not push out the large ones that gain most. Whoever has lost its session is told so and begins a new one.

Pure but for the ids, which must not be guessed; `now` is in seconds of a clock that does not jump. Belongs to the event
loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from headrace.core.limits import NAME_CHARACTERS_MAX
from headrace.protocols.kafka.apis.topic_ids import TopicRef

SESSIONS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 200_000
IDLE_SECONDS: Final = 120.0
NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF


class Place(NamedTuple):
    """A partition of a topic."""

    topic: TopicRef
    partition: int


class Wanted(NamedTuple):
    """What is asked of one partition."""

    offset: int
    bytes_max: int


class SessionError(Exception):
    """A session that does not exist, or is not where the client thinks; named as Kafka names it."""


@dataclass(slots=True)
class FetchSession:
    """The partitions of one client, in the order in which they are read next, and what it was told of each."""

    id: int
    owner: str
    created: float
    used: float
    epoch: int = 1
    wanted: dict[Place, Wanted] = field(default_factory=dict)
    told: dict[Place, tuple[int, int]] = field(default_factory=dict)

    @property
    def has_topic_ids(self) -> bool | None:
        """Whether topics are named by id; None without any."""
        return next((isinstance(place.topic, UUID) for place in self.wanted), None)

    def change(self, changed: Mapping[Place, Wanted], forgotten: Iterable[Place]) -> None:
        """Apply what an incremental request says; partitions that are read elsewhere keep their turn."""
        for place in forgotten:
            self.wanted.pop(place, None)
            self.told.pop(place, None)
        self.wanted.update(changed)

    def news(self, place: Place, answer: Mapping[str, Any]) -> bool:
        """Whether the client needs this answer of a partition: messages, an error, or a start or end that moved.

        What brought messages is read last next time, so that others come before it when there is much to read.
        """
        now_told = (answer["high_watermark"], answer.get("log_start_offset", -1))
        is_news = bool(answer["records"]) or answer["error_code"] != 0 or self.told.get(place) != now_told
        # A later request of the session may have forgotten it meanwhile.
        if place in self.wanted:
            self.told[place] = now_told
            if answer["records"]:
                self.wanted[place] = self.wanted.pop(place)
        return is_news


class FetchSessions:
    """The sessions of a server."""

    def __init__(
        self,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
        new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(_EPOCH_MAX),
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._new_id = new_id
        self._partitions = 0
        # By the time of their last use, oldest first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        owner: str,
        wanted: Mapping[Place, Wanted],
        forgotten: Iterable[Place],
        now: float,
    ) -> FetchSession | None:
        """The session of a request, with what it asks for now; none for a full fetch without one."""
        if epoch not in (_FIRST_EPOCH, NO_EPOCH):
            return self._continued(session_id, epoch, owner, wanted, forgotten, now)
        if session_id != NO_SESSION and self._found(session_id, owner) is not None:
            self._end(session_id)
        return None if epoch == NO_EPOCH else self._created(owner, wanted, now)

    def _continued(
        self,
        session_id: int,
        epoch: int,
        owner: str,
        changed: Mapping[Place, Wanted],
        forgotten: Iterable[Place],
        now: float,
    ) -> FetchSession:
        session = self._found(session_id, owner)
        if session is None:
            raise SessionError("fetch_session_id_not_found")
        if epoch != session.epoch:
            raise SessionError("invalid_fetch_session_epoch")
        given = next((isinstance(place.topic, UUID) for place in changed), None)
        if given is not None and session.has_topic_ids is (not given):
            raise SessionError("fetch_session_topic_id_error")
        before = len(session.wanted)
        session.change(changed, forgotten)
        self._partitions += len(session.wanted) - before
        if self._partitions > self._partitions_max or not _are_names(changed):
            # The client begins anew, and goes on without a session if there is no room for one.
            self._end(session_id)
            raise SessionError("fetch_session_id_not_found")
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _created(self, owner: str, wanted: Mapping[Place, Wanted], now: float) -> FetchSession | None:
        if not _are_names(wanted) or not self._has_room(len(wanted), now):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, owner, now, now, wanted=dict(wanted))
        self._sessions[session_id] = session
        self._partitions += len(session.wanted)
        return session

    def _has_room(self, partitions: int, now: float) -> bool:
        """Whether a session of this size may begin; others that have to go for it are ended."""
        while len(self._sessions) >= self._sessions_max or self._partitions + partitions > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is not None and now - oldest.used >= IDLE_SECONDS:
                self._end(oldest.id)
                continue
            old = [each for each in self._sessions.values() if now - each.created >= IDLE_SECONDS]
            smallest = min(old, key=lambda each: len(each.wanted), default=None)
            if smallest is None or len(smallest.wanted) >= partitions:
                return False
            self._end(smallest.id)
        return True

    def _found(self, session_id: int, owner: str) -> FetchSession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)


def _are_names(places: Iterable[Place]) -> bool:
    """Whether topics could have these names: what is longer is not kept, so that memory is bounded."""
    return all(isinstance(place.topic, UUID) or len(place.topic) <= NAME_CHARACTERS_MAX for place in places)
