"""A broker that looks at itself: what it reads on each engine and remembers, and what it says if it cannot look."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.monitoring import health as watching
from headrace.core.errors import StoreUnavailable
from headrace.core.health.findings import Health, HealthFinding, Place
from headrace.core.health.readings import Expiry
from headrace.core.health.rules import JOIN_SECONDS
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.pipelines import PipelineReport
from tests.broker.background import Background
from tests.broker.clock import SettableClock
from tests.broker.sites import Site

GROUP = Place("group", "orders", "billing")


def found(broker: Broker) -> list[tuple[str, Place]]:
    return [(each.rule, each.place) for each in broker.describe_health().findings]


def fill(broker: Broker, messages: int = 3) -> None:
    broker.create_topic("orders")
    broker.publish("orders", pa.record_batch({"value": [b"m"] * messages}))


def test_a_group_whose_member_leaves_is_found_and_one_that_caught_up_is_not(
    broker: Broker, clock: SettableClock
) -> None:
    fill(broker)
    broker.join_group("orders", "billing", "m1", session_timeout_seconds=30.0)
    assert found(broker) == []
    broker.leave_group("orders", "billing", "m1")
    assert found(broker) == [], "the verdict of a moment ago counts"
    clock.step(1)
    assert found(broker) == [("group_unread", GROUP)]
    (each,) = broker.describe_health().findings
    assert each.problem.startswith("3 messages unread, the oldest for ") and each.problem.endswith(", and no member")
    broker.commit_offsets("orders", "billing", {0: 3})
    clock.step(1)
    assert broker.describe_health().state == "fine"


def test_moving_a_group_that_nothing_reads_does_not_hide_it(broker: Broker, clock: SettableClock) -> None:
    fill(broker)
    broker.register_group("orders", "billing")
    assert found(broker) == [("group_unread", GROUP)]
    broker.seek("orders", "billing", {0: 1})
    clock.step(1)
    assert found(broker) == [("group_unread", GROUP)]
    broker.commit_offsets("orders", "billing", {0: 2})
    clock.step(1)
    assert found(broker) == [], "a program reads it without joining, as Spark does"


def test_maintenance_remembers_that_a_member_does_not_commit(broker: Broker, clock: SettableClock) -> None:
    fill(broker)
    broker.join_group("orders", "billing", "m1", session_timeout_seconds=3_600.0)
    for _ in range(21):
        broker.maintenance.run_all()
        clock.step(15)
    assert found(broker) == [("group_stalled", GROUP)]
    broker.commit_offsets("orders", "billing", {0: 1}, "m1")
    clock.step(15)
    assert found(broker) == [], "it works again"


def test_members_of_a_protocol_are_members(broker: Broker, clock: SettableClock) -> None:
    fill(broker)
    broker.register_group("orders", "billing")
    broker.claims.outside.hold("billing", ["Orders"], "Kafka")
    assert found(broker) == []
    broker.claims.outside.release("billing", ["orders"])
    clock.step(1)
    assert found(broker) == [("group_unread", GROUP)]


def test_members_of_another_server_are_members(shared_site: Site) -> None:
    holder, other = shared_site.open(), shared_site.open()
    holder.servers.advertise({"kafka": "kafka://127.0.0.1:1"})
    fill(holder)
    holder.register_group("orders", "billing")
    holder.claims.claim("billing", {"orders"}, "Kafka")
    holder.claims.outside.hold("billing", ["orders"], "Kafka")
    other.list_topics()
    other.maintenance.run_all()
    assert found(other) == []


def test_a_fixed_group_needs_no_member(broker: Broker) -> None:
    fill(broker)
    broker.register_group("orders", "billing", consumers=2)
    assert found(broker) == []


def test_after_a_start_members_have_some_seconds_to_join_again(durable_site: Site) -> None:
    broker, clock = durable_site.open(), durable_site.clock
    fill(broker)
    broker.register_group("orders", "billing")
    broker.close()
    again = durable_site.open()
    again.health.start()
    assert found(again) == [("too_early", GROUP)]
    assert again.describe_health().state == "unknown"
    clock.step(JOIN_SECONDS)
    assert found(again) == [("group_unread", GROUP)]


def test_tokens_pipelines_and_certificates_are_named(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    broker.access.create("till", [("*", ["read"])], life_seconds=1_000)
    broker.access.create("admin", [("*", ["read"])])
    report = PipelineReport(run_id="r", state="failed", started_us=1, error="no such column")
    broker.report_pipeline("orders", "land", report)
    now_us = clock.now_us()
    file = Place("certificate", name="/etc/headrace/server.pem")
    broker.health.certificates = [Expiry(file, now_us - 9 * MICROSECONDS, now_us + MICROSECONDS)]
    clock.step(901)
    assert [(each.rule, each.severity, each.place.name) for each in broker.describe_health().findings] == [
        ("certificate_expiring", "critical", "/etc/headrace/server.pem"),
        ("pipeline_failed", "warning", "land"),
        ("token_expiring", "warning", "till"),
    ]
    clock.step(100)
    (token,) = [each for each in broker.describe_health().findings if each.rule == "token_expiring"]
    assert (token.severity, token.problem) == ("critical", "it expired 1 s ago")


def test_what_cannot_be_read_is_unknown_and_the_rest_is_judged(
    broker: Broker, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    broker.register_group("orders", "billing")

    def refuse() -> NoReturn:
        raise StoreUnavailable("postgres", "the database does not answer")

    monkeypatch.setattr(broker.access, "ending", refuse)
    health = broker.describe_health()
    assert health.state == "attention"
    assert [(each.rule, each.place.name) for each in health.findings] == [("group_unread", ""), ("not_read", "tokens")]
    assert "the database does not answer" in health.findings[1].problem
    monkeypatch.setattr(broker.claims, "groups", refuse)
    clock.step(1)
    assert broker.describe_health().state == "unknown", "whether a group has members is not known"
    monkeypatch.undo()
    clock.step(1)
    assert found(broker) == [("group_unread", GROUP)]


def test_a_topic_that_cannot_be_opened_is_found(disk_site: Site, tmp_path: Path) -> None:
    broker = disk_site.open()
    fill(broker)
    broker.close()
    for log in (tmp_path / "store" / "topics").glob("*/*.log"):
        log.write_bytes(b"x" * log.stat().st_size)
    again = disk_site.open()
    if again.failing_topics():
        (each,) = [each for each in again.describe_health().findings if each.rule == "topic_failing"]
        assert each.place == Place("topic", "orders") and again.failing_topics()["orders"] in each.problem
    else:
        assert {each.rule for each in again.describe_health().findings} & {"damaged_segment", "messages_lost"}


def test_while_a_look_hangs_callers_get_the_last_findings_and_one_that_says_so(
    broker: Broker, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    broker.register_group("orders", "billing")
    assert found(broker) == [("group_unread", GROUP)]
    begun, release = threading.Event(), threading.Event()
    real = broker.can_write

    def hang() -> bool:
        begun.set()
        assert release.wait(60)
        return real()

    monkeypatch.setattr(broker, "can_write", hang)
    monkeypatch.setattr(watching, "HEALTH_WAIT_SECONDS", 0.05)
    clock.step(1)
    looking: Background[Health] = Background(broker.describe_health)
    assert begun.wait(60)
    assert found(broker) == [("group_unread", GROUP), ("not_read", Place("server", name="store"))]
    release.set()
    assert [each.rule for each in looking.result().findings] == ["group_unread"]


def test_a_verdict_takes_a_tenth_of_the_time_at_most(
    broker: Broker, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def slow() -> bool:
        looks.append(1)
        clock.step(3)
        return True

    monkeypatch.setattr(broker, "can_write", slow)
    broker.describe_health()
    clock.step(29)
    broker.describe_health()
    assert len(looks) == 1
    clock.step(1)
    broker.describe_health()
    assert len(looks) == 2


def test_a_disk_that_cannot_be_written_is_critical(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "can_write", lambda: False)
    (each,) = broker.describe_health().findings
    assert isinstance(each, HealthFinding) and (each.rule, each.severity) == ("store_read_only", "critical")
