"""The audit log: what was refused and what was changed, from every protocol, and never a payload or a secret."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.cli.server.logs import JsonFormatter
from headrace.client import connect
from headrace.core.errors import Forbidden, Unauthenticated
from headrace.core.limits import AUDIT_REFUSALS_PER_MINUTE
from headrace.core.rights import Right
from headrace.edge import audit
from headrace.edge.operations import OPERATIONS
from headrace.protocols.flight.server import FlightServer
from tests.protocols.http.site import Site, path_of

ONLY_FLIGHT = {"remove_member", "trim_topic", "check_store", "create_token", "rotate_token", "revoke_token"}
# Which tests/protocols/kafka/test_group_access.py looks for.
ONLY_KAFKA = {"commit_back"}
CHANGES = {name for name, need in OPERATIONS.items() if need.is_audited}


class Place:
    """Both servers, and the log as a file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "audit.jsonl"
        audit.write_to(str(self.file))
        self.site = Site(directory)
        self.flight = FlightServer(self.site.broker, self.site.access, "grpc+tcp://127.0.0.1:0")
        self.url = f"headrace://127.0.0.1:{self.flight.port}"
        _, self.root = self.site.access.create("root", [("*", list(Right))])
        self.record, self.reader = self.site.access.create("reader", [("t", ["read"])], groups=["mine"])

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def close(self) -> None:
        assert self.flight.stop(60.0)
        self.site.__exit__(None, None, None)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    # Other tests of this process were refused, too.
    monkeypatch.setattr(audit, "_refusals", audit.Refusals())
    opened = Place(tmp_path)
    yield opened
    opened.close()
    for handler in audit.logger.handlers[:]:
        audit.logger.removeHandler(handler)
        handler.close()
    audit.logger.propagate = True
    audit.logger.setLevel(logging.NOTSET)


def _over_http(place: Place) -> None:
    client, topic = place.site.new_client(place.root), path_of("topics", "t")
    group = path_of("topics", "t", "groups", "g")
    answers = [
        client.post("/v1/topics", json={"name": "t"}),
        client.patch(topic, json={"partitions": 2}),
        client.post(f"{topic}/messages", json={"messages": [{"value": "a", "producer_id": "till-7", "seqno": 1}]}),
        client.delete(f"{topic}/sources/till-7"),
        client.put(group, json={}),
        client.put(group, json={"important": True}),
        client.post(f"{group}/seek", json={"to": "earliest"}),
        client.post(f"{topic}/delete-messages", json={"before": []}),
        client.delete(group),
        client.delete(topic),
    ]
    assert all(answer.is_success for answer in answers)


def _over_flight(place: Place) -> None:
    with connect(place.url, place.root) as client:
        client.create_topic("t")
        client.alter_topic("t", 2)
        with client.producer("t", producer_id="till-7") as producer:
            producer.send(b"a")
        client.reset_source("t", "till-7")
        client.register_group("t", "g")
        client.register_group("t", "g", important=True)
        client.seek("t", "g", "earliest")
        client.delete_messages("t", {})
        client.delete_group("t", "g")
        client.delete_topic("t")


@pytest.mark.parametrize("make_changes", [_over_http, _over_flight])
def test_changes_are_written_down(place: Place, make_changes: Callable[[Place], None]) -> None:
    make_changes(place)
    lines = place.lines()
    assert [line["operation"] for line in lines] == [
        "create_topic",
        "alter_topic",
        "reset_source",
        "register_group",
        "change_group",
        "seek",
        "delete_messages",
        "delete_group",
        "delete_topic",
    ]
    assert {line["operation"] for line in lines} == CHANGES - ONLY_FLIGHT - ONLY_KAFKA, "and there are no other changes"
    told = {(line["event"], line["principal"], line["address"], line["topic"]) for line in lines}
    assert told == {("done", "root", "127.0.0.1", "t")}
    assert all(line["time"].endswith("+00:00") for line in lines)
    assert [line.get("group") for line in lines] == [None, None, None, "g", "g", "g", None, "g", None]
    assert [line.get("producer_id") for line in lines if line["operation"] == "reset_source"] == ["till-7"]


def test_changes_that_only_flight_has_are_written_down(place: Place) -> None:
    with connect(place.url, place.root) as client:
        client.create_topic("t")
        client.register_group("t", "g")
        client.trim_topic("t", datetime.now(UTC))
        with client.consumer("t", group="g", member_id="stuck"):
            client.remove_member("t", "g", "stuck")
            assert "stuck" not in client.describe_group("t", "g").members
        client.check_store()
        made = client.create_token("till", [("t", ["publish"])], forward_only=True)
        assert [grant.forward_only for grant in made.token.grants] == [True]
        rotated = client.rotate_token("till", 0.0)
        assert rotated.replaced == [made.token.id] and client.revoke_token(rotated.token.id)
    lines = [line for line in place.lines()[2:] if line["operation"] != "register_group"]
    assert {line["operation"] for line in lines} == ONLY_FLIGHT
    tokens = [line.get("token") for line in lines]
    assert tokens == [None, None, None, made.token.id, rotated.token.id, rotated.token.id]
    assert lines[4]["replaced"] == [made.token.id]
    told = place.file.read_text()
    assert made.text not in told and rotated.text not in told


def test_the_queue_api_makes_topics_too(place: Place) -> None:
    client = place.site.new_client(place.root)
    assert client.post("/topics", json={"name": "a"}).is_success
    assert client.post("/producer/register", json={"topic": "b"}).is_success
    assert client.post("/producer/register", json={"topic": "b"}).is_success
    assert [(line["operation"], line["topic"]) for line in place.lines()] == [
        ("create_topic", "a"),
        ("create_topic", "b"),
    ]


def test_refusals_are_written_down(place: Place) -> None:
    place.site.broker.create_topic("t")
    reader = place.site.new_client(place.reader)
    assert reader.delete(path_of("topics", "t")).status_code == 403
    assert reader.put(path_of("topics", "t", "groups", "g", "members", "m"), json={}).status_code == 403
    assert place.site.new_client("hr_0123456789ab_wrong").get("/v1/topics").status_code == 401
    with connect(place.url, place.reader) as client:
        with pytest.raises(Forbidden):
            client.seek("t", "theirs", "earliest")
        with pytest.raises(Forbidden), client.producer("t", producer_id="p") as producer:
            producer.send(b"secret payload")
    with connect(place.url, "nonsense", timeout_seconds=0.2) as client, pytest.raises(Unauthenticated):
        client.read("t")
    lines = place.lines()
    assert {line["event"] for line in lines} == {"refused"}
    told = {(line["operation"], line["principal"], line.get("right"), line.get("group")) for line in lines}
    assert told >= {
        ("delete_topic", "reader", "manage", None),
        ("join", "reader", "read", "g"),
        ("list_topics", "unknown", None, None),
        ("seek", "reader", "manage", "theirs"),
        ("open_producer", "reader", "publish", None),
    }
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert {line["token"] for line in lines if line["principal"] == "reader"} == {place.record.id}


def test_refusals_that_one_caller_repeats_are_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(audit, "_refusals", audit.Refusals(lambda: now))
    place.site.broker.create_topic("t")
    client, nobody = place.site.new_client(place.reader), place.site.new_client("nonsense")
    for _ in range(AUDIT_REFUSALS_PER_MINUTE + 7):
        assert client.delete("/v1/topics/t").status_code == 403
        assert nobody.get("/v1/topics").status_code == 401
    # What others did and were refused is there, whoever fills the log.
    other = place.site.new_client(place.site.access.create("other", [("o", ["read"])])[1])
    assert other.delete("/v1/topics/t").status_code == 403
    assert place.site.new_client(place.root).delete("/v1/topics/t").status_code == 204
    told = Counter((line["event"], line["principal"]) for line in place.lines())
    most = AUDIT_REFUSALS_PER_MINUTE
    assert told == {
        ("refused", "reader"): most,
        ("refused", "unknown"): most,
        ("refused", "other"): 1,
        ("done", "root"): 1,
    }
    now += 60
    more = [line for line in audit.recent(10) if "left_out" in line]
    assert {(line["principal"], line.get("address"), line["left_out"]) for line in more} == {
        ("reader", None, 7),
        ("unknown", "127.0.0.1", 7),
    }
    assert [line["left_out"] for line in place.lines()[-2:]] == [7, 7]
    assert client.delete("/v1/topics/t").status_code == 403
    assert place.lines()[-1]["principal"] == "reader"


def test_refusals_of_very_many_addresses_take_little_memory() -> None:
    now = 0.0
    refusals = audit.Refusals(lambda: now)
    assert refusals.left_out() == []
    written = sum(refusals.add(audit.UNKNOWN, f"10.0.{number // 256}.{number % 256}") for number in range(5_000))
    assert written == 1_000 + AUDIT_REFUSALS_PER_MINUTE
    now += 60
    assert refusals.left_out() == [(audit.UNKNOWN, "others", 5_000 - written)]
    assert refusals.left_out() == []


def test_neither_secrets_nor_payloads_are_written_down(place: Place) -> None:
    place.site.broker.create_topic("t")
    _, text = place.site.access.create("till", [("t", ["publish"])], producers=["till-7"])
    client = place.site.new_client(text)
    body = {"messages": [{"value": "secret payload", "producer_id": "till-8"}]}
    assert client.post(path_of("topics", "t", "messages"), json=body).status_code == 403
    batch = pa.record_batch({"value": [b"secret payload"], "producer_id": ["till-8"]})
    with connect(place.url, text) as other, pytest.raises(Forbidden), other.producer("t") as producer:
        producer.send_batch(batch)
    assert client.delete("/v1/topics/" + "x" * 250).status_code == 403
    written = place.file.read_text()
    assert "till-8" in written and "secret" not in written
    assert text.split("_", 2)[2] not in written


def test_a_file_that_was_moved_away_is_made_again(place: Place) -> None:
    audit.record("done", "delete_topic", "root", "local", topic="a")
    place.file.rename(place.file.with_suffix(".1"))
    audit.record("done", "delete_topic", "root", "local", topic="b\ud800\n")
    assert [line["topic"] for line in place.lines()] == ["b\\ud800\n"]
    assert place.file.stat().st_mode & 0o777 == 0o600


def test_a_line_among_other_logs_is_json_once() -> None:
    record = logging.LogRecord("headrace.audit", logging.INFO, "", 0, "%s", ('{"event":"done"}',), None)
    record.audit = {"event": "done", "operation": "seek", "principal": "rita", "level": "a name"}
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "done: seek" and line["principal"] == "rita" and line["level"] == "info"
