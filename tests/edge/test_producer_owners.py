"""One token with a right to publish makes no duplicates of what another publishes as its own producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.broker.queue_api.numbered_clients import producer_id_of
from headrace.client import Client, connect
from headrace.core.errors import Forbidden
from headrace.core.limits import SEQNO_MAX
from headrace.core.rights import Right
from headrace.protocols.flight.server import FlightServer
from tests.protocols.http.site import Site, path_of, problem

PATIENCE_SECONDS = 60.0
TOPIC, OWN = "orders", "till-7"


class Place:
    """A store with an owner of a producer id, and another token that may publish as well."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory)
        self.broker, self.access = self.site.broker, self.site.access
        self.broker.create_topic(TOPIC)
        self.flight = FlightServer(self.broker, self.access, "grpc+tcp://127.0.0.1:0")
        self.access.create("root", [("*", list(Right))])
        _, self.other = self.access.create("other", [("*", ["publish", "read"])])

    def name_owner(self) -> str:
        """The token of the owner, which exists from now on."""
        producers = [OWN, "spark", producer_id_of(OWN)]
        return self.access.create("till", [("orders*", ["publish"])], producers=producers)[1]

    def http(self, token: str) -> httpx.Client:
        return self.site.new_client(token)

    def connect(self, token: str) -> Client:
        return connect(f"headrace://127.0.0.1:{self.flight.port}", token, timeout_seconds=PATIENCE_SECONDS)

    def close(self) -> None:
        assert self.flight.stop(PATIENCE_SECONDS)
        self.site.__exit__(None, None, None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.close()


def rows(producer: str, seqno: int) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"a"], "producer_id": [producer], "seqno": [seqno]})


def test_over_http(place: Place) -> None:
    owner, other = place.http(place.name_owner()), place.http(place.other)
    path = path_of("topics", TOPIC, "messages")

    def body(seqno: int, **more: Any) -> dict[str, Any]:
        return {"messages": [{"value": "a", "producer_id": OWN, "seqno": seqno}], **more}

    denied = problem(other.post(path, json=body(SEQNO_MAX)), 403, "forbidden")
    assert denied["fields"]["producer_id"] == OWN
    key = {"commit_key": {"writer": "spark", "number": SEQNO_MAX >> 32}}
    problem(other.post(path, json={"messages": [{"value": "a"}], **key}), 403, "forbidden")
    numbered, headers = f"{path}?producer_id={OWN}&seqno={SEQNO_MAX >> 1}", {"content-type": "application/octet-stream"}
    problem(other.post(numbered, content=b"a", headers=headers), 403, "forbidden")
    receipts = owner.post(path, json=body(1)).json()["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["written"]


def test_over_the_queue_api(place: Place) -> None:
    owner, other = place.http(place.name_owner()), place.http(place.other)
    body = {"topic": TOPIC, "message": "a", "prod_client": OWN}
    body["producer_id"] = other.post("/producer/register", json={"topic": TOPIC}).json()["producer_id"]
    assert other.post("/producer/produce", json=body).status_code == 403
    assert owner.post("/producer/produce", json=body).status_code == 200
    assert other.post("/producer/produce", json=body | {"prod_client": "till-8"}).status_code == 200


def test_over_flight(place: Place) -> None:
    till = place.name_owner()
    with place.connect(till) as owner, place.connect(place.other) as other:
        with other.producer(TOPIC) as producer, pytest.raises(Forbidden):
            producer.send_batch(rows(OWN, SEQNO_MAX))
        with pytest.raises(Forbidden):
            other.producer(TOPIC, producer_id=OWN)
        with other.producer(TOPIC) as producer:
            assert producer.send_batch(rows("office", SEQNO_MAX)).column("status").to_pylist() == ["written"]
        with owner.producer(TOPIC, producer_id=OWN) as producer:
            assert producer.send(b"a", seqno=1).result(PATIENCE_SECONDS).status == "written"


def test_streams_that_run_when_an_owner_is_named(place: Place) -> None:
    with place.connect(place.other) as other:
        with pytest.raises(Forbidden), other.producer(TOPIC) as producer:
            assert producer.send_batch(rows(OWN, 1)).column("status").to_pylist() == ["written"]
            place.name_owner()
            producer.send_batch(rows(OWN, SEQNO_MAX >> 1))
        with pytest.raises(Forbidden), other.producer(TOPIC, producer_id="spark-2") as producer:
            assert producer.send(b"a").result(PATIENCE_SECONDS).status == "written"
            place.access.create("spark-2", [(TOPIC, ["publish"])], producers=["spark-2"])
            producer.send(b"b").result(PATIENCE_SECONDS)
        assert place.broker.last_seqno(TOPIC, OWN) == 1
