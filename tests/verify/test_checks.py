"""Every kind of violation is found in a history that has it, and in none that has not."""

from __future__ import annotations

from typing import get_args

import pytest

from headrace.verify.checks.violation import MEANINGS, Kind
from headrace.verify.history.events import (
    ClientFailed,
    Event,
    GapReported,
    Grown,
    LogEnd,
    LogRead,
    OffsetsSeen,
    Poll,
    PublishEnded,
    Stalled,
)
from tests.verify.histories import committed, kinds, log, polled, seen, sent, sought, started, verdict_on

# Three messages in one partition, read and committed: the good history that the bad ones differ from.
PUBLISHED: list[Event] = sent(1, ["a:0", "a:1", "a:2"], [(0, 0), (0, 1), (0, 2)])
LOG: list[Event] = log(0, "a:0", "a:1", "a:2")
READ: list[Event] = [polled(20, 0, "a:0", "a:1", "a:2"), committed(30, 3), seen(40, 3, members={"m": [0]})]
GOOD: list[Event] = [*PUBLISHED, *LOG, *READ]


def test_a_good_history() -> None:
    verdict = verdict_on(GOOD)
    assert verdict.is_good and verdict.word == "good" and verdict.violations == []
    assert (verdict.acknowledged, verdict.unknown, verdict.read, verdict.commits) == (3, 0, 3, 1)


@pytest.mark.parametrize("parts", [[], PUBLISHED[:1] + LOG, [*log(0)]], ids=["nothing", "no receipts", "empty"])
def test_a_history_that_proves_nothing_is_not_good(parts: list[Event]) -> None:
    assert not verdict_on(parts).is_good
    assert verdict_on(parts).word == "inconclusive"


def test_a_history_without_a_final_reading_is_not_good() -> None:
    assert verdict_on(PUBLISHED, READ).word == "inconclusive"


BAD: dict[Kind, list[Event]] = {
    "lost": [*PUBLISHED, *log(0, "a:0", "a:1")],
    "doubled": [*PUBLISHED, *log(0, "a:0", "a:1", "a:2"), *log(1, "a:1")],
    "misplaced": [*PUBLISHED, *log(1, "a:0", "a:1", "a:2")],
    "contradiction": [*GOOD, *sent(2, ["b:0"], None, source="b"), polled(25, 2, "b:0")],
    "phantom": [*GOOD, *sent(2, ["b:0"], [], "failed", source="b"), *log(1, "b:0")],
    "foreign": [*GOOD, *log(1, "c:0")],
    "gap": [*GOOD, *log(0, "a:0", "a:1", "a:2", end=5)],
    "out_of_order": [
        *sent(1, ["a:0"], [(0, 1)], keys=["k"]),
        *sent(2, ["a:1"], [(0, 0)], keys=["k"]),
        *log(0, "a:1", "a:0"),
    ],
    "scattered": [
        *sent(1, ["a:0"], [(0, 0)], keys=["k"]),
        *sent(2, ["a:1"], [(1, 0)], keys=["k"]),
        *log(0, "a:0"),
        *log(1, "a:1"),
    ],
    "torn_commit": [*GOOD, *sent(2, ["b:0", "b:1"], None, source="b"), *log(1, "b:0")],
    "commit_went_back": [*GOOD, seen(50, 2)],
    "passed_over": [*PUBLISHED, *LOG, polled(20, 0, "a:0"), polled(21, 2, "a:2"), seen(40, 3)],
    "seek_ignored": [*GOOD, *sought(9, 50, 1), seen(60, 3)],
    "two_owners": [*GOOD, seen(50, 3, members={"n": [0]})],
    "generation_went_back": [*GOOD, seen(50, 3, generation=7), seen(60, 3, generation=6)],
    "dropped_unread": [
        *sent(1, ["a:0", "a:1"], [(0, 0), (0, 1)]),
        *log(0, "a:1", start=1),
        polled(20, 1, "a:1"),
        seen(40, 0, important=True),
        started(1),
    ],
    "stalled": [*GOOD, Stalled("billing", 5, 60.0)],
    "client_failed": [*GOOD, ClientFailed("a", "AssertionError()", 5)],
}


@pytest.mark.parametrize("kind", BAD)
def test_each_violation_is_found(kind: Kind) -> None:
    assert kind in kinds(BAD[kind])


def test_there_is_a_bad_history_for_every_kind() -> None:
    assert set(BAD) == set(get_args(Kind)) == set(MEANINGS)


# Messages


def test_an_acknowledged_message_without_a_place_must_exist() -> None:
    assert kinds(sent(1, ["a:0"], [None]), log(0)) == ["lost"]
    assert kinds(sent(1, ["a:0"], []), log(0)) == ["lost"]
    assert kinds(sent(1, ["a:0"], []), log(0, "a:0")) == []


@pytest.mark.parametrize("places", [None, []])
def test_an_unknown_message_exists_at_most_once(places: list[tuple[int, int] | None] | None) -> None:
    unknown = sent(2, ["b:0"], places, "unknown", source="b")
    assert kinds(GOOD, unknown) == []
    assert kinds(GOOD, unknown, log(1, "b:0")) == []
    assert kinds(GOOD, unknown, log(1, "b:0", "b:0")) == ["doubled", "out_of_order"]


def test_an_unknown_commit_exists_whole_or_not_at_all() -> None:
    unknown = sent(2, ["b:0", "b:1"], None, source="b")
    assert kinds(GOOD, unknown) == []
    assert kinds(GOOD, unknown, log(1, "b:0"), log(2, "b:1")) == []
    several = sent(2, ["b:0", "b:1"], None, source="b", is_one_commit=False)
    assert kinds(GOOD, several, log(1, "b:0")) == []


def test_an_acknowledged_commit_that_is_torn_has_lost_messages() -> None:
    assert kinds(sent(1, ["a:0", "a:1"], []), log(0, "a:0")) == ["lost"]


def test_what_the_server_reports_as_unreadable_is_no_silent_loss() -> None:
    gap = GapReported(0, 1, 2, "the checksum is wrong")
    parts: list[Event] = [*PUBLISHED, LogRead(0, 0, ["a:0"]), LogRead(0, 2, ["a:2"]), LogEnd(0, 0, 3)]
    assert kinds(parts) == ["lost", "gap"]
    assert kinds(parts, gap) == []
    assert kinds(parts, gap, polled(20, 0, "a:0"), polled(21, 2, "a:2"), seen(40, 3)) == []


def test_what_retention_dropped_unseen_has_expired() -> None:
    parts: list[Event] = [*PUBLISHED, *log(0, "a:2", start=2), started(2)]
    assert kinds(parts) == []
    assert "lost" in kinds(PUBLISHED, log(0, "a:1", start=1, end=2))
    torn: list[Event] = [*sent(2, ["b:0", "b:1"], None, source="b"), *log(1, "b:1")]
    assert kinds(parts, torn) == []
    # An important group must have been given it before.
    assert kinds(parts, seen(40, 0, important=True)) == ["lost", "lost", "dropped_unread"]
    assert kinds(parts, polled(20, 0, "a:0", "a:1"), seen(40, 2, important=True)) == []


def test_order_is_per_source_and_key_and_partition() -> None:
    assert kinds(sent(1, ["a:0", "a:1"], [(0, 1), (0, 0)], keys=["k", "l"]), log(0, "a:1", "a:0")) == []
    assert kinds(sent(1, ["a:0", "a:1"], [(0, 1), (0, 0)]), log(0, "a:1", "a:0")) == ["out_of_order"]
    assert kinds(sent(1, ["a:0", "a:1"], [(1, 0), (0, 0)]), log(0, "a:1"), log(1, "a:0")) == []


def test_without_a_source_only_what_was_acknowledged_has_an_order() -> None:
    late, later = sent(1, ["a:0"], None, source=None), sent(2, ["a:1"], [(0, 0)], source=None)
    assert kinds(late, later, log(0, "a:1", "a:0")) == []
    assert "out_of_order" in kinds(late, PublishEnded(1, "ok", 9), later, log(0, "a:1", "a:0"))


def test_a_key_may_move_when_the_topic_grows() -> None:
    assert kinds(BAD["scattered"], Grown(2, 15)) == []


# Groups


def test_a_commit_may_go_back_by_a_seek() -> None:
    again = polled(70, 1, "a:1", "a:2")
    assert kinds(GOOD, sought(9, 50, 1), seen(60, 1)) == []
    assert kinds(GOOD, sought(9, 50, 1), seen(60, 1), again, committed(80, 3), seen(90, 3)) == []


def test_a_seek_that_was_refused_moves_nothing() -> None:
    assert kinds(GOOD, sought(9, 50, 1, "failed"), seen(60, 1)) == ["commit_went_back"]
    assert kinds(GOOD, sought(9, 50, 1, "failed"), seen(60, 3)) == []


@pytest.mark.parametrize("outcome", [None, "unknown"])
def test_a_seek_of_unknown_outcome_may_have_been_done(outcome: None) -> None:
    assert kinds(GOOD, sought(9, 50, 1, outcome), seen(60, 1)) == []
    assert kinds(GOOD, sought(9, 50, 1, outcome), seen(60, 3)) == []


def test_a_look_that_overlaps_a_seek_may_see_either_side() -> None:
    assert kinds(GOOD, sought(9, 50, 1), seen(52, 3)) == []
    assert kinds(GOOD, sought(9, 50, 1), seen(60, 3, called=49)) == []


def test_looks_that_overlap_each_other_have_no_order() -> None:
    assert kinds(GOOD, seen(50, 2, called=25)) == []


def test_an_acknowledged_commit_is_seen() -> None:
    assert kinds(GOOD, polled(45, 3), committed(50, 3), seen(60, 2)) == ["commit_went_back"]
    assert kinds(GOOD, committed(50, 9, "unknown"), seen(60, 3)) == []
    # After a seek only what the server says counts.
    assert kinds(GOOD, sought(9, 50, 1), committed(60, 3), seen(70, 1)) == []


def test_a_seek_forward_passes_messages_over_on_purpose() -> None:
    assert kinds(PUBLISHED, LOG, sought(9, 10, 2), polled(30, 2, "a:2"), seen(40, 3)) == []


def test_retention_passes_messages_over_for_a_group_that_is_not_important() -> None:
    parts: list[Event] = [*PUBLISHED, *log(0, "a:2", start=2), started(2), polled(30, 2, "a:2")]
    assert kinds(parts, seen(40, 3)) == []
    assert "passed_over" in kinds(parts, seen(40, 3, important=True))


def test_what_is_given_after_it_was_committed_comes_too_late() -> None:
    assert kinds(PUBLISHED, LOG, seen(15, 3), polled(20, 0, "a:0", "a:1", "a:2"), seen(40, 3)) == ["passed_over"]


def test_what_was_skipped_is_reported_beside_an_ignored_seek() -> None:
    parts: list[Event] = [*GOOD, *sought(9, 50, 1), seen(60, 3), seen(70, 9)]
    assert kinds(parts) == ["seek_ignored", "passed_over"]


def test_a_partition_may_have_another_owner_in_another_generation() -> None:
    assert kinds(GOOD, seen(50, 3, generation=2, members={"n": [0]})) == []
    assert kinds(GOOD, polled(50, 0, "a:0", member="n")) == ["two_owners"]
    assert kinds(GOOD, polled(50, 0, "a:0", member="n", generation=None)) == []


def test_two_owners_are_reported_once_for_each_generation() -> None:
    both = Poll("billing", "n", 1, [0, 1], [], 50, 51)
    assert kinds(GOOD, Poll("billing", "m", 1, [0, 1], [], 48, 49), both) == ["two_owners"]


def test_generations_seen_at_the_same_time_have_no_order() -> None:
    assert kinds(GOOD, seen(50, 3, generation=7), seen(60, 3, generation=6, called=45)) == []


def test_offsets_say_where_partitions_start() -> None:
    assert kinds(PUBLISHED, log(0, "a:2", start=2), OffsetsSeen({0: (2, 3)}, 5)) == []


def test_what_a_seek_passed_over_may_be_dropped_unread_by_an_important_group() -> None:
    published = sent(1, ["a:0", "a:1", "a:2"], [(0, 0), (0, 1), (0, 2)])
    dropped = [*published, *log(0, "a:2", start=2), polled(40, 2, "a:2"), seen(50, 3, important=True)]
    assert "lost" in kinds(dropped)
    assert kinds(dropped, sought(9, 20, 2)) == []
    # Only what is below its target.
    assert "lost" in kinds(dropped, sought(9, 20, 1))


def test_a_seek_to_what_retention_just_dropped_begins_at_the_oldest_kept() -> None:
    dropped_before = OffsetsSeen({0: (2, 3)}, 55)
    again = [*GOOD, *sought(9, 50, 0), polled(70, 2, "a:2", generation=2), seen(90, 3, generation=2)]
    assert "seek_ignored" in kinds(again)
    assert "seek_ignored" not in kinds(again, dropped_before)
    # It was there after the seek, and somebody had to be given it.
    assert "seek_ignored" in kinds(again, OffsetsSeen({0: (0, 3)}, 56))
