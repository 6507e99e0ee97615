"""The verdict over HTTP and Flight: the same, and for each caller what they may read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headrace.client import connect
from headrace.core.health.findings import Health
from headrace.protocols.flight.server import FlightServer
from tests.protocols.http.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as opened:
        for topic in ("orders", "secret"):
            opened.broker.create_topic(topic)
            opened.broker.publish(topic, pa.record_batch({"value": [b"m"]}))
            opened.broker.register_group(topic, "billing")
        yield opened


def test_callers_see_what_they_may_read_on_both_protocols(site: Site) -> None:
    server = FlightServer(site.broker, site.access, "grpc+tcp://127.0.0.1:0")
    tokens = {
        "admin": site.access.create("admin", [("*", ["read"])])[1],
        "rita": site.access.create("rita", [("orders", ["read"])], life_seconds=1.5)[1],
        "paul": site.access.create("paul", [("orders", ["publish"])])[1],
    }
    seen = {}
    for name, token in tokens.items():
        with connect(f"headrace://127.0.0.1:{server.port}", token) as client:
            over_flight = client.describe_health()
        answer = site.new_client(token).get("/v1/health")
        over_http = msgspec.json.decode(answer.content, type=Health)
        assert over_http.server == over_flight.server == site.broker.servers.id
        assert over_http.covers_store == over_flight.covers_store == (name == "admin")
        assert over_http.state == over_flight.state
        seen[name] = {str(each.place) for each in over_http.findings}
        assert seen[name] == {str(each.place) for each in over_flight.findings}
    assert server.stop(60.0)
    assert seen["admin"] >= {"group billing of orders", "group billing of secret"}
    assert "group billing of orders" in seen["rita"] and "group billing of secret" not in seen["rita"]
    assert seen["paul"] == set(), "it may not read, so it sees no groups"


def test_a_caller_without_a_token_sees_nothing_once_there_are_some(site: Site) -> None:
    assert site.client.get("/v1/health").json()["state"] == "attention"
    site.access.create("admin", [("*", ["read"])])
    assert site.client.get("/v1/health").status_code == 401
