"""Metrics and health over real sockets: what Prometheus and a load balancer see."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.reports.pipelines import PipelineReport
from headrace.core.rights import Right
from headrace.protocols.http.routes.monitoring import metrics as http_metrics
from headrace.protocols.http.routes.monitoring.metrics import Bounds, scrape
from headrace.protocols.http.settings import HttpSettings
from headrace.storage.open import open_store
from headrace.wire.metrics import METRICS, parse, series_of
from tests.broker.background import eventually
from tests.group_writes import put_offsets
from tests.protocols.http.site import Site, checked, create_topic
from tests.storage.disk.builders import flip, frame_positions

Sample = tuple[str, frozenset[tuple[str, str]]]


def scraped(site: Site) -> dict[Sample, float]:
    answer = site.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def publish(site: Site, *messages: dict[str, object]) -> None:
    checked(site.client.post("/v1/topics/orders/messages", json={"messages": list(messages)}), 200)


def sample(name: str, **labels: str) -> Sample:
    return name, frozenset(labels.items())


def test_metrics_count_what_was_published_read_and_dropped(site: Site) -> None:
    create_topic(site.client, "Orders", 2)
    message = {"value": "x" * 10, "producer_id": "till", "seqno": 1, "partition": 1}
    publish(site, message)
    publish(site, message)
    publish(site, message | {"value": "other"})
    publish(site, {"value": "y", "partition": 1})
    checked(site.client.get("/v1/topics/orders/partitions/1/messages", params={"offset": 0}), 200)
    checked(site.client.put("/v1/topics/orders/groups/billing", json={"consumers": 1}), 200)
    seen = scraped(site)
    assert seen[sample("headrace_messages_in_total", topic="Orders")] == 2
    assert seen[sample("headrace_bytes_in_total", topic="Orders")] == 11
    assert seen[sample("headrace_messages_out_total", topic="Orders")] == 2
    assert seen[sample("headrace_bytes_out_total", topic="Orders")] == 11
    assert seen[sample("headrace_duplicates_total", topic="Orders", kind="source")] == 1
    assert seen[sample("headrace_duplicates_total", topic="Orders", kind="payload")] == 0
    assert seen[sample("headrace_conflicts_total", topic="Orders")] == 1
    assert seen[sample("headrace_partition_end_offset", topic="Orders", partition="1")] == 2
    assert seen[sample("headrace_partition_start_offset", topic="Orders", partition="1")] == 0
    assert seen[sample("headrace_group_lag_messages", topic="Orders", group="billing")] == 2
    assert seen[sample("headrace_group_lag_seconds", topic="Orders", group="billing")] > 0
    assert seen[sample("headrace_group_committed_offset", topic="Orders", group="billing", partition="1")] == 0
    assert seen[sample("headrace_store_bytes", topic="Orders")] > 0
    assert seen[sample("headrace_publish_queue_messages", topic="Orders")] == 0
    assert seen[sample("headrace_waiting_readers", topic="Orders")] == 0


def test_a_server_shows_the_metrics_of_the_table_and_no_others(site: Site) -> None:
    """With every label, once something of each kind happened."""
    create_topic(site.client, "orders", 2, retention_seconds=3600, retention_bytes=1 << 30, archive="on")
    publish(site, {"value": "a"})
    checked(site.client.put("/v1/topics/orders/groups/billing", json={"consumers": 1}), 200)
    site.broker.commit_offsets("orders", "billing", {0: 0}, 0)
    site.broker.fetch("orders", 0, 0)
    site.limits.count_refusal("till", "streams_max")
    site.limits.traffic["kafka"].count("Produce", "none", 10, 20)
    report = PipelineReport(run_id="1", state="running", started_us=1, lag_messages=7, batch_seconds=0.5)
    site.broker.report_pipeline("orders", "land", report)
    # The store of these tests does not sync.
    site.broker.topics.find("orders").topic.log.sync_seconds.observe(0.01)
    site.fail("orders")
    text = site.client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name.removesuffix("_total") for name in METRICS} == families.keys()
    for name, metric in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.samples, name
        for found in family.samples:
            assert found.name in series_of(name)
            assert set(found.labels) - {"le"} == set(metric.labels), found
    parsed = parse(text)
    of_library = {
        (found.name, frozenset(found.labels.items())): found.value
        for family in families.values()
        for found in family.samples
    }
    ours = {(name, frozenset(labels.items())): value for name, samples in parsed.items() for labels, value in samples}
    assert ours == of_library


def test_store_and_server_are_shown_as_a_whole(site: Site) -> None:
    create_topic(site.client, "orders", retention_seconds=3600)
    create_topic(site.client, "other")
    publish(site, {"value": "abc"})
    site.broker.servers.advertise({"http": site.url})
    seen = scraped(site)
    assert seen[sample("headrace_servers")] == 1
    assert seen[sample("headrace_topics")] == 2
    assert seen[sample("headrace_server_messages_in_total")] == 1
    assert seen[sample("headrace_server_bytes_in_total")] == 3
    assert seen[sample("headrace_server_publish_seconds_count")] == 1
    assert 0 < seen[sample("headrace_disk_free_bytes")] <= seen[sample("headrace_disk_size_bytes")]
    assert seen[sample("headrace_topic_retention_seconds", topic="orders")] == 3600
    assert sample("headrace_topic_retention_seconds", topic="other") not in seen
    assert seen[sample("headrace_topics_failing")] == 0


def test_a_topic_that_fails_is_named(site: Site) -> None:
    create_topic(site.client, "orders")
    site.fail("orders")
    seen = scraped(site)
    assert seen[sample("headrace_topics_failing")] == 1
    assert seen[sample("headrace_topic_failing", topic="orders")] == 1


def test_damage_is_counted_and_hides_no_other_metric(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "orders")
        for _ in range(7):
            publish(site, {"value": "a"})
    first = min((tmp_path / "store").glob("topics/*/*.log"))
    flip(first, frame_positions(first)[0] + 70)
    with Site(tmp_path) as site:
        site.broker.register_group("orders", "billing")
        assert site.client.get("/v1/topics/orders/partitions/0/messages", params={"offset": 0}).status_code == 503
        seen = scraped(site)
        assert seen[sample("headrace_damaged_segments", topic="orders")] == 1
        assert seen[sample("headrace_group_lag_messages", topic="orders", group="billing")] == 7


def test_the_last_commit_of_a_group_is_shown_until_it_is_deleted(site: Site) -> None:
    create_topic(site.client, "orders")
    site.broker.register_group("orders", "billing")
    labels = {"topic": "orders", "group": "billing"}
    assert b"headrace_group_last_commit_timestamp_seconds{" not in scrape(site.broker)
    site.broker.commit_offsets("orders", "billing", {0: 0})
    seen = scraped(site)
    assert seen[sample("headrace_group_last_commit_timestamp_seconds", **labels)] > 1_700_000_000
    assert seen[sample("headrace_group_members", **labels)] == 0
    site.broker.delete_group("orders", "billing")
    site.broker.register_group("orders", "billing")
    assert b"headrace_group_last_commit_timestamp_seconds{" not in scrape(site.broker)


def test_of_many_topics_and_groups_those_that_matter_have_series(site: Site) -> None:
    for name in ("a", "orders", "z"):
        create_topic(site.client, name)
    publish(site, {"value": "a"}, {"value": "b"})
    for group in ("done", "behind"):
        site.broker.register_group("orders", group)
    site.broker.commit_offsets("orders", "done", {0: 2})
    site.broker.access.create("admin", [("*", list(Right))])
    bounded = parse(scrape(site.broker, Bounds(topics_max=1, groups_max=1)).decode())
    assert [labels for labels, _ in bounded["headrace_messages_in_total"]] == [{"topic": "orders"}]
    assert [labels["group"] for labels, _ in bounded["headrace_group_lag_messages"]] == ["behind"]
    assert bounded["headrace_topics"] == [({}, 3)]
    assert bounded["headrace_tokens"] == [({}, 1)]


def test_histograms_have_a_bucket_for_everything(site: Site) -> None:
    create_topic(site.client, "orders")
    publish(site, {"value": "a"}, {"value": "b"})
    seen = scraped(site)
    for name in ("publish_seconds", "commit_messages"):
        assert seen[sample(f"headrace_{name}_bucket", topic="orders", le="+Inf")] == 1
        assert seen[sample(f"headrace_{name}_count", topic="orders")] == 1
    assert seen[sample("headrace_commit_messages_sum", topic="orders")] == 2


def test_upkeep_is_counted(site: Site) -> None:
    before = scraped(site)[sample("headrace_window_cleanings_total")]
    site.broker.maintenance.run_all()
    # What is shown may be a second old.
    eventually(lambda: scraped(site)[sample("headrace_window_cleanings_total")] == before + 1)


def test_a_server_that_takes_messages_is_alive_and_ready(site: Site) -> None:
    create_topic(site.client, "orders")
    assert checked(site.client.get("/health/live"), 200)["status"] == "alive"
    assert checked(site.client.get("/health/ready"), 200) == {
        "status": "ready",
        "failing_topics": 0,
        "topics_with_gaps": 0,
        "writable": True,
    }


def test_a_topic_that_skips_offsets_is_ready_and_noted(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "orders")
        site.broker.register_group("orders", "ahead")
        topic_id = site.broker.describe_topic("orders").id
    # As after a power cut of a store that does not sync.
    with closing(open_store(f"file:{tmp_path / 'store'}")) as store:
        put_offsets(store.catalog, topic_id, "ahead", {0: 4})
    with Site(tmp_path) as site:
        noted = {"status": "ready", "failing_topics": 0, "topics_with_gaps": 1, "writable": True}
        assert checked(site.client.get("/health/ready"), 200) == noted
        assert site.broker.topics_with_gaps() == {"orders": 4}


def test_a_topic_that_cannot_be_opened_makes_a_server_not_ready(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "lost")
        create_topic(site.client, "orders")
    shutil.rmtree(min((tmp_path / "store" / "topics").iterdir()))
    with Site(tmp_path) as site:
        answer = site.client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (
            503,
            {"status": "failing", "failing_topics": 1, "topics_with_gaps": 0, "writable": True},
        )
        assert site.client.get("/health/live").status_code == 200
        publish(site, {"value": "still"})


def test_a_server_whose_disk_is_full_is_not_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(site.client, "orders")
    monkeypatch.setattr(site.broker.store, "can_write", lambda: False)
    answer = site.client.get("/health/ready")
    failing = {"status": "failing", "failing_topics": 0, "topics_with_gaps": 0, "writable": False}
    assert (answer.status_code, answer.json()) == (503, failing)
    monkeypatch.undo()
    assert checked(site.client.get("/health/ready"), 200)["writable"] is True


def test_consumers_of_the_queue_api_are_counted_and_not_listed(site: Site) -> None:
    checked(site.client.post("/topics", json={"name": "jobs"}), 200)
    for _ in range(5):
        checked(site.client.post("/consumer/register", json={"topic": "jobs"}), 200)
    seen = scraped(site)
    assert seen[sample("headrace_queue_consumers", topic="jobs")] == 5
    assert not any("group" in dict(labels) for _, labels in seen)


def test_series_of_partitions_are_left_out_where_there_are_too_many(tmp_path: Path) -> None:
    with Site(tmp_path, HttpSettings(metrics_partitions_max=10)) as site:
        create_topic(site.client, "orders", 10)
        assert sample("headrace_partition_end_offset", topic="orders", partition="9") in scraped(site)
        checked(site.client.put("/v1/topics/orders/groups/billing", json={}), 200)
        eventually(lambda: sample("headrace_group_lag_messages", topic="orders", group="billing") in scraped(site))
        assert not any(name == "headrace_group_committed_offset" for name, _ in scraped(site))
        create_topic(site.client, "more")
        eventually(lambda: not any("partition" in dict(labels) for _, labels in scraped(site)))


def test_names_are_escaped(site: Site) -> None:
    name = 'a"b\\c'
    create_topic(site.client, name)
    assert sample("headrace_messages_in_total", topic=name) in scraped(site)


def test_who_asks_at_the_same_time_shares_what_is_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of it is made on the event loop, which answers others meanwhile."""
    create_topic(site.client, "orders")
    # Who asks a moment later gets the same.
    monkeypatch.setattr(http_metrics, "FRESH_SECONDS", 600.0)
    begun, release, calls = threading.Event(), threading.Event(), []
    topic_metrics = site.broker.topic_metrics

    def held(partitions_max: int | None = None) -> Any:
        calls.append(threading.current_thread().name)
        begun.set()
        assert release.wait(60)
        return topic_metrics(partitions_max)

    # The server's verdict on itself, which is a part of the text, looks by itself.
    site.broker.describe_health()
    monkeypatch.setattr(site.broker.health, "look_is_due", lambda: False)
    monkeypatch.setattr(site.broker, "topic_metrics", held)
    clients = [site.new_client() for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(client.get, "/metrics") for client in clients]
        assert begun.wait(60)
        assert site.client.get("/health/live").status_code == 200
        release.set()
        assert len({answer.result().text for answer in answers}) == 1
    assert len(calls) == 1
    assert calls[0].startswith("headrace-http")


def test_what_all_groups_share_is_asked_for_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand groups took a look at each partition each."""
    site.broker.create_topic("orders", partitions=3)
    site.broker.publish("orders", pa.RecordBatch.from_pydict({"value": [b"x"] * 30}))
    for number in range(100):
        site.broker.register_group("orders", f"group-{number}")
    log, looks = site.broker.topics.find("orders").topic.log, list[Any]()
    for name in ("time_of", "offsets"):
        monkeypatch.setattr(log, name, _counted(getattr(log, name), looks))
    assert scrape(site.broker).count(b"headrace_group_lag_messages{") == 100
    assert len(looks) < 20


def _counted(look: Callable[..., Any], looks: list[Any]) -> Callable[..., Any]:
    def counted(*given: Any) -> Any:
        looks.append(given)
        return look(*given)

    return counted


def test_tokens_are_looked_up_in_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that keeps one waiting stops nobody else."""
    begun, release = threading.Event(), threading.Event()
    tokens = site.broker.store.catalog.tokens
    find_all = tokens.all

    def held() -> Any:
        begun.set()
        assert release.wait(60)
        return find_all()

    monkeypatch.setattr(tokens, "all", held)
    site.access.forget()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(site.new_client().get, "/v1/topics")
        assert begun.wait(60)
        assert site.client.get("/health/live").status_code == 200
        release.set()
        assert waiting.result().status_code == 200
