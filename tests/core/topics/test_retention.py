"""Which of the oldest pieces may go: by age, by size, and never what an important group has yet to read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import MessagesHeld
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.core.topics.retention import (
    Piece,
    Sightings,
    check_read,
    deletes,
    droppable,
    lateness_seconds,
    local_settings,
    outlived,
    piece_bytes_max,
    raised_by,
    should_complete,
    trimmed,
)
from headrace.core.topics.settings import TopicSettings

NOW_US = 1_000_000 * MICROSECONDS
BY_AGE = TopicSettings.make(retention_seconds=60)
BY_SIZE = TopicSettings.make(retention_bytes=100)


def ends(*offsets: int) -> Int64s:
    return np.array(offsets, np.int64)


def pieces_of(ages_seconds: Sequence[int], size: int = 50) -> list[Piece]:
    """Pieces whose newest messages have these ages, each with ten messages in partition 0 and one in partition 1."""
    return [
        Piece(size, NOW_US - age * MICROSECONDS, ends(10 * (place + 1), place + 1))
        for place, age in enumerate(ages_seconds)
    ]


def test_nothing_goes_without_a_bound() -> None:
    assert droppable(pieces_of([10**9, 10**6, 0]), TopicSettings.make(), None, NOW_US) == 0


def test_a_topic_without_pieces_has_nothing_to_drop() -> None:
    assert droppable([], BY_AGE, None, NOW_US) == 0


def test_pieces_go_by_the_age_of_their_newest_message() -> None:
    assert droppable(pieces_of([120, 61, 60, 0]), BY_AGE, None, NOW_US) == 2
    assert droppable(pieces_of([120, 61, 61]), BY_AGE, None, NOW_US) == 3


def test_a_young_piece_keeps_older_ones_behind_it() -> None:
    assert droppable(pieces_of([10, 120, 120]), BY_AGE, None, NOW_US) == 0


@pytest.mark.parametrize(("age_seconds", "is_past"), [(61, True), (60, False), (0, False)])
def test_a_message_lives_for_its_whole_retention(age_seconds: int, is_past: bool) -> None:
    assert outlived(NOW_US - age_seconds * MICROSECONDS, BY_AGE, NOW_US) is is_past


def test_without_retention_seconds_nothing_is_outlived() -> None:
    assert not outlived(0, BY_SIZE, NOW_US)


def test_pieces_go_by_size_while_enough_bytes_stay() -> None:
    assert droppable(pieces_of([0, 0, 0, 0, 0], size=50), BY_SIZE, None, NOW_US) == 3
    assert droppable(pieces_of([0, 0], size=50), BY_SIZE, None, NOW_US) == 0
    assert droppable(pieces_of([0, 0, 0], size=99), BY_SIZE, None, NOW_US) == 1


def test_either_bound_is_enough() -> None:
    both = TopicSettings.make(retention_seconds=60, retention_bytes=100)
    assert droppable(pieces_of([120, 0, 0], size=1), both, None, NOW_US) == 1
    assert droppable(pieces_of([0, 0, 0], size=99), both, None, NOW_US) == 1


@pytest.mark.parametrize(
    ("held", "count"),
    [
        (ends(30, 3), 3),
        (ends(29, 3), 2),
        (ends(30, 2), 2),
        (ends(10, 1), 1),
        (ends(9, 3), 0),
        (ends(0, 0), 0),
    ],
)
def test_a_piece_stays_while_an_important_group_has_one_message_of_it_to_read(held: Int64s, count: int) -> None:
    assert droppable(pieces_of([120, 120, 120]), BY_AGE, held, NOW_US) == count


def test_of_a_partition_added_since_the_groups_were_asked_nothing_is_read() -> None:
    assert droppable(pieces_of([120, 120]), BY_AGE, ends(100), NOW_US) == 0
    untouched = [Piece(50, 0, ends(10, 0)), Piece(50, 0, ends(20, 0))]
    assert droppable(untouched, BY_AGE, ends(100), NOW_US) == 2


def test_a_piece_from_before_a_partition_was_added_is_judged_by_the_partitions_it_knows() -> None:
    old = [Piece(50, 0, ends(10)), Piece(50, 0, ends(20, 5))]
    assert droppable(old, BY_AGE, ends(10, 0), NOW_US) == 1


@given(
    ages=st.lists(st.integers(0, 120), max_size=8).map(lambda ages: sorted(ages, reverse=True)),
    sizes=st.lists(st.integers(1, 100), min_size=8, max_size=8),
    seconds=st.none() | st.integers(1, 120),
    size=st.none() | st.integers(1, 500),
    held=st.none() | st.integers(0, 90),
)
def test_what_goes_is_past_a_bound_and_read_and_what_stays_is_not(
    ages: list[int], sizes: list[int], seconds: int | None, size: int | None, held: int | None
) -> None:
    settings = TopicSettings.make(retention_seconds=seconds, retention_bytes=size)
    pieces = [
        Piece(sizes[place], NOW_US - age * MICROSECONDS, ends(10 * (place + 1))) for place, age in enumerate(ages)
    ]
    count = droppable(pieces, settings, None if held is None else ends(held), NOW_US)

    def may_go(place: int) -> bool:
        rest = sum(piece.bytes for piece in pieces[place + 1 :])
        past = (seconds is not None and ages[place] > seconds) or (size is not None and rest >= size)
        return past and (held is None or 10 * (place + 1) <= held)

    assert all(may_go(place) for place in range(count))
    assert count == len(pieces) or not may_go(count)


def test_pieces_dated_in_the_future_are_as_old_as_they_have_been_seen() -> None:
    sightings, day = Sightings(), 24 * 3600
    pieces = pieces_of([120, -day])
    assert droppable(sightings.dated(pieces, NOW_US), BY_AGE, None, NOW_US) == 1
    for seconds, count in ((60, 1), (61, 2), (day + 10, 2)):
        later_us = NOW_US + seconds * MICROSECONDS
        assert droppable(sightings.dated(pieces, later_us), BY_AGE, None, later_us) == count


def test_a_piece_that_grows_is_seen_again_and_one_that_went_is_forgotten() -> None:
    sightings = Sightings()
    before, after = pieces_of([-1000]), pieces_of([-1001])
    sightings.dated(before, NOW_US)
    later_us = NOW_US + 100 * MICROSECONDS
    assert sightings.dated(after, later_us)[0].newest_us == later_us
    assert sightings.dated(before, later_us)[0].newest_us == later_us


def test_a_clock_that_goes_further_back_counts_from_there() -> None:
    sightings = Sightings()
    assert sightings.newest_us(NOW_US + 5, NOW_US) == NOW_US
    assert sightings.newest_us(NOW_US + 5, NOW_US - 10) == NOW_US - 10
    assert sightings.newest_us(NOW_US + 5, NOW_US + 20) == NOW_US - 10


def test_the_newest_piece_is_completed_when_it_is_old() -> None:
    assert lateness_seconds(2) == 60 and lateness_seconds(8000) == 1000
    for age, expected in ((29, False), (31, True)):
        begun_us = NOW_US - age * MICROSECONDS
        assert should_complete(pieces_of([1]), begun_us, BY_AGE, None, NOW_US) is expected
        assert not should_complete(pieces_of([1]), begun_us, BY_SIZE, None, NOW_US)
    assert should_complete(pieces_of([61]), NOW_US, BY_AGE, None, NOW_US)


def test_what_is_held_makes_no_hurry() -> None:
    pieces, begun_us = pieces_of([120, 1]), NOW_US - 100 * MICROSECONDS
    assert not should_complete(pieces, begun_us, BY_AGE, ends(0, 0), NOW_US)
    assert should_complete(pieces, begun_us, BY_AGE, ends(10, 1), NOW_US)


def test_a_piece_is_a_part_of_what_is_kept() -> None:
    assert piece_bytes_max(BY_AGE, 1 << 20) == 1 << 20
    assert piece_bytes_max(BY_SIZE, 1 << 20) == 64 << 10
    assert piece_bytes_max(BY_SIZE, 1000) == 1000
    assert piece_bytes_max(TopicSettings.make(retention_bytes=1 << 20), 1 << 30) == 128 << 10


def test_an_archived_topic_may_keep_less_in_its_log() -> None:
    archived = TopicSettings.make(archive="on", retention_seconds=60, local_retention_bytes=800)
    local = local_settings(archived)
    assert (local.retention_seconds, local.retention_bytes) == (60, 800)
    local = local_settings(archived.change(local_retention_seconds=5, local_retention_bytes=None))
    assert (local.retention_seconds, local.retention_bytes) == (5, None)
    off = archived.change(archive="off")
    assert local_settings(off) == off
    assert piece_bytes_max(archived.change(local_retention_bytes=8 << 20), 1 << 30) == 1 << 20


def test_a_topic_deletes_by_any_of_its_limits() -> None:
    assert not deletes(TopicSettings.make(archive="on"))
    assert not deletes(TopicSettings.make(local_retention_seconds=5)), "it is not archived"
    assert deletes(TopicSettings.make(retention_bytes=5))
    assert deletes(TopicSettings.make(archive="on", local_retention_seconds=5))
    assert deletes(TopicSettings.make(archive_retention_seconds=5))


def test_what_was_deleted_on_request_goes_whoever_has_read_it() -> None:
    pieces = [Piece(50, 1, ends(2, 1)), Piece(50, 2, ends(4, 1)), Piece(50, 3, ends(4, 3))]
    keep = TopicSettings.make()
    assert [droppable(pieces, keep, ends(0), 9, ends(*deleted)) for deleted in [(), (2,), (4, 1), (4, 2), (4, 3)]] == [
        0,
        0,
        2,
        2,
        3,
    ]
    assert not should_complete(pieces, 1, keep, None, 9, ends(4, 2))
    assert should_complete(pieces, 1, keep, None, 9, ends(4, 3))


def test_deletion_on_request_never_falls() -> None:
    assert raised_by((), {1: 3}) == (0, 3)
    assert raised_by((5, 3), {0: 4, 1: 4, 3: 1}) == (5, 4, 0, 1)
    assert raised_by((5,), {}) == (5,)


def test_what_an_important_group_has_not_read_is_not_deleted() -> None:
    check_read("t", {0: 4, 1: 0}, {"a": {0: 4}, "b": {0: 9}})
    with pytest.raises(MessagesHeld) as caught:
        check_read("t", {0: 4, 1: 1}, {"b": {0: 9, 1: 1}, "a": {0: 4}})
    assert (caught.value.group, caught.value.partition, caught.value.committed) == ("a", 1, 0)
    assert "'a' has read up to offset 0 only" in str(caught.value)


def test_a_trim_deletes_everywhere() -> None:
    once = trimmed(TopicSettings.make(archive="on", retention_seconds=60, retention_bytes=5), 7)
    assert (once.retention_seconds, once.archive_retention_seconds, once.retention_bytes) == (7, 7, None)
    assert once.archive == "off", "what is not archived yet is deleted too"
