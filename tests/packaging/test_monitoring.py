"""The dashboard for Grafana and the alert rules for Prometheus: every metric they name is one that servers show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.core.health.rules import RULES
from headrace.core.reports.pipelines import PipelineReport
from headrace.wire.metrics import METRICS, parse
from tests.protocols.http.site import Site, create_topic, publish

PACKAGING = Path(__file__).parents[2] / "packaging"
DASHBOARD: dict[str, Any] = json.loads((PACKAGING / "grafana" / "headrace.json").read_text())
# What callers of several servers find, and no server of itself.
ASKED = {"server_silent"}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        yield str(variable["query"])
    for group in yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names and labels of all series of a server on which something of each kind happened."""
    with Site(tmp_path_factory.mktemp("monitored")) as site:
        create_topic(site.client, "orders", archive="on")
        publish(site.client, "orders", "a")
        site.broker.register_group("orders", "billing")
        site.broker.commit_offsets("orders", "billing", {0: 0})
        report = PipelineReport(run_id="1", state="failed", started_us=1, lag_messages=1, batch_seconds=0.5)
        site.broker.report_pipeline("orders", "land", report)
        site.limits.count_refusal("till", "streams_max")
        site.limits.traffic["kafka"].count("Produce", "none", 10, 20)
        topic = site.broker.topics.find("orders").topic.log
        # The store of these tests does not sync, and this topic fails.
        topic.sync_seconds.observe(0.01)
        site.fail("orders")
        parsed = parse(site.client.get("/metrics").text)
    return {name: set[str]().union(*(labels for labels, _ in samples)) for name, samples in parsed.items()}


def test_every_metric_that_is_named_is_shown_by_a_server(series: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in re.findall(r"\bheadrace_[a-z_]+", expression)}
    assert len(named) > 25
    assert named - series.keys() == set()


def test_expressions_group_by_labels_that_the_metrics_have(series: dict[str, set[str]]) -> None:
    known = set().union(*series.values()) | {"le", "instance", "job"}
    for expression in expressions():
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",")} <= known, expression


def test_values_of_the_store_are_not_added_up_over_servers() -> None:
    for expression in expressions():
        for name, metric in METRICS.items():
            if metric.is_of_store and re.search(rf"\b{name}\b", expression):
                assert not re.search(rf"sum(?: by \([^)]*\))? \(?{name}\b", expression), expression
                assert not re.search(rf"sum\({name}\b", expression), expression


def test_the_dashboard_can_be_imported_anywhere() -> None:
    text = json.dumps(DASHBOARD)
    assert "http" not in text, "it names no host"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert panel["description"] and panel["title"], panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


def test_prometheus_alerts_on_the_findings_of_servers() -> None:
    """An alert has the severity of its series, and says what `headrace status` says."""
    (group,) = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())["groups"]
    labels = {name: f"{{{{ $labels.{name} }}}}" for name in ("topic", "group", "name")}
    expected = [
        {
            "alert": "Headrace" + "".join(part.capitalize() for part in name.split("_")),
            "expr": f'headrace_finding{{rule="{name}"}} > 0',
            "for": f"{rule.minutes}m",
            "annotations": {
                "summary": rule.summary.format(**labels),
                "description": f"{rule.advice} {rule.command_at(**labels)}",
            },
        }
        for name, rule in RULES.items()
        if name not in ASKED
    ]
    assert [rule for rule in group["rules"] if rule["alert"] != "HeadraceDown"] == expected
    # A server that does not answer has no findings, so this one rule is Prometheus' alone.
    assert [rule["expr"] for rule in group["rules"] if rule["alert"] == "HeadraceDown"] == ['up{job="headrace"} == 0']


def test_the_documentation_names_every_alert() -> None:
    page = (PACKAGING.parent / "docs" / "metrics.md").read_text()
    (group,) = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())["groups"]
    named = set(re.findall(r"^\| `(Headrace[A-Za-z]+)`", page, re.MULTILINE))
    assert named == {rule["alert"] for rule in group["rules"]}
