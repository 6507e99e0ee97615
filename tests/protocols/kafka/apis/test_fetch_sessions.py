"""Fetch sessions: epochs, what is news, whose turn it is, and who has to go when there is no room."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from headrace.core.errors import TopicNotFound
from headrace.protocols.kafka.apis.records.fetch_read import Fetched
from headrace.protocols.kafka.apis.records.fetch_sessions import (
    ERRORS_MAX,
    IDLE_SECONDS,
    FetchSession,
    FetchSessions,
    SessionError,
)
from headrace.protocols.kafka.apis.records.fetch_topic import FetchPart, SessionTopic
from headrace.protocols.kafka.apis.topic_ids import TopicRef
from headrace.storage.interface import OffsetRange


def topic(offsets: Mapping[int, int], ref: TopicRef = "t") -> SessionTopic:
    wanted = {
        number: SimpleNamespace(fetch_offset=offset, partition_max_bytes=100) for number, offset in offsets.items()
    }
    return SessionTopic(ref, wanted)


def topics(partitions: int, ref: TopicRef = "t") -> dict[TopicRef, SessionTopic]:
    return {ref: topic(dict.fromkeys(range(partitions), 0), ref)}


def asked(session: FetchSession) -> dict[TopicRef, dict[int, int]]:
    """The offsets at which a session reads."""
    return {
        ref: dict(zip(each.numbers.tolist(), each.offsets.tolist(), strict=True))
        for ref, each in session.topics.items()
    }


def found(errors: int = 0) -> Fetched:
    return Fetched([], errors=errors)


def made(
    sessions: FetchSessions, partitions: int, now: float, owner: str = "ann", answer: Fetched | None = None
) -> FetchSession | None:
    return sessions.create(owner, topics(partitions), answer or found(), now)


def numbered(sessions_max: int = 10, partitions_max: int = 1000) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(sessions_max, partitions_max, lambda: next(numbers))


def used(sessions: FetchSessions, session: FetchSession, now: float, **more: Any) -> None:
    """One request of a session, and its answer."""
    fields = {"epoch": session.epoch, "owner": session.owner, "named_by_id": None, **more}
    assert sessions.resume(session.id, now=now, **fields) is session
    session.is_busy = False


def refused(sessions: FetchSessions, session: FetchSession, **more: Any) -> str:
    with pytest.raises(SessionError) as caught:
        used(sessions, session, 1.0, **more)
    return str(caught.value)


def test_a_session_keeps_what_is_not_named_again() -> None:
    sessions = numbered()
    session = made(sessions, 4, 0.0)
    assert session is not None
    used(sessions, session, 1.0)
    new, gone = session.change(
        {"t": topic({1: 7, 9: 5}), "u": topic({0: 1}, "u")}, [("t", [0, 0, 77]), ("nowhere", [9])]
    )
    sessions.count(session)
    assert ([each.ref for each in new], gone) == (["u"], [])
    assert asked(session) == {"t": {3: 0, 1: 7, 2: 0, 9: 5}, "u": {0: 1}}
    assert session.partitions == 5
    used(sessions, session, 1.0)
    _, gone = session.change({}, [("t", [9, 3, 2, 1])])
    assert [each.ref for each in gone] == ["t"]
    assert asked(session) == {"u": {0: 1}}
    assert session.partitions == 1


def test_a_session_is_only_what_its_owner_thinks_it_is() -> None:
    sessions = numbered()
    session = made(sessions, 1, 0.0)
    assert session is not None
    assert refused(sessions, session, owner="bob") == "fetch_session_id_not_found"
    assert refused(sessions, session, epoch=2) == "invalid_fetch_session_epoch"
    assert refused(sessions, session, named_by_id=True) == "fetch_session_topic_id_error"
    # Others cannot end it either.
    sessions.end(session.id, "bob")
    assert len(sessions) == 1
    sessions.end(session.id, "ann")
    assert len(sessions) == 0
    assert refused(sessions, session) == "fetch_session_id_not_found"


def test_one_request_of_a_session_is_served_at_a_time() -> None:
    sessions = numbered()
    session = made(sessions, 1, 0.0)
    assert session is not None
    sessions.resume(session.id, 1, "ann", None, 1.0)
    assert refused(sessions, session) == "invalid_fetch_session_epoch"
    session.is_busy = False
    used(sessions, session, 1.0)


def test_epochs_begin_again_after_the_last() -> None:
    sessions = numbered()
    session = made(sessions, 1, 0.0)
    assert session is not None
    session.epoch = 0x7FFFFFFF
    used(sessions, session, 1.0)
    assert session.epoch == 1


class Reader:
    """A topic with these ends."""

    def __init__(self, *ends: int, start: int = 0) -> None:
        self._offsets = OffsetRange(np.full(len(ends), start, np.int64), np.array(ends, np.int64))

    def offsets(self) -> OffsetRange:
        return self._offsets

    seen_offsets = offsets


def part_of(each: SessionTopic, *ends: int, start: int = 0) -> FetchPart:
    each.reader = Reader(*ends, start=start)  # type: ignore[assignment]
    return each.part(can_block=True)


def answered(part: FetchPart) -> dict[int, int]:
    """What is answered of a part: the error of each partition."""
    answers = part.answers()
    assert isinstance(answers, list)
    return {each["partition_index"]: each["error_code"] for each in answers}


def test_news_is_messages_errors_and_offsets_that_moved() -> None:
    each = topic({0: 5, 1: 5, 2: 9, -7: 0, 7: 0})
    first = part_of(each, 5, 5, 9)
    assert answered(first) == {0: 0, 1: 0, 2: 0, -7: 3, 7: 3}
    assert (first.elements, first.errors) == (5, 2)
    each.tell(first, 1)
    each.forget([-7])
    # Errors are news until something else is asked for.
    assert answered(part_of(each, 5, 5, 9)) == {7: 3}
    each.forget([7])
    assert not each.has_messages() and not each.has_moved()
    moved = part_of(each, 5, 6, 9)
    assert each.has_messages() and each.has_moved()
    assert (answered(moved), moved.behind()) == ({1: 0}, [0])
    each.tell(moved, 2)
    # Messages that are there still, but not read, are no news; once they are read they are.
    same = part_of(each, 5, 6, 9)
    assert (answered(same), same.elements) == ({}, 0)
    same.records = {0: b"records"}
    assert (answered(same), same.elements, same.bytes) == ({1: 0}, 1, 7)
    assert answered(part_of(each, 5, 6, 9, start=1)) == {0: 0, 1: 0, 2: 0}
    assert answered(part_of(each, 4, 6, 9)) == {0: 1}


def test_what_brought_messages_is_read_last_next_time() -> None:
    each = topic(dict.fromkeys(range(4), 0))
    for turn, read in ((1, 2), (2, 0)):
        part = part_of(each, 1, 1, 1, 1)
        place = part.numbers.tolist().index(read)
        part.records = {place: b"records"}
        each.tell(part, turn)
    part = part_of(each, 1, 1, 1, 1)
    assert part.numbers[part.behind()].tolist() == [1, 3, 2, 0]
    assert part.turn_of(part.behind()[0]) == 0
    # The turn is kept when a partition is read elsewhere, and when another takes its row.
    assert (each.change(topic({0: 0, 8: 0}), 3), each.forget([1])) == (1, 1)
    part = part_of(each, *[1] * 9)
    assert part.numbers[part.behind()].tolist() == [3, 2, 0, 8]


@pytest.mark.parametrize("beside", [0, 1])
def test_what_is_left_out_and_added_again_is_read_last(beside: int) -> None:
    """Clients leave out what they have messages of: if that came first for it, others would get little."""
    refs: tuple[TopicRef, ...] = ("a", "b", "c")
    wanted = {ref: topic(dict.fromkeys(range(1 + beside), 0), ref) for ref in refs}
    session = numbered().create("ann", wanted, found(), 0.0)
    assert session is not None

    def turns() -> dict[TopicRef, int]:
        """When partition 0 of each topic is to be read, where the others are idle."""
        parts = [part_of(each, 1, *[0] * beside) for each in session.topics.values()]
        return {part.topic.ref: part.turn_of(part.behind()[0]) for part in parts}

    for ref in ("a", "b"):
        part = part_of(session.topics[ref], 1, *[0] * beside)
        part.records = {0: b"records"}
        session.tell([part])
        session.change({}, [(ref, [0])])
        session.change({ref: topic({0: 0}, ref)}, ())
        waiting = turns()
        assert max(waiting, key=lambda each: waiting[each]) == ref
    assert sorted(waiting, key=lambda each: waiting[each]) == ["c", "a", "b"]


def test_idle_sessions_make_room_for_new_ones() -> None:
    sessions = numbered(sessions_max=4)
    first, second = made(sessions, 5, 0.0), made(sessions, 5, 1.0)
    assert first is not None and second is not None
    assert made(sessions, 5, 2.0) is None
    used(sessions, first, 3.0)
    assert made(sessions, 1, 1.0 + IDLE_SECONDS) is not None
    assert refused(sessions, second) == "fetch_session_id_not_found"
    used(sessions, first, 2.0 + IDLE_SECONDS)


def test_a_large_session_takes_the_place_of_a_small_old_one() -> None:
    sessions = numbered(sessions_max=4)
    small, large = made(sessions, 2, 0.0), made(sessions, 50, 0.0)
    assert small is not None and large is not None
    for session in (small, large):
        used(sessions, session, IDLE_SECONDS)
    assert made(sessions, 2, IDLE_SECONDS + 1) is None
    assert made(sessions, 3, IDLE_SECONDS + 1) is not None
    assert refused(sessions, small) == "fetch_session_id_not_found"


def test_one_caller_has_at_most_half_and_ends_nobody_elses() -> None:
    sessions = numbered(sessions_max=6, partitions_max=100)
    others = [made(sessions, 1, 0.0, "bob") for _ in range(3)]
    mine = [made(sessions, 10, 0.0) for _ in range(3)]
    now = IDLE_SECONDS
    for session in (*others, *mine):
        assert session is not None
        used(sessions, session, now)
    # All are old by now, and in use.
    assert made(sessions, 5, now + 1) is None
    assert made(sessions, 20, now + 1) is not None
    assert made(sessions, 51, now + 1) is None
    assert made(sessions, 40, now + 1) is None
    assert made(sessions, 1, now + 1, "cid") is None
    for session in others:
        assert session is not None
        used(sessions, session, now + 2)
    # Who has room of its own takes that of the idle.
    assert made(sessions, 1, now + 1 + IDLE_SECONDS, "cid") is not None
    assert len(sessions) == 6


def test_all_partitions_together_are_bounded() -> None:
    sessions = numbered(partitions_max=200)
    session = made(sessions, 60, 0.0)
    assert session is not None
    assert made(sessions, 41, 1.0) is None
    assert made(sessions, 40, 1.0) is not None
    used(sessions, session, 1.0)
    session.change(topics(61), ())
    with pytest.raises(SessionError, match="fetch_session_id_not_found"):
        sessions.count(session)
    assert len(sessions) == 1
    # It has ended already.
    with pytest.raises(SessionError, match="fetch_session_id_not_found"):
        sessions.count(session)
    assert made(sessions, 60, 1.0) is not None


def test_ids_are_not_given_twice() -> None:
    numbers = iter([5, 5, 6])
    sessions = FetchSessions(new_id=lambda: next(numbers))
    assert [session.id for session in (made(sessions, 1, 0.0), made(sessions, 1, 0.0)) if session] == [5, 6]


def test_a_session_with_many_errors_ends() -> None:
    """Its client would be answered all of them whenever it sends a few bytes."""
    sessions = numbered()
    assert made(sessions, 1, 0.0, answer=found(ERRORS_MAX + 1)) is None
    session = made(sessions, 1, 0.0, answer=found(ERRORS_MAX))
    assert session is not None
    used(sessions, session, 1.0)
    assert sessions.told(session, found(ERRORS_MAX)) is session
    assert sessions.told(session, found(ERRORS_MAX + 1)) is None
    assert len(sessions) == 0


def test_names_that_no_topic_has_are_not_kept() -> None:
    sessions, long = numbered(), "x" * 10_000
    unknown = topics(1, long)
    unknown[long].error = TopicNotFound(long)
    answer = Fetched([unknown[long].part(can_block=True)], errors=1)
    assert sessions.create("ann", unknown, answer, 0.0) is None
    by_id = topics(1, UUID(int=7))
    assert sessions.create("ann", by_id, found(), 0.0) is not None
