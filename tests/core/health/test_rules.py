"""The rules, each where it holds and where it does not: readings go in, findings come out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.health.findings import HealthFinding, Place
from headrace.core.health.history import GroupPast, HealthHistory
from headrace.core.health.readings import DiskReading, Expiry, GroupReading, Reading, TopicReading
from headrace.core.health.rules import RULES, finding, judge
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.pipelines import ListedState, PipelineDescription, PipelineReport
from headrace.core.text import time_shown

NOW_US = 1_789_000_000 * MICROSECONDS
GROUP = ("orders", "billing")
PLACE = Place("group", "orders", "billing")
MINUTE = 60


def reading(seconds: float = 0.0, **values: Any) -> Reading:
    """A look so many seconds after the first."""
    later_us = int(seconds * MICROSECONDS)
    return Reading(now_us=NOW_US + later_us, at_us=later_us, up_seconds=3_600 + seconds, **values)


def judged(*readings: Reading) -> list[HealthFinding]:
    """What is found at the last of some looks."""
    history = HealthHistory()
    for each in readings:
        history.add(each)
    return judge(readings[-1], history)


def rules_of(findings: Iterable[HealthFinding]) -> list[tuple[str, str]]:
    return [(found.rule, found.severity) for found in findings]


def group(lag_messages: int = 10, lag_seconds: float = 0.0, position: int = 0, **values: Any) -> GroupReading:
    return GroupReading(lag_messages, lag_seconds, position, **({"has_members": True} | values))


def looks(minutes: int, look: Callable[[int], GroupReading], step_seconds: int = 15) -> list[Reading]:
    """Looks over some minutes, as often as a server looks; `look` gets the seconds."""
    return [reading(seconds, groups={GROUP: look(seconds)}) for seconds in range(0, minutes * MINUTE + 1, step_seconds)]


def test_nothing_is_wrong_with_an_empty_or_a_healthy_server() -> None:
    assert judged(reading()) == []
    healthy = reading(
        disk=DiskReading(100, 50),
        topics=[TopicReading("orders", archive_late_seconds=900)],
        groups={GROUP: group(0, 9_000, has_members=False), ("orders", "audit"): group(10, 299)},
        expiries=[Expiry(Place("token", name="till"), NOW_US - MICROSECONDS, NOW_US + 365 * 86_400 * MICROSECONDS)],
    )
    assert judged(healthy) == []


@pytest.mark.parametrize(
    ("topic", "rule", "severity", "problem"),
    [
        (TopicReading("orders", failure="no space"), "topic_failing", "critical", "it accepts no messages: no space"),
        (TopicReading("orders", damaged_segments=2), "damaged_segment", "critical", "2 segments damaged"),
        (
            TopicReading("orders", offsets_skipped=1),
            "messages_lost",
            "warning",
            "1 offset skipped because their messages were lost",
        ),
        (
            TopicReading("orders", archive_is_failing=True),
            "archive_failing",
            "critical",
            "the last attempt to archive it failed",
        ),
        (
            TopicReading("orders", archive_late_seconds=1_000),
            "archive_late",
            "warning",
            "archiving is overdue for 16 m 40 s",
        ),
    ],
)
def test_what_is_wrong_with_a_topic(topic: TopicReading, rule: str, severity: str, problem: str) -> None:
    (found,) = judged(reading(topics=[topic]))
    assert (found.rule, found.severity, found.place, found.problem) == (
        rule,
        severity,
        Place("topic", "orders"),
        problem,
    )
    assert found.command == "headrace topic describe orders"


def test_names_in_a_command_are_quoted() -> None:
    found = finding("group_unread", Place("group", "a b", "c; rm -rf /"), "late")
    assert shlex.split(found.command) == ["headrace", "group", "describe", "a b", "c; rm -rf /"]


def test_what_cannot_be_read_is_unknown_and_what_cannot_be_written_is_critical() -> None:
    (unread, full) = judged(reading(unread=[("tokens", "the database does not answer")], can_write=False))
    assert rules_of([unread, full]) == [("not_read", "unknown"), ("store_read_only", "critical")]
    assert unread.problem == "its tokens could not be read: the database does not answer"


def test_a_disk_is_almost_full_below_a_twentieth() -> None:
    topics = [TopicReading("orders", bytes_stored=1 << 20), TopicReading("small", bytes_stored=1 << 10)]
    (found,) = judged(reading(disk=DiskReading(10 << 20, 100 << 10), topics=topics))
    assert found.rule == "disk_almost_full"
    assert found.problem == "1.0% of 10.0 MiB is free; topics take 1.0 MiB, orders most: 1.0 MiB"
    assert judged(reading(disk=DiskReading(100, 5))) == []
    (empty,) = judged(reading(disk=DiskReading(100, 4)))
    assert empty.problem == "4.0% of 100 B is free; topics take 0 B"


def disk_looks(minutes: int, free: Callable[[int], float], stored: Callable[[int], float]) -> list[Reading]:
    return [
        reading(
            minute * MINUTE,
            disk=DiskReading(1 << 40, int(free(minute))),
            topics=[TopicReading("orders", bytes_stored=int(stored(minute)))],
        )
        for minute in range(minutes + 1)
    ]


def test_a_disk_that_fills_within_a_day_is_found_with_the_time_that_is_left() -> None:
    gib = 1 << 30

    def fills(per_minute: float) -> list[HealthFinding]:
        return judged(*disk_looks(60, lambda at: 512 * gib - per_minute * (at - 60), lambda at: at * per_minute))

    assert fills(512 * gib / (25 * 60)) == [], "in 25 hours"
    (found,) = fills(512 * gib / (7 * 60))
    assert found.rule == "disk_filling"
    assert found.problem.startswith("at its present rate it is full in 7.0 hours; 73.1 GiB an hour less free, ")
    assert "topics grow by 73.1 GiB an hour; topics take 73.1 GiB, orders most" in found.problem
    assert fills(-gib) == [], "it gets emptier"
    quick = disk_looks(9, lambda at: (100 - at) * gib, lambda at: 0)
    assert judged(*quick) == [], "nine minutes are no trend"
    (other,) = judged(*disk_looks(60, lambda at: (600 - 8 * at) * gib, lambda at: 0))
    assert "topics grow by 0 B an hour" in other.problem, "something else fills it"


def test_only_the_last_hour_decides_about_the_disk() -> None:
    looked = disk_looks(200, lambda at: 1 << 39 if at < 100 else 1 << 38, lambda at: 0)
    assert judged(*looked) == []


def test_a_group_with_unread_messages_and_no_member_is_found_at_once() -> None:
    (found,) = judged(reading(groups={GROUP: group(583, 725, has_members=False)}))
    assert (found.rule, found.severity, found.place) == ("group_unread", "warning", PLACE)
    assert found.problem == "583 messages unread, the oldest for 12 m 5 s, and no member"
    assert found.command == "headrace group describe orders billing"
    quiet = judged(reading(groups={GROUP: group(1, 0.1, has_members=False)}))
    assert rules_of(quiet) == [("group_unread", "warning")], "one message is enough"
    held = judged(reading(groups={GROUP: group(1, 0.1, has_members=False, is_important=True)}))
    assert rules_of(held) == [("group_unread", "critical")], "retention waits for it"


def test_members_may_join_again_after_a_start() -> None:
    early = reading(groups={GROUP: group(has_members=False)}, early_groups=[GROUP])
    (found,) = judged(early)
    assert (found.rule, found.severity) == ("too_early", "unknown")
    assert "no member; the server started 1 h ago" in found.problem
    assert rules_of(judged(early, replace(early, at_us=15, early_groups=()))) == [("group_unread", "warning")]


def test_a_reader_that_dies_is_found_though_it_committed_a_moment_ago() -> None:
    alive = looks(2, lambda seconds: group(10, 1, position=seconds))
    dead = reading(135, groups={GROUP: group(10, 1, position=130, has_members=False)})
    assert judged(*alive) == []
    assert rules_of(judged(*alive, dead)) == [("group_unread", "warning")]


def test_a_group_may_be_read_without_members() -> None:
    """As Spark does: it commits between two looks at which nothing had joined."""

    def stream(seconds: int) -> GroupReading:
        return group(10, 30, position=seconds // 300, has_members=False)

    assert rules_of(judged(*looks(4, stream))) == [("group_unread", "warning")], "it has not been seen to commit"
    assert judged(*looks(6, stream)) == []
    stopped = reading(6 * MINUTE + 901, groups={GROUP: group(10, 30, position=1, has_members=False)})
    assert rules_of(judged(*looks(6, stream), stopped)) == [("group_unread", "warning")]


def test_a_seek_and_a_member_that_came_and_went_are_no_readers() -> None:
    silent = reading(groups={GROUP: group(10, 30, position=5, has_members=False)})
    sought = reading(15, groups={GROUP: group(10, 30, 9, has_members=False, generation=1, seek_generation=1)})
    visited = reading(30, groups={GROUP: group(10, 30, 12, has_members=False, generation=3, seek_generation=1)})
    committed = reading(45, groups={GROUP: group(10, 30, 15, has_members=False, generation=3, seek_generation=1)})
    assert rules_of(judged(silent, sought)) == [("group_unread", "warning")]
    assert rules_of(judged(silent, sought, visited)) == [("group_unread", "warning")]
    assert judged(silent, sought, visited, committed) == []


def test_a_seek_is_no_commit_of_the_members() -> None:
    def hanging(seconds: int) -> GroupReading:
        return group(1, seconds, position=int(seconds > 60), seek_generation=int(seconds > 60))

    (found,) = judged(*looks(6, hanging))
    assert found.rule == "group_stalled" and found.problem.endswith("no commit for at least 6 m")


def test_a_group_that_does_not_commit_for_some_minutes_is_found_on_a_quiet_topic_too() -> None:
    def hanging(seconds: int) -> GroupReading:
        return group(1, seconds, position=5 + (seconds > 0))

    assert judged(*looks(5, hanging)) == []
    (found,) = judged(*looks(6, hanging))
    assert (found.rule, found.severity) == ("group_stalled", "warning")
    assert found.problem == "1 message unread, the oldest for 6 m, and no commit for 5 m 45 s"
    important = looks(6, lambda seconds: replace(hanging(seconds), is_important=True))
    assert rules_of(judged(*important)) == [("group_stalled", "critical")]


def test_a_fixed_group_is_judged_by_its_commits() -> None:
    def fixed(seconds: int) -> GroupReading:
        return group(1, seconds, has_members=False, is_fixed=True)

    assert judged(*looks(4, fixed)) == []
    (found,) = judged(*looks(6, fixed))
    assert found.problem.endswith("no commit for at least 6 m"), "it was not seen to commit at all"


def test_whether_an_old_lag_shrinks_is_unknown_for_some_minutes() -> None:
    old = looks(4, lambda seconds: group(1_000, 7_200))
    (found,) = judged(*old)
    assert (found.rule, found.severity) == ("too_early", "unknown")
    assert found.problem.endswith("it is watched for 4 m only, without a commit")
    catching_up = reading(255, groups={GROUP: group(900, 7_200, position=100)})
    assert judged(*old, catching_up) == []


def lagging(per_minute: float, lag_seconds: float = 600, minutes: int = 15) -> list[HealthFinding]:
    return judged(
        *looks(minutes, lambda seconds: group(int(1_000 + per_minute * seconds / 60), lag_seconds, position=seconds))
    )


def test_a_group_that_falls_behind_is_found() -> None:
    (found,) = lagging(10)
    assert (found.rule, found.place) == ("lag_growing", PLACE)
    assert found.problem == "1,150 messages unread, the oldest for 10 m, and 10 a minute more"
    assert lagging(-10) == [], "it catches up"
    assert lagging(0) == [], "as far behind as before"
    assert lagging(10, lag_seconds=200) == [], "it is hardly behind"
    assert lagging(10, minutes=5) == [], "five minutes are no trend"


def test_groups_that_were_deleted_are_forgotten_and_those_that_were_not_read_are_not() -> None:
    history = HealthHistory()
    history.add(reading(groups={GROUP: group()}))
    history.add(reading(15))
    assert set(history.groups) == {GROUP}
    history.add(reading(30, groups={}))
    assert history.groups == {}


def test_what_is_remembered_of_a_group_is_bounded() -> None:
    past = GroupPast(0, group())
    for seconds in range(0, 7_200, 15):
        past.add(group(), seconds * MICROSECONDS)
    assert len(past.lags) == 16


def pipeline(state: ListedState, **values: Any) -> PipelineDescription:
    report = PipelineReport(run_id="r", state="running", started_us=NOW_US, **values)
    return PipelineDescription("orders", "land", state, NOW_US - 90 * MICROSECONDS, report)


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        (pipeline("failed", error="no such column: x\nat line 7"), "its last run failed: no such column: x"),
        (pipeline("failed"), "its last run failed: it gave no reason"),
        (pipeline("lost", host="etl-3"), "its run on etl-3 is silent for 1 m 30 s"),
        (pipeline("lost"), "its run is silent for 1 m 30 s"),
    ],
)
def test_a_pipeline_that_failed_or_was_lost_is_found(described: PipelineDescription, problem: str) -> None:
    (found,) = judged(reading(pipelines=[described]))
    assert (found.rule, found.place) == ("pipeline_failed", Place("pipeline", "orders", name="land"))
    assert found.problem == problem
    assert judged(reading(pipelines=[pipeline("running")])) == []


@pytest.mark.parametrize(
    ("left_days", "life_days", "severity", "problem"),
    [
        (8, 365, None, ""),
        (6.5, 365, "warning", "it expires in 6 d 12 h"),
        (0.2, 1, None, ""),
        (0.05, 1, "warning", "it expires in 1 h 12 m"),
        (-0.5, 365, "critical", "it expired 12 h ago"),
    ],
)
@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_what_expires_is_found_in_the_last_tenth_of_its_life(
    kind: Any, left_days: float, life_days: float, severity: str | None, problem: str
) -> None:
    end_us = NOW_US + int(left_days * 86_400) * MICROSECONDS
    expiry = Expiry(Place(kind, name="till"), end_us - int(life_days * 86_400) * MICROSECONDS, end_us)
    found = judged(reading(expiries=[expiry]))
    assert [(each.rule, each.severity, each.problem) for each in found] == (
        [(f"{kind}_expiring", severity, problem)] if severity else []
    )


def test_callers_without_a_token_are_a_finding_until_their_time_is_over() -> None:
    until_us = NOW_US + 90 * MICROSECONDS
    (found,) = judged(reading(grace_until_us=until_us))
    assert (found.rule, found.severity, found.place) == ("strangers_served", "warning", Place("store"))
    assert found.problem == f"callers without a token are served until {time_shown(until_us)}, for 1 m 30 s more"
    assert judged(reading(grace_until_us=NOW_US)) == []


@pytest.mark.parametrize("name", RULES)
def test_every_rule_says_what_to_do_with_a_command_that_deletes_nothing(name: str) -> None:
    rule = RULES[name]
    assert rule.advice.endswith(".") and rule.advice[0].isupper()
    command = rule.command_at("orders", "billing", "till")
    assert command.split()[:1] in (["headrace"], ["openssl"], ["curl"])
    assert not {"delete", "trim", "alter", "seek"} & set(command.split())
