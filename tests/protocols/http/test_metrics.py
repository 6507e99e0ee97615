"""Metrics and health over real sockets: what Prometheus and a load balancer see."""

from __future__ import annotations

import shutil
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.protocols.http.site import Site, checked, create_topic

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
    publish(site, {"value": "y", "partition": 1})
    checked(site.client.get("/v1/topics/orders/partitions/1/messages", params={"offset": 0}), 200)
    checked(site.client.put("/v1/topics/orders/groups/billing", json={"consumers": 1}), 200)
    seen = scraped(site)
    assert seen[sample("headrace_messages_in_total", topic="Orders")] == 2
    assert seen[sample("headrace_bytes_in_total", topic="Orders")] > 10
    assert seen[sample("headrace_messages_out_total", topic="Orders")] == 2
    assert seen[sample("headrace_bytes_out_total", topic="Orders")] > 10
    assert seen[sample("headrace_duplicates_total", topic="Orders", kind="source")] == 1
    assert seen[sample("headrace_duplicates_total", topic="Orders", kind="payload")] == 0
    assert seen[sample("headrace_partition_end_offset", topic="Orders", partition="1")] == 2
    assert seen[sample("headrace_partition_start_offset", topic="Orders", partition="1")] == 0
    assert seen[sample("headrace_group_lag_messages", topic="Orders", group="billing")] == 2
    assert seen[sample("headrace_group_lag_seconds", topic="Orders", group="billing")] > 0
    assert seen[sample("headrace_group_committed_offset", topic="Orders", group="billing", partition="1")] == 0
    assert seen[sample("headrace_store_bytes", topic="Orders")] > 0
    assert seen[sample("headrace_publish_queue_messages", topic="Orders")] == 0
    assert seen[sample("headrace_waiting_readers", topic="Orders")] == 0


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
    assert scraped(site)[sample("headrace_window_cleanings_total")] == before + 1


def test_a_server_that_takes_messages_is_alive_and_ready(site: Site) -> None:
    create_topic(site.client, "orders")
    assert checked(site.client.get("/health/live"), 200)["status"] == "alive"
    assert checked(site.client.get("/health/ready"), 200) == {
        "status": "ready",
        "failing_topics": 0,
        "topics_with_gaps": 0,
    }


def test_a_topic_that_skips_offsets_is_ready_and_noted(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        create_topic(site.client, "orders")
        site.broker.register_group("orders", "ahead")
        # As after a power cut of a store that does not sync.
        topic_id = site.broker.describe_topic("orders").id
        site.broker._store.catalog.put_offsets(topic_id, "ahead", {0: 4})
    with Site(tmp_path) as site:
        noted = {"status": "ready", "failing_topics": 0, "topics_with_gaps": 1}
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
            {"status": "failing", "failing_topics": 1, "topics_with_gaps": 0},
        )
        assert site.client.get("/health/live").status_code == 200
        publish(site, {"value": "still"})
