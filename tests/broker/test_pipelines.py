"""Reports of pipelines in the broker: kept, listed, lost, forgotten, and gone with their topic."""

from __future__ import annotations

import msgspec
import pytest

from headrace.broker import Broker
from headrace.core.errors import InvalidInput, TopicNotFound
from headrace.core.limits import PIPELINE_KEPT_SECONDS, PIPELINE_SILENT_SECONDS
from headrace.core.reports.pipelines import PipelineReport
from tests.broker.clock import SettableClock

REPORT = PipelineReport(run_id="1", state="running", started_us=1, messages=10)


def test_a_pipeline_is_listed_as_it_last_reported(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("Orders")
    broker.report_pipeline("orders", "land", REPORT)
    clock.step(5)
    later = msgspec.structs.replace(REPORT, messages=20, error="x" * 5_000)
    broker.report_pipeline("ORDERS", "land", later)
    (listed,) = broker.list_pipelines()
    assert (listed.topic, listed.name, listed.state) == ("Orders", "land", "running")
    assert (listed.report.messages, listed.reported_us) == (20, clock.now_us())
    assert listed.report.error == "x" * 2_000
    clock.step(PIPELINE_SILENT_SECONDS + 1)
    assert [each.state for each in broker.list_pipelines()] == ["lost"]
    broker.maintenance.run_all()
    assert len(broker.list_pipelines()) == 1
    clock.step(PIPELINE_KEPT_SECONDS)
    broker.maintenance.run_all()
    assert broker.list_pipelines() == []
    assert broker.counters["pipelines_forgotten"] == 1


def test_a_deleted_topic_has_no_pipelines(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.report_pipeline("orders", "land", REPORT)
    broker.delete_topic("orders")
    assert broker.list_pipelines() == []
    with pytest.raises(TopicNotFound):
        broker.report_pipeline("orders", "land", REPORT)


def test_names_are_checked(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(InvalidInput, match="pipeline"):
        broker.report_pipeline("orders", "a\nb", REPORT)
