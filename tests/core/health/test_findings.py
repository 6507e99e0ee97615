"""Verdicts: their state and order, what a caller sees of them, and several servers together."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.health.findings import Health, HealthFinding, Place, State, merged, visible
from headrace.core.health.rules import finding, silent
from headrace.core.limits import FINDINGS_MAX

FAILING = finding("topic_failing", Place("topic", "orders"), "it accepts no messages")
UNREAD = finding("group_unread", Place("group", "orders", "billing"), "2 messages unread")
EARLY = finding("too_early", Place("group", "orders", "audit"), "2 messages unread")
DISK = finding("disk_filling", Place("store"), "at its present rate it is full in 7.0 hours")
TOKEN = finding("token_expiring", Place("token", name="till"), "it expires in 2 d")


def health(*findings: HealthFinding, server: str = "a") -> Health:
    return Health.of(server, 1, findings)


@pytest.mark.parametrize(
    ("findings", "state"),
    [((), "fine"), ((EARLY,), "unknown"), ((UNREAD,), "attention"), ((EARLY, FAILING), "attention")],
)
def test_the_state_follows_from_the_findings(findings: tuple[HealthFinding, ...], state: State) -> None:
    assert health(*findings).state == state


def test_the_most_severe_findings_come_first() -> None:
    assert health(EARLY, UNREAD, FAILING).findings == [FAILING, UNREAD, EARLY]
    assert health(UNREAD).with_more([FAILING]).findings == [FAILING, UNREAD]
    assert health(EARLY).with_more([UNREAD]).state == "attention"


def test_a_verdict_travels_as_json() -> None:
    given = health(EARLY, UNREAD, FAILING)
    assert msgspec.json.decode(msgspec.json.encode(given), type=Health) == given


def test_an_answer_has_so_many_findings_and_says_how_many_more_there_are() -> None:
    many = [finding("group_unread", Place("group", "t", f"g{number}"), "late") for number in range(FINDINGS_MAX + 3)]
    limited = health(*many, FAILING).limited()
    assert (len(limited.findings), limited.omitted, limited.findings[0]) == (FINDINGS_MAX, 4, FAILING)
    assert health(FAILING).limited() == health(FAILING)


def test_callers_see_what_concerns_their_topics_and_their_token() -> None:
    everything = [FAILING, UNREAD, DISK, TOKEN]
    assert visible(everything, lambda topic: True, True, "admin") == everything
    assert visible(everything, lambda topic: topic == "orders", False, "till") == [FAILING, UNREAD, TOKEN]
    assert visible(everything, lambda topic: False, False, "other") == []


def test_what_several_servers_found_counts_once() -> None:
    own = finding("group_unread", UNREAD.place, "3 messages unread")
    both = merged(health(own), [health(UNREAD, FAILING, server="b"), health(UNREAD, server="c").limited()])
    assert both.findings == [FAILING, own] and both.server == "a"
    quiet = merged(health(), []).with_more([silent("http://b:7070", "connection refused")])
    assert quiet.state == "unknown"
    assert quiet.findings[0].command == "curl -sS http://b:7070/health/live"


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Place("group", "orders", "billing"), "group billing of orders"),
        (Place("pipeline", "orders", name="land"), "pipeline land of orders"),
        (Place("topic", "orders"), "topic orders"),
        (Place("token", name="till"), "token till"),
        (Place("store"), "the store"),
    ],
)
def test_how_a_place_is_called(place: Place, shown: str) -> None:
    assert str(place) == shown
