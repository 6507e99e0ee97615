"""The checks of the campaign with members of all protocols, and a short run of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.verify.history.events import Event, LogRead, OffsetsCommitted, Outcome, Poll
from tests.campaign.mixed_members import Figures, given_again, owners_at_once, play_round, wrong_copies


def given(member: str, at: int, offset: int = 0, group: str = "g") -> Poll:
    return Poll(group, member, None, [], [(0, offset, ["p:1", "p:2"])], at - 1, at)


def committed(member: str, at: int, outcome: Outcome = "ok", group: str = "g") -> OffsetsCommitted:
    return OffsetsCommitted(group, member, {0: 2}, outcome, at, at + 1)


def test_a_commit_after_another_was_given_the_partition_has_two_owners() -> None:
    events: list[Event] = [given("ann", 1), given("bob", 3), committed("ann", 5)]
    (found,) = owners_at_once(events)
    assert "ann committed 2 after it was given to bob" in found
    fine: list[list[Event]] = [
        [given("ann", 1), given("bob", 3), committed("bob", 5)],
        [given("ann", 1), given("bob", 3), committed("ann", 5, "unknown")],
        [given("ann", 1), given("bob", 7), committed("ann", 5)],
        [given("ann", 1), given("bob", 3, group="h"), committed("ann", 5)],
        [given("ann", 1), given("bob", 3), given("ann", 4), committed("ann", 5)],
        [committed("ann", 5)],
    ]
    for each in fine:
        assert list(owners_at_once(each)) == []


def test_messages_given_again_are_counted_by_group() -> None:
    assert given_again([given("ann", 1), given("ann", 2, offset=1), given("bob", 1, group="h")]) == 1


def test_copies_are_compared_with_the_log() -> None:
    log = [LogRead(0, 0, ["a:0", "a:1"])]
    assert wrong_copies(log, Counter({"a:0": 1, "a:1": 1})) == []
    assert [kind for kind, _ in wrong_copies(log, Counter({"a:0": 2}))] == ["not copied", "copied twice"]


# What happens in a few seconds depends on the machine.
@pytest.mark.campaign
@pytest.mark.parametrize("store", ["disk", "postgres"])
def test_members_of_all_protocols_lose_and_double_nothing(store: str, tmp_path: Path) -> None:
    figures = Figures()
    play_round(store, 3, 10.0, tmp_path, figures)
    assert figures.violations.total() == 0, figures
    assert figures.acknowledged > 0
