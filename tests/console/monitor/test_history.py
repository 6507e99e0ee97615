"""Samples of metrics, and their history."""

from __future__ import annotations

import math

import pytest

from headrace.console.monitor import history as histories
from headrace.console.monitor.history import History
from headrace.console.monitor.sample import GroupSample, Sample, TopicSample, parse, quantile

TEXT = r"""# HELP headrace_messages_in_total Messages written
headrace_messages_in_total{topic="a \"b\" \\ c"} 100
headrace_messages_in_total{topic="orders"} 7
headrace_store_bytes{topic="orders"} 4096
headrace_topic_partitions{topic="orders"} 2
headrace_partition_start_offset{topic="orders",partition="0"} 5
headrace_partition_end_offset{topic="orders",partition="0"} 10
headrace_partition_end_offset{topic="orders",partition="1"} 2
headrace_group_lag_messages{topic="orders",group="billing"} 3
headrace_group_committed_offset{topic="orders",group="billing",partition="0"} 7
headrace_group_committed_offset{topic="orders",group="billing",partition="1"} 2
headrace_publish_seconds_bucket{topic="orders",le="0.01"} 90
headrace_publish_seconds_bucket{topic="orders",le="+Inf"} 100
headrace_topic_failing{topic="orders"} 1
headrace_disk_free_bytes 1e9
"""


def test_a_sample_of_one_server() -> None:
    sample = parse([TEXT], 10.0)
    assert sample.topics['a "b" \\ c'].messages_in == 100
    orders = sample.topics["orders"]
    assert (orders.messages, orders.partitions, orders.bytes_stored) == (7, 2, 4096)
    assert sample.groups["orders", "billing"].lag_messages == 3
    assert sample.partition_lags == {("orders", "billing", "0"): 3, ("orders", "billing", "1"): 0}
    assert sample.others["headrace_disk_free_bytes"] == 1e9
    assert quantile(sample.publish["orders"], 0.45) == pytest.approx(0.005)
    assert quantile(sample.publish["orders"], 0.99) == 0.01
    assert quantile({}, 0.5) is None


def test_counters_of_several_servers_are_added_and_gauges_are_not() -> None:
    sample = parse([TEXT, TEXT], 10.0)
    assert sample.topics["orders"].messages_in == 14
    assert (sample.topics["orders"].bytes_stored, sample.topics["orders"].messages) == (4096, 7)


def sample_at(time: float, written: float, topic: str = "orders") -> Sample:
    return Sample(time, {topic: TopicSample(messages_in=written, bytes_stored=written)})


def test_rates_and_a_restart() -> None:
    history = History(poll_seconds=5.0)
    for time, written in ((0.0, 100.0), (5.0, 200.0), (10.0, 50.0), (15.0, 60.0)):
        history.add(sample_at(time, written))
    points = history.points([("messages_in", "orders")], 900)
    assert points == [(0.0, None), (5.0, 20.0), (10.0, None), (15.0, 2.0)]
    assert history.value("messages_in") == 2.0 and history.value("messages_in", "absent") == 0.0
    assert [time for time, _ in history.points([("bytes_stored",)], 5.0)] == [10.0, 15.0]


def test_a_day_is_kept_in_bounded_memory_and_few_points() -> None:
    history = History(poll_seconds=30.0)
    for step in range(4 * 24 * 120):
        history.add(sample_at(step * 30.0, step * 3.0))
    hour, day = (history.points([("messages_in",)], seconds) for seconds in (3600.0, 86_400.0))
    assert 100 <= len(hour) <= histories.POINTS_MAX and 300 <= len(day) <= 2 * histories.POINTS_MAX
    assert all(value == pytest.approx(0.1) for _, value in hour + day if value is not None)
    assert day[0][0] >= day[-1][0] - 86_400 - 60
    assert [time for time, _ in day] == sorted(time for time, _ in day)


def test_series_beyond_the_bound_are_not_kept_but_totals_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "SERIES_MAX", 3)
    history = History(poll_seconds=1800.0)
    for step in range(8):
        topics = {f"t{number}": TopicSample(messages_in=step) for number in range(10)}
        history.add(Sample(step * 1800.0, topics))
    assert history.points([("messages_in", "t9")], 3600.0) == []
    assert [value for _, value in history.points([("messages_in",)], 3600.0)][-1] == pytest.approx(10 / 1800)


def test_a_series_that_ended_is_forgotten() -> None:
    history = History(poll_seconds=1800.0)
    history.add(sample_at(0.0, 1.0, "gone"))
    for step in range(1, 5):
        history.add(sample_at(step * 1800.0, 1.0))
    assert history.points([("bytes_stored", "gone")], 3600.0) == []
    assert not any(math.isnan(value or 0.0) for _, value in history.points([("bytes_stored",)], 3600.0))


def published(time: float, below_10_ms: float, all_of_them: float, last_commit: float = 0.0) -> Sample:
    sample = Sample(time, publish={"orders": {0.01: below_10_ms, math.inf: all_of_them}})
    sample.groups["orders", "billing"] = GroupSample(last_commit=last_commit)
    return sample


def test_the_latency_is_that_of_the_last_interval() -> None:
    history = History(5.0)
    history.add(published(0.0, 0.0, 1_000.0))
    assert history.latency(lambda _: True, 0.5) is None
    history.add(published(5.0, 100.0, 1_100.0))
    assert history.latency(lambda _: True, 0.5) == pytest.approx(0.005)
    assert history.latency(lambda _: False, 0.5) is None
    history.add(published(10.0, 100.0, 1_100.0))
    assert history.latency(lambda _: True, 0.5) is None
    # The server restarted: what it counted since then is new.
    history.add(published(15.0, 10.0, 10.0))
    assert history.latency(lambda _: True, 0.99) == pytest.approx(0.0099)


def test_a_commit_stays_the_last_one_when_its_server_is_gone() -> None:
    history = History(5.0)
    history.add(published(0.0, 0.0, 0.0, last_commit=1_000.0))
    history.add(published(5.0, 0.0, 0.0))
    assert history.last is not None and history.last.groups["orders", "billing"].last_commit == 1_000.0


def test_partitions_are_kept_from_when_they_lag_and_crowd_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "SERIES_MAX", 20)
    monkeypatch.setattr(histories, "PARTITION_SERIES_MAX", 2)
    history = History(5.0)
    for step, lag in enumerate((0.0, 4.0, 0.0)):
        sample = sample_at(step * 5.0, 1.0)
        sample.partition_lags = {("orders", "billing", str(number)): lag for number in range(9)}
        history.add(sample)
    lags = [[value for _, value in history.points([("lag", "orders", "billing", str(at))], 60)] for at in range(3)]
    assert lags == [[None, 4.0, 0.0], [None, 4.0, 0.0], []]
    assert [value for _, value in history.points([("bytes_stored", "orders")], 60)] == [1.0, 1.0, 1.0]
