"""The rules of attention, each where it holds and where it does not, and the alert rules of Prometheus beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.wire.attention import RULES, Concern, ConcernPlace, Snapshot, attention
from headrace.wire.metrics import METRICS, Sample

ALERTS = Path(__file__).parents[2] / "packaging" / "prometheus" / "alerts.yaml"
GROUP = {"topic": "orders", "group": "billing"}
NOW = 1_789_000_000.0


def snapshot(seconds: float = NOW, **values: Any) -> Snapshot:
    """A scrape; a number has no labels."""
    samples: dict[str, list[Sample]] = {}
    for name, value in values.items():
        given = value if isinstance(value, list) else [value if isinstance(value, tuple) else ({}, value)]
        samples[f"headrace_{name}"] = given
    return Snapshot(seconds, samples)


def history(minutes: int, value: Callable[[int], dict[str, Any]]) -> list[Snapshot]:
    """A scrape every minute, the last one now."""
    return [snapshot(NOW - 60 * (minutes - at), **value(at)) for at in range(minutes + 1)]


def found(*snapshots: Snapshot) -> list[tuple[str, ConcernPlace]]:
    return [(finding.rule, finding.place) for finding in attention(snapshots)]


def test_nothing_is_wrong_with_a_healthy_server_or_none() -> None:
    assert attention([]) == []
    assert attention([snapshot()]) == []
    healthy = snapshot(
        topics_failing=0,
        damaged_segments=({"topic": "orders"}, 0),
        group_lag_seconds=(GROUP, 9_000),
        disk_free_bytes=50,
        disk_size_bytes=100,
        tokens_expiring=0,
    )
    assert attention([healthy]) == []


@pytest.mark.parametrize(
    ("metric", "labels", "rule", "place"),
    [
        ("topic_failing", {"topic": "orders"}, "topic_failing", ConcernPlace("topic", "orders")),
        ("damaged_segments", {"topic": "orders"}, "damaged_segment", ConcernPlace("topic", "orders")),
        ("archive_failing", {"topic": "orders"}, "archive_failing", ConcernPlace("topic", "orders")),
        ("offsets_skipped", {"topic": "orders"}, "messages_lost", ConcernPlace("topic", "orders")),
        ("tokens_expiring", {}, "token_expiring", ConcernPlace("tokens")),
        (
            "pipeline_failed",
            {"topic": "orders", "pipeline": "land"},
            "pipeline_failed",
            ConcernPlace("pipeline", "orders", pipeline="land"),
        ),
    ],
)
def test_what_is_above_zero_is_found_at_its_place(
    metric: str, labels: dict[str, str], rule: str, place: ConcernPlace
) -> None:
    wrong: dict[str, Any] = {metric: (labels, 3)}
    right: dict[str, Any] = {metric: (labels, 0)}
    assert found(snapshot(NOW, **wrong)) == [(rule, place)]
    assert found(snapshot(NOW - 60, **wrong), snapshot(NOW, **right)) == [], "it is over"


def test_a_finding_says_what_is_wrong_and_what_to_do() -> None:
    (finding,) = attention([snapshot(damaged_segments=({"topic": "orders"}, 2))])
    assert finding == Concern(
        "damaged_segment", "critical", ConcernPlace("topic", "orders"), "2 segments are damaged", finding.advice
    )
    assert "headrace doctor" in finding.advice


def test_critical_findings_come_first() -> None:
    both = snapshot(tokens_expiring=1, disk_free_bytes=4, disk_size_bytes=100)
    assert [finding.severity for finding in attention([both])] == ["critical", "warning"]


@pytest.mark.parametrize(("free", "rules"), [(4.9, ["disk_almost_full"]), (5, [])])
def test_a_disk_is_almost_full_below_a_twentieth(free: float, rules: list[str]) -> None:
    assert [rule for rule, _ in found(snapshot(disk_free_bytes=free, disk_size_bytes=100))] == rules


def test_a_disk_that_fills_within_a_day_is_found() -> None:
    """A hundredth of it each half hour, of which half is left: 25 hours; and twice that."""

    def falling(per_minute: float) -> Callable[[int], dict[str, float]]:
        return lambda at: {"disk_free_bytes": 500 - per_minute * (at - 60), "disk_size_bytes": 1_000}

    assert found(*history(60, falling(1 / 3))) == []
    findings = attention(history(60, falling(2 / 3)))
    assert [finding.problem for finding in findings] == ["at its present rate the disk is full in 12.5 hours"]
    assert found(*history(60, falling(-1))) == [], "it gets emptier"
    assert found(*history(9, falling(100))) == [], "nine minutes are no trend"


def test_only_the_last_hour_decides_about_the_disk() -> None:
    old = snapshot(NOW - 7_200, disk_free_bytes=1_000_000, disk_size_bytes=2_000_000)
    steady = history(60, lambda at: {"disk_free_bytes": 500, "disk_size_bytes": 1_000})
    assert found(old, *steady) == []


def lagging(seconds: float, per_minute: float) -> Callable[[int], dict[str, Sample]]:
    return lambda at: {"group_lag_messages": (GROUP, 1_000 + per_minute * at), "group_lag_seconds": (GROUP, seconds)}


def test_a_group_that_falls_behind_is_found() -> None:
    assert found(*history(15, lagging(600, 10))) == [("lag_growing", ConcernPlace("group", "orders", "billing"))]
    (finding,) = attention(history(15, lagging(600, 10)))
    assert finding.problem == "1,150 messages behind, 10 minutes, and falling behind"
    assert found(*history(15, lagging(600, -10))) == [], "it catches up"
    assert found(*history(15, lagging(600, 0))) == [], "it stands still, as one that is not used does"
    assert found(*history(15, lagging(200, 10))) == [], "it is hardly behind"
    assert found(*history(5, lagging(600, 10))) == [], "five minutes are no trend"


def test_of_several_servers_the_largest_value_counts() -> None:
    labels = {"topic": "orders"}
    assert found(snapshot(topic_failing=[(labels, 1), (labels, 0)])) == [
        ("topic_failing", ConcernPlace("topic", "orders"))
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_about_metrics_that_exist(rule: Any) -> None:
    names = re.findall(r"headrace_[a-z_]+", rule.expression)
    assert names and set(names) <= METRICS.keys()
    assert rule.advice.endswith(".") and rule.advice[0].isupper()
    labels = set(re.findall(r"\$labels\.([a-z]+)", rule.summary))
    assert labels <= set(METRICS[names[0]].labels)


def test_the_documentation_names_every_alert() -> None:
    page = (ALERTS.parents[2] / "docs" / "METRICS.md").read_text()
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert set(re.findall(r"^\| `(Headrace[A-Za-z]+)`", page, re.MULTILINE)) == {
        rule["alert"] for rule in group["rules"]
    }


def test_prometheus_alerts_on_the_same_rules() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    expected = [
        {
            "alert": "Headrace" + "".join(part.capitalize() for part in rule.name.split("_")),
            "expr": rule.expression,
            "for": f"{rule.minutes}m",
            "labels": {"severity": rule.severity},
            "annotations": {"summary": rule.summary, "description": rule.advice},
        }
        for rule in RULES
    ]
    # A server that does not answer has no metrics to judge, so this one rule is Prometheus' alone.
    alone = [rule for rule in group["rules"] if rule["alert"] == "HeadraceDown"]
    assert [rule for rule in group["rules"] if rule not in alone] == expected
    assert [rule["expr"] for rule in alone] == ['up{job="headrace"} == 0']


def test_an_archive_that_is_long_overdue_is_found() -> None:
    late: dict[str, Any] = {"archive_late_seconds": ({"topic": "orders"}, 1_000)}
    (finding,) = attention([snapshot(NOW, **late)])
    assert (finding.rule, finding.place) == ("archive_late", ConcernPlace("topic", "orders"))
    assert finding.problem == "archiving is overdue for 16 minutes"
    assert attention([snapshot(NOW, archive_late_seconds=({"topic": "orders"}, 900))]) == []
