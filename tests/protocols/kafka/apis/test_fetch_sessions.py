"""Fetch sessions: epochs, what is news, and who has to go when there is no room."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from headrace.protocols.kafka.apis.records.fetch_sessions import (
    IDLE_SECONDS,
    FetchSession,
    FetchSessions,
    Place,
    SessionError,
    Wanted,
)


def wanted(partitions: int, topic: str | UUID = "t") -> dict[Place, Wanted]:
    return {Place(topic, partition): Wanted(0, 100) for partition in range(partitions)}


def made(sessions: FetchSessions, partitions: int, now: float, owner: str = "ann") -> FetchSession | None:
    return sessions.begin(0, 0, owner, wanted(partitions), (), now)


def numbered(sessions_max: int = 10, partitions_max: int = 1000) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(sessions_max, partitions_max, lambda: next(numbers))


def answer(end: int, records: bytes = b"", error: int = 0) -> dict[str, object]:
    return {"high_watermark": end, "log_start_offset": 0, "records": records, "error_code": error}


def refused(sessions: FetchSessions, session_id: int, epoch: int, owner: str = "ann", topic: str | UUID = "t") -> str:
    with pytest.raises(SessionError) as caught:
        sessions.begin(session_id, epoch, owner, wanted(1, topic), (), 1.0)
    return str(caught.value)


def test_a_session_keeps_what_is_not_named_again() -> None:
    sessions = numbered()
    session = made(sessions, 3, 0.0)
    assert session is not None
    changed = {Place("t", 1): Wanted(7, 100), Place("u", 0): Wanted(1, 100)}
    again = sessions.begin(session.id, 1, "ann", changed, [Place("t", 0), Place("nowhere", 9)], 1.0)
    assert again is session
    assert session.wanted == {Place("t", 1): Wanted(7, 100), Place("t", 2): Wanted(0, 100), **changed}
    assert sessions.begin(session.id, 2, "ann", {}, (), 1.0) is session


def test_a_session_is_only_what_its_owner_thinks_it_is() -> None:
    sessions = numbered()
    session = made(sessions, 1, 0.0)
    assert session is not None
    assert refused(sessions, 99, 1) == "fetch_session_id_not_found"
    assert refused(sessions, session.id, 1, "bob") == "fetch_session_id_not_found"
    assert refused(sessions, session.id, 2) == "invalid_fetch_session_epoch"
    assert refused(sessions, session.id, 1, topic=UUID(int=7)) == "fetch_session_topic_id_error"
    # Others cannot end it either.
    assert sessions.begin(session.id, -1, "bob", wanted(1), (), 1.0) is None
    assert len(sessions) == 1
    assert sessions.begin(session.id, -1, "ann", wanted(1), (), 1.0) is None
    assert len(sessions) == 0


def test_a_session_that_begins_anew_is_another() -> None:
    sessions = numbered()
    first = made(sessions, 1, 0.0)
    assert first is not None
    second = sessions.begin(first.id, 0, "ann", wanted(2), (), 1.0)
    assert second is not None and second.id != first.id
    assert len(sessions) == 1


def test_epochs_begin_again_after_the_last() -> None:
    sessions = numbered()
    session = made(sessions, 1, 0.0)
    assert session is not None
    session.epoch = 0x7FFFFFFF
    sessions.begin(session.id, 0x7FFFFFFF, "ann", {}, (), 1.0)
    assert session.epoch == 1


def test_news_is_messages_errors_and_offsets_that_moved() -> None:
    session = FetchSession(1, "ann", 0.0, 0.0, wanted=wanted(2))
    place = Place("t", 0)
    assert session.news(place, answer(5))
    assert not session.news(place, answer(5))
    assert session.news(place, answer(6))
    assert session.news(place, answer(6, error=3))
    assert session.news(place, answer(6, b"records"))
    # What brought messages has its turn last.
    assert list(session.wanted) == [Place("t", 1), Place("t", 0)]


def test_idle_sessions_make_room_for_new_ones() -> None:
    sessions = numbered(sessions_max=2)
    first, second = made(sessions, 5, 0.0), made(sessions, 5, 1.0)
    assert first is not None and second is not None
    assert made(sessions, 5, 2.0) is None
    sessions.begin(first.id, 1, "ann", {}, (), 3.0)
    assert made(sessions, 1, 1.0 + IDLE_SECONDS) is not None
    assert refused(sessions, second.id, 1) == "fetch_session_id_not_found"
    assert sessions.begin(first.id, 2, "ann", {}, (), 2.0 + IDLE_SECONDS) is first


def test_a_large_session_takes_the_place_of_a_small_old_one() -> None:
    sessions = numbered(sessions_max=2)
    small, large = made(sessions, 2, 0.0), made(sessions, 50, 0.0)
    assert small is not None and large is not None
    for session in (small, large):
        sessions.begin(session.id, 1, "ann", {}, (), IDLE_SECONDS)
    assert made(sessions, 2, IDLE_SECONDS + 1) is None
    assert made(sessions, 3, IDLE_SECONDS + 1) is not None
    assert refused(sessions, small.id, 2) == "fetch_session_id_not_found"


def test_all_partitions_together_are_bounded() -> None:
    sessions = numbered(partitions_max=100)
    session = made(sessions, 60, 0.0)
    assert session is not None
    assert made(sessions, 41, 1.0) is None
    assert made(sessions, 40, 1.0) is not None
    with pytest.raises(SessionError, match="fetch_session_id_not_found"):
        sessions.begin(session.id, 1, "ann", wanted(61), (), 1.0)
    assert len(sessions) == 1
    assert made(sessions, 60, 1.0) is not None


def test_ids_are_not_given_twice() -> None:
    numbers = iter([5, 5, 6])
    sessions = FetchSessions(new_id=lambda: next(numbers))
    assert [session.id for session in (made(sessions, 1, 0.0), made(sessions, 1, 0.0)) if session] == [5, 6]


def test_what_was_forgotten_while_it_was_read_is_not_kept() -> None:
    session = FetchSession(1, "ann", 0.0, 0.0, wanted=wanted(1))
    session.change({}, [Place("t", 0)])
    assert session.news(Place("t", 0), answer(5, b"records"))
    assert session.told == {} and session.wanted == {}


def test_names_that_no_topic_has_are_not_kept() -> None:
    sessions = numbered(partitions_max=3)
    long = "x" * 10_000
    assert sessions.begin(0, 0, "ann", wanted(1, long), (), 0.0) is None
    session = made(sessions, 1, 0.0)
    assert session is not None
    assert refused(sessions, session.id, 1, topic=long) == "fetch_session_id_not_found"
    assert len(sessions) == 0
    assert made(sessions, 3, 0.0) is not None
